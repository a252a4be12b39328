#!/usr/bin/env python3
"""Encodes generated strings with llama.cpp, for Unigram vocabularies in GGUF files.

usage: llama_unigram.py PROGRAM TEST_DATA FIXTURES

PROGRAM is llama_ids.cpp, compiled. TEST_DATA is the folder that scripts/fetch-test-data fills, FIXTURES is crates/akunu-text/tests/fixtures.
Needs `gguf` and `tokenizers`. The strings are those of tokenizer_ids.py without their zero bytes; so are the hashes. The vocabularies are
the one real file, and those of tiny_unigram.py written as GGUF with different keys. FIXTURES/llama-unigram.json gets for each

  keys          what the file says beside its tokens, `charsmap` and `user_defined` (pieces) included
  parse, plain  one hash per block of strings, special tokens recognised and not
  samples       the `parse` ids of the first strings, to look at when a hash differs
  vectors       of the real file: the `plain` ids of the texts that other vocabularies come with

`bytes` has the ids of Hugging Face's library instead, of the strings without names of bytes: llama.cpp leaves the tokens of bytes unused,
which the models are trained with. Printed is how many strings have other ids in that library, with the real vocabulary in a tokenizer such as XLM-RoBERTa's.
"""

import base64
import json
import pathlib
import subprocess
import sys
import tempfile
import unicodedata

import gguf
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from tokenizer_ids import SAMPLES, STRINGS, Generator, block_hashes, id_bytes

NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4
BOS = 0
BYTE_NAME = "<0x"
SEPARATOR = "\n__ggml_vocab_test__\n"
VARIANTS = {
    # T5's: no beginning, an end unless the file says otherwise. User-defined tokens of one byte alone: where a text only begins like a
    # longer one, llama.cpp leaves those bytes out of normalisation, also in the middle of a character.
    "words": {"add_space_prefix": True, "remove_extra_whitespaces": True, "charsmap": True, "user_defined": ["1", "!"]},
    "spaces": {"add_space_prefix": True, "remove_extra_whitespaces": False, "add_bos_token": True, "charsmap": False},
    "plain_spaces": {"charsmap": True, "add_eos_token": False},
    "words_without_prefix": {"add_space_prefix": False, "remove_extra_whitespaces": True, "charsmap": True, "add_bos_token": True},
}


def read_json(fixtures, name):
    source = json.loads((fixtures / f"{name}.json").read_text("utf-8"))
    charsmap = base64.b64decode((source["normalizer"] or {}).get("precompiled_charsmap", ""))
    return source["model"]["vocab"], charsmap


def kind(piece):
    if piece == "<unk>":
        return UNKNOWN
    return CONTROL if piece in ("<s>", "<pad>", "</s>", "<mask>") else NORMAL


def write_gguf(path, pieces, charsmap, keys):
    names = [piece for piece, _ in pieces]
    keys = dict(keys)
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_tokenizer_model("t5")
    writer.add_token_list([name.encode() for name in names])
    writer.add_token_scores([score for _, score in pieces])
    user_defined = keys.pop("user_defined", [])
    assert all(piece in names for piece in user_defined)
    writer.add_token_types([USER_DEFINED if name in user_defined else kind(name) for name in names])
    if keys.pop("charsmap"):
        writer.add_precompiled_charsmap(charsmap)
    for role, name in [("bos", "<s>"), ("padding", "<pad>"), ("eos", "</s>"), ("unknown", "<unk>"), ("mask", "<mask>")]:
        writer.add_uint32(f"tokenizer.ggml.{role}_token_id", names.index(name))
    for key, value in keys.items():
        writer.add_bool(f"tokenizer.ggml.{key}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def llama_ids(program, file, mode, texts):
    """The ids of each text. Where it begins with the token that llama.cpp puts in front, the second of them is left out, as akunu does."""
    given = "".join(text + "\0" for text in texts).encode()
    lines = subprocess.run([program, file, mode], input=given, stdout=subprocess.PIPE, check=True).stdout.decode().split("\n")
    assert len(lines) == len(texts) + 1
    lists = [[int(word) for word in line.split()] for line in lines[: len(texts)]]
    adds_bos = all(ids[:1] == [BOS] for ids in lists)
    return [ids[1:] if adds_bos and ids[1:2] == [BOS] else ids for ids in lists]


def byte_ids(pieces, texts):
    """The ids in Hugging Face's library, with byte tokens and without special ones: those get names that no text has."""
    pieces = [(piece, score) if kind(piece) == NORMAL else ("\U0010fffd" + piece, score) for piece, score in pieces]
    tokenizer = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="never", split=False)
    return [encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]


