#!/usr/bin/env python3
"""Trains three small Unigram tokenizers with SentencePiece and writes them as `tokenizer.json` files, for tokenizer_ids.py.

usage: tiny_unigram.py TEST_DATA FIXTURES

TEST_DATA is the folder that scripts/fetch-test-data fills, FIXTURES is crates/akunu-text/tests/fixtures. Needs `sentencepiece` and `tokenizers`.

  unigram            as XLM-RoBERTa's: SentencePiece's own normalisation, words at spaces, ids in fairseq's order
  unigram_bytes      as Llama's would be: no normalisation, all bytes as tokens, texts with their spaces in one piece
  unigram_lowercase  as ALBERT's: decomposed, without accents and in lower case before SentencePiece's own normalisation
"""

import io
import json
import pathlib
import sys

import sentencepiece
import tokenizers
from sentencepiece import sentencepiece_model_pb2
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from tokenizer_ids import Generator


def train(texts, **options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=model, model_type="unigram", num_threads=1, **options
    )
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model.getvalue())
    return proto


def xlm_roberta(texts):
    proto = train(texts, vocab_size=3000, character_coverage=0.999, normalization_rule_name="nmt_nfkc")
    pieces = [(piece.piece, piece.score) for piece in proto.pieces[3:]]
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *pieces, ("<mask>", 0.0)]
    tokenizer = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=3, byte_fallback=False))
    tokenizer.normalizer = normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")]
    )
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>"])
    tokenizer.add_special_tokens([tokenizers.AddedToken("<mask>", lstrip=True, special=True)])
    return tokenizer


def bytes_too(texts):
    proto = train(
        texts,
        vocab_size=2500,
        character_coverage=0.98,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
    )
    pieces = [(piece.piece, piece.score) for piece in proto.pieces]
    tokenizer = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tokenizer


def albert(texts):
    lower = [text.lower() for text in texts]
    proto = train(lower, vocab_size=1500, character_coverage=0.98, normalization_rule_name="nmt_nfkc")
    pieces = [(piece.piece, piece.score) for piece in proto.pieces[3:]]
    special = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = tokenizers.Tokenizer(models.Unigram([(name, 0.0) for name in special] + pieces, unk_id=1, byte_fallback=False))
    tokenizer.normalizer = normalizers.Sequence([
        normalizers.Replace("``", '"'),
        normalizers.Replace("''", '"'),
        normalizers.NFKD(),
        normalizers.StripAccents(),
        normalizers.Lowercase(),
        normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap),
        normalizers.Replace(tokenizers.Regex(" {2,}"), " "),
    ])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.add_special_tokens(special[:4])
    tokenizer.add_special_tokens([tokenizers.AddedToken("[MASK]", lstrip=True, special=True)])
    return tokenizer


def main(test_data, fixtures):
    fixtures = pathlib.Path(fixtures)
    pool = json.loads((fixtures / "fuzz-fragments.json").read_text("utf-8"))
    generator = Generator(pool["fragments"], pool["ranges"])
    texts = (pathlib.Path(test_data) / "text/moby-dick.txt").read_text("utf-8").split("\n")[:4000]
    texts += [generator.string(number) for number in range(1000)]
    for name, make in [("unigram", xlm_roberta), ("unigram_bytes", bytes_too), ("unigram_lowercase", albert)]:
        source = json.loads(make(texts).to_str())
        (fixtures / f"{name}.json").write_text(json.dumps(source, ensure_ascii=False, separators=(",", ":")) + "\n", "utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
