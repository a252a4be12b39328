#!/usr/bin/env python3
"""Encodes generated strings with the libraries that Whisper, Mistral and SentencePiece vocabularies come with.

usage: vocabulary_ids.py TEST_DATA WHISPER_SOURCE OUTPUT.json

TEST_DATA is the folder that scripts/fetch-test-data fills, WHISPER_SOURCE the folder of openai-whisper's `tokenizer.py` and its `assets`.
Needs tiktoken, mistral-common and sentencepiece. The strings are those of tokenizer_ids.py; so are the hashes. For every vocabulary
the output has

  plain    one hash per block of strings, special tokens not recognised: what a user's text must give
  parse    the same with special tokens recognised, where the library can do that
  decoded  hashes of the texts that decoding the `plain` ids gives
  samples  the `plain` ids of the first strings, to look at when a hash differs
  special  some names of special tokens with their ids
"""

import importlib.util
import json
import pathlib
import sys

import sentencepiece
from mistral_common.tokens.tokenizers.tekken import SpecialTokenPolicy, Tekkenizer

from tokenizer_ids import Generator, block_hashes, id_bytes

STRINGS, SAMPLES = 2_000, 20
TEKKEN = ["tekken_240718.json", "tekken_240911.json"]
SENTENCEPIECE = [
    "tokenizer.model.v1", "mistral_instruct_tokenizer_240216.model.v2", "mistral_instruct_tokenizer_240323.model.v3",
    "mistral_instruct_tokenizer_241114.model.v7",
]


def whisper(source):
    """The multilingual encoding of the second version's models, and the third's special tokens."""
    spec = importlib.util.spec_from_file_location("whisper_tokenizer", pathlib.Path(source) / "tokenizer.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    encoding = module.get_encoding("multilingual", num_languages=99)
    encode = lambda text: encoding.encode(text, disallowed_special=())
    parse = lambda text: encoding.encode(text, allowed_special="all")
    special = {name: encoding.encode_single_token(name) for name in sorted(encoding.special_tokens_set)}
    keep = lambda name: not name[2:3].isdigit() or name in ("<|0.00|>", "<|0.02|>", "<|29.98|>", "<|30.00|>")
    return encode, parse, encoding.decode_bytes, {name: id for name, id in special.items() if keep(name)}


def tekken(path):
    tokenizer = Tekkenizer.from_file(path)
    encode = lambda text: tokenizer.encode(text, bos=False, eos=False)
    decode = lambda ids: tokenizer.decode(ids, special_token_policy=SpecialTokenPolicy.IGNORE).encode()
    special = {name: tokenizer.get_control_token(name) for name in ("<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]")}
    # Its decoder puts a replacement character for every broken one: only whole texts are compared.
    return encode, None, decode, special


def sentence_piece(path):
    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    special = {model.id_to_piece(i): i for i in range(model.vocab_size()) if model.is_control(i)}
    return model.encode, None, lambda ids: model.decode(ids).encode(), special


def main(test_data, whisper_source, output):
    here = pathlib.Path(__file__).resolve().parent
    pool = json.loads((here / "../../crates/akunu-text/tests/fixtures/fuzz-fragments.json").read_text("utf-8"))
    generator = Generator(pool["fragments"], pool["ranges"])
    strings = [generator.string(number) for number in range(STRINGS)]
    mistral = pathlib.Path(test_data) / "tokenizers/mistral"
    makers = {"whisper": whisper(whisper_source)}
    makers |= {name: tekken(mistral / name) for name in TEKKEN}
    makers |= {name: sentence_piece(mistral / name) for name in SENTENCEPIECE}
    result = {}
    for name, (encode, parse, decode, special) in makers.items():
        plain = [encode(text) for text in strings]
        result[name] = {
            "plain": block_hashes([id_bytes(ids) for ids in plain]),
            "parse": block_hashes([id_bytes(parse(text)) for text in strings]) if parse else None,
            "decoded": block_hashes([decode(ids) for ids in plain]),
            "samples": plain[:SAMPLES],
            "special": dict(list(special.items())[:130]),
        }
        print(name, file=sys.stderr)
    compact = lambda value: json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    lines = ",\n".join(f"{compact(name)}: {compact(value)}" for name, value in result.items())
    pathlib.Path(output).write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
