#!/usr/bin/env python3
"""Times Hugging Face's `tokenizers` loading and encoding, to set beside akunu-text's example `tokenizer_speed`.

usage: tokenizer_speed.py TEXT FOLDER...

Each FOLDER holds a tokenizer.json. Every figure is the best of three runs.
"""

import pathlib
import sys
import time

from tokenizers import Tokenizer


def best(work):
    times = []
    for _ in range(3):
        start = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - start)
    return min(times) * 1e3, result


def main(text, *folders):
    text = pathlib.Path(text).read_text("utf-8")
    for folder in folders:
        load, tokenizer = best(lambda: Tokenizer.from_file(str(pathlib.Path(folder) / "tokenizer.json")))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        encode, encoding = best(lambda: tokenizer.encode(text, add_special_tokens=False))
        print(f"{folder}: load {load:.0f} ms, encode {encode:.0f} ms, {len(encoding.ids)} tokens")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