def huggingface_ids(file, texts):
    """The ids in Hugging Face's library for a vocabulary in GGUF, without special tokens."""
    fields = gguf.GGUFReader(file).fields
    read = lambda key: fields[f"tokenizer.ggml.{key}"].contents()
    scored = zip(read("tokens"), read("scores"), read("token_type"))
    pieces = [(piece, score) if kind == NORMAL else ("\U0010fffd" + piece, 0.0) for piece, score, kind in scored]
    tokenizer = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=read("unknown_token_id"), byte_fallback=False))
    tokenizer.normalizer = normalizers.Precompiled(bytes(read("precompiled_charsmap")))
    words, marks = pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, marks])
    return [encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]


def is_part(character):
    """Whether it may be one character with what is before it: combining marks, jamo, halfwidth forms."""
    return unicodedata.category(character)[0] == "M" or "\u1100" <= character <= "\u11ff" or "\uff66" <= character <= "\uffdc"


def main(program, test_data, fixtures):
    test_data, fixtures = pathlib.Path(test_data), pathlib.Path(fixtures)
    pool = json.loads((fixtures / "fuzz-fragments.json").read_text("utf-8"))
    generator = Generator(pool["fragments"], pool["ranges"])
    strings = [generator.string(number).replace("\0", "") for number in range(STRINGS)]
    result = {}

    def add(name, file, keys):
        parsed = llama_ids(program, file, "parse", strings)
        plain = llama_ids(program, file, "plain", strings)
        hashes = lambda lists: block_hashes([id_bytes(ids) for ids in lists])
        result[name] = {"keys": keys, "parse": hashes(parsed), "plain": hashes(plain), "samples": parsed[:SAMPLES]}

    real = test_data / "vocab/ggml-vocab-nomic-bert-moe.gguf"
    add("nomic-bert-moe", real, {})
    framed = llama_ids(program, real, "plain", strings)
    differ = [text for text, ours, theirs in zip(strings, framed, huggingface_ids(real, strings)) if ours[1:-1] != theirs]
    lines = [text for text in differ if "\x85" in text]
    parts = [text for text in differ if "\x85" not in text and any(map(is_part, text))]
    print(f"in tokenizers {len(differ)} differ: {len(lines)} with U+0085, {len(parts)} others with marks or jamo")
    texts = (test_data / "vocab/ggml-vocab-bert-bge.gguf.inp").read_bytes().decode().removesuffix(SEPARATOR).split(SEPARATOR)
    result["nomic-bert-moe"]["vectors"] = llama_ids(program, real, "plain", texts)
    pieces, charsmap = read_json(fixtures, "unigram")
    with tempfile.TemporaryDirectory() as folder:
        for name, keys in VARIANTS.items():
            file = pathlib.Path(folder) / f"{name}.gguf"
            write_gguf(file, pieces, charsmap, keys)
            add(name, file, keys)
    pieces, _ = read_json(fixtures, "unigram_bytes")
    ids = byte_ids(pieces, [string.replace(BYTE_NAME, "") for string in strings])
    keys = {"add_eos_token": False, "charsmap": False}
    result["bytes"] = {"keys": keys, "parse": [], "plain": block_hashes([id_bytes(i) for i in ids]), "samples": ids[:SAMPLES]}

    compact = lambda value: json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    lines = ",\n".join(f"{compact(name)}: {compact(value)}" for name, value in result.items())
    (fixtures / "llama-unigram.json").write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
