#!/usr/bin/env python3
"""Encodes generated strings with Hugging Face's `tokenizers` and keeps hashes of the ids.

usage: tokenizer_ids.py TEST_DATA OUTPUT.json

TEST_DATA is the folder that scripts/fetch-test-data fills. The strings are made by the same generator as in
crates/akunu-text/tests/real/fuzz.rs; the two must not drift apart. Random characters come from ranges without holes and
without additions since Unicode 8, on which the library's tables (of several ages) disagree among themselves. For every tokenizer the output has

  parse    one hash per block of strings, special tokens recognised (the library's default)
  plain    the same with every special token taken out of `added_tokens`: what a user's text must give
  decoded  hashes of the texts that decoding the `parse` ids gives
  samples  the `parse` ids of the first strings, to look at when a hash differs
"""

import json
import pathlib
import sys

import tokenizers

STRINGS, BLOCK, SAMPLES = 10_000, 100, 40
NAMES = {
    "gemma3": "tokenizers/gemma3",
    "llama3": "tokenizers/llama3",
    "llama3_2": "tokenizers/llama3_2",
    "qwen2_5": "tokenizers/qwen2_5",
    "qwen3": "tokenizers/qwen3",
    "gpt2": "tokenizers/gpt2",
    "minilm": "models/minilm",
}
# Of tiny_unigram.py, beside the output.
UNIGRAM = ["unigram", "unigram_bytes", "unigram_lowercase"]
# Unicode 18 has given this one a decomposition, which is not in the library's tables: left out where text is decomposed.
NEWER = {"unigram_lowercase": "\U0001d6a6"}
MASK = (1 << 64) - 1
HTML = "a b bbox blockquote body br caption code div em footer h1 h2 h3 h4 h5 h6 html i iframe img li ol p pre s span strong sub sup table tbody td tfoot th thead tr u ul".split()


class Generator:
    """Strings out of fragments and random characters, by a linear congruential generator."""

    def __init__(self, fragments, ranges):
        self.fragments, self.ranges = fragments, ranges

    def below(self, limit):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) & MASK
        return (self.state >> 33) % limit

    def string(self, number):
        self.state = (number * 0x9E3779B97F4A7C15 + 1) & MASK
        parts = []
        for _ in range(1 + self.below(24)):
            kind = self.below(8)
            if kind == 0:
                first, last = self.ranges[self.below(len(self.ranges))]
                for _ in range(1 + self.below(4)):
                    parts.append(chr(first + self.below(last - first + 1)))
            elif kind == 1:
                parts.append(self.fragments[self.below(len(self.fragments))] * (1 + self.below(5)))
            else:
                parts.append(self.fragments[self.below(len(self.fragments))])
        return "".join(parts)


def fnv(state, data):
    for byte in data:
        state = ((state ^ byte) * 0x100000001B3) & MASK
    return state


def block_hashes(items):
    hashes = []
    for start in range(0, len(items), BLOCK):
        state = 0xCBF29CE484222325
        for item in items[start : start + BLOCK]:
            state = fnv(state, item + b"\xff\xff\xff\xff")
        hashes.append(f"{state:016x}")
    return hashes


def id_bytes(ids):
    return b"".join(i.to_bytes(4, "little") for i in ids)


def is_structure(text):
    bracketed = (text[:1], text[-1:]) in (("<", ">"), ("[", "]"))
    return bracketed and not (text[0] == "<" and text[1:-1].removeprefix("/") in HTML)


def without_special(tokenizer):
    keep = [t for t in tokenizer["added_tokens"] if not (t["special"] or is_structure(t["content"]))]
    vocabulary = tokenizer["model"]["vocab"]
    if isinstance(vocabulary, list):
        # A Unigram model finds all of its pieces in any text: give special ones names that no text has.
        special = {t["content"] for t in tokenizer["added_tokens"]}
        vocabulary = [["\U0010fffd" + piece if piece in special else piece, score] for piece, score in vocabulary]
        return {**tokenizer, "added_tokens": keep, "model": {**tokenizer["model"], "vocab": vocabulary}}
    assert all(t["content"] in vocabulary for t in keep), "taking tokens out would move these"
    return {**tokenizer, "added_tokens": keep}


def main(test_data, output):
    here = pathlib.Path(__file__).resolve().parent
    pool = json.loads((here / "../../crates/akunu-text/tests/fixtures/fuzz-fragments.json").read_text("utf-8"))
    generator = Generator(pool["fragments"], pool["ranges"])
    strings = [generator.string(number) for number in range(STRINGS)]
    result = {"strings": block_hashes([s.encode() for s in strings]), "tokenizers": {}}
    files = {name: pathlib.Path(test_data) / folder / "tokenizer.json" for name, folder in NAMES.items()}
    files |= {name: pathlib.Path(output).with_name(f"{name}.json") for name in UNIGRAM}
    for name, file in files.items():
        source = json.loads(file.read_text("utf-8"))
        source["truncation"] = source["padding"] = None
        parse = tokenizers.Tokenizer.from_str(json.dumps(source))
        plain = tokenizers.Tokenizer.from_str(json.dumps(without_special(source)))
        texts = [s.replace(NEWER[name], "") for s in strings] if name in NEWER else strings
        encode = lambda tokenizer: [e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=False)]
        parsed = encode(parse)
        result["tokenizers"][name] = {
            "parse": block_hashes([id_bytes(ids) for ids in parsed]),
            "plain": block_hashes([id_bytes(ids) for ids in encode(plain)]),
            "decoded": block_hashes([parse.decode(ids, skip_special_tokens=True).encode() for ids in parsed]),
            "samples": parsed[:SAMPLES],
        }
        print(name, tokenizers.__version__, file=sys.stderr)
    lines = json.dumps(result, separators=(",", ":")).replace('"parse"', '\n"parse"').replace('"samples"', '\n"samples"')
    pathlib.Path(output).write_text(lines + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
