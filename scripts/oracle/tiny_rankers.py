#!/usr/bin/env python3
"""Writes tiny random cross-encoders of each kind with the scores that `sentence-transformers` gives pairs of texts.

    tiny_rankers.py OUT

Needs: pip install sentence-transformers transformers tokenizers torch numpy. Each model is a folder as `CrossEncoder` saves it, with scores.json: a list of
{"query", "document", "score", "logit", "tokens", "types"}, where the score is what `CrossEncoder.predict` gives in float64, and the logit what
the score was made of. The last pair is longer than the model takes and is cut as `CrossEncoder` does.
"""

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import CrossEncoder
from tiny_encoders import fill
from tokenizers import ByteLevelBPETokenizer, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForSequenceClassification,
)

CONTEXT = 48
SHAPE = dict(hidden_size=48, num_hidden_layers=2, num_attention_heads=3, intermediate_size=80, num_labels=1)
QUERY = "Where does the night train to the sea leave?"
DOCUMENTS = [
    "The night train leaves from platform nine.",
    "Bread is baked in the morning, and the sea is far away.",
    "",
    "Trains to the sea leave every hour; the last one at night!",
]
LONG = ("The train to the sea leaves at night from platform nine, and " * 6).strip()
PAIRS = [(QUERY, document) for document in DOCUMENTS] + [("sea?", "train"), (QUERY + " " + LONG, LONG)]


def wordpiece() -> PreTrainedTokenizerFast:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    words = sorted({word.strip(".,;!?").lower() for pair in PAIRS for text in pair for word in text.split()} - {"", "baked", "trains", "platform"})
    pieces = ["train", "plat", "##form", "##s", "bak", "##ed", ".", ",", ";", "!", "?"]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(special + words + pieces))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ids = [(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", ids)
    names = dict(pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]")
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=CONTEXT, model_input_names=["input_ids", "token_type_ids", "attention_mask"], **names
    )


def byte_level() -> PreTrainedTokenizerFast:
    trained = ByteLevelBPETokenizer()
    texts = [text for pair in PAIRS for text in pair]
    trained.train_from_iterator(texts, vocab_size=300, min_frequency=1, special_tokens=["<s>", "<pad>", "</s>", "<unk>"], show_progress=False)
    tokenizer = trained._tokenizer
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=False)
    names = dict(pad_token="<pad>", unk_token="<unk>", bos_token="<s>", eos_token="</s>", cls_token="<s>", sep_token="</s>")
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=CONTEXT, model_input_names=["input_ids", "attention_mask"], **names
    )


def bert():
    tokenizer = wordpiece()
    config = BertConfig(**SHAPE, vocab_size=len(tokenizer), max_position_embeddings=CONTEXT, type_vocab_size=2, pad_token_id=0)
    return BertForSequenceClassification, config, tokenizer, None


def bert_identity():
    return *bert()[:3], torch.nn.Identity()


def roberta():
    tokenizer = byte_level()
    config = RobertaConfig(**SHAPE, vocab_size=len(tokenizer), max_position_embeddings=CONTEXT + 2, type_vocab_size=1, pad_token_id=1)
    return RobertaForSequenceClassification, config, tokenizer, None


CASES = {"bert": bert, "bert-identity": bert_identity, "roberta": roberta}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("out", type=Path)
    out = arguments.parse_args().out
    for name, case in CASES.items():
        kind, config, tokenizer, activation = case()
        torch.manual_seed(0)
        model = kind(config).eval()
        fill(model)
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            ranker = CrossEncoder(folder, max_length=CONTEXT, device="cpu", activation_fn=activation)
        ranker.save_pretrained(str(out / name))
        for extra in ("README.md", "model_card.md"):
            (out / name / extra).unlink(missing_ok=True)
        ranker = ranker.double()
        scores = ranker.predict(PAIRS, batch_size=1, show_progress_bar=False)
        logits = ranker.predict(PAIRS, batch_size=1, show_progress_bar=False, activation_fn=torch.nn.Identity())
        rows = []
        for (query, document), score, logit in zip(PAIRS, scores, logits):
            # In lists, an empty text is one.
            ids = tokenizer([query], [document], truncation=True, max_length=CONTEXT, return_token_type_ids=True)
            rows.append(
                {"query": query, "document": document, "score": round(float(score), 7), "logit": round(float(logit), 7),
                 "tokens": ids["input_ids"][0], "types": ids["token_type_ids"][0]}
            )  # fmt: skip
        (out / name / "scores.json").write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
        print(name, np.round(scores, 4))


if __name__ == "__main__":
    main()
