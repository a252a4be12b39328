#!/usr/bin/env python3
"""Writes the embeddings that `sentence-transformers` gives for some texts with all-MiniLM-L6-v2.

    embeddings.py MINILM OUT

MINILM is the checkpoint's folder. OUT becomes {"texts": [...], "tokens": [...], "vectors": [[...]]}: tokens are those of each text with
special ones, vectors are of length 1, computed in float64 and rounded to 7 digits.
"""

import json
import sys
from pathlib import Path

from sentence_transformers import SentenceTransformer

TEXTS = [
    "Where is the station?",
    "How do I get to the train?",
    "The mitochondrion is the powerhouse of the cell.",
    "",
    "naïve café, Ω-3, 你好, Привет, emoji 🙂",
    "def add(a, b):\n    return a + b\n",
    "A longer text. " * 40,
]


def main() -> None:
    model = SentenceTransformer(sys.argv[1], device="cpu").double()
    vectors = model.encode(TEXTS, batch_size=1, normalize_embeddings=True, convert_to_numpy=True)
    tokens = [model.tokenizer(text, truncation=True, max_length=model.max_seq_length)["input_ids"] for text in TEXTS]
    rows = [[float(f"{x:.7g}") for x in vector] for vector in vectors]
    out = json.dumps({"texts": TEXTS, "tokens": tokens, "vectors": rows}, ensure_ascii=False)
    Path(sys.argv[2]).write_text(out + "\n")


if __name__ == "__main__":
    main()
