#!/usr/bin/env python3
"""Encodes varied texts with llama.cpp, for every GGUF vocabulary of the test data.

usage: llama_ids.py PROGRAM TEST_DATA OUTPUT.json

PROGRAM is llama_ids.cpp, compiled. TEST_DATA is the folder that scripts/fetch-test-data fills. The output has the texts, and for every
vocabulary the ids of each text, special tokens recognised ("parse") and not ("plain").
"""

import json
import pathlib
import subprocess
import sys

VOCABULARIES = "bert-bge command-r deepseek-coder deepseek-llm falcon gemma-4 gpt-2 llama-bpe llama-spm mpt nomic-bert-moe phi-3 qwen2 qwen35 refact starcoder"
MODELS = "smollm2 gemma3-270m qwen2.5-coder-0.5b"
TEXTS = [
    "", " ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\n\n\n \n", " \t \n ", "a", " a", "a ", "Hello", " Hello", "Hello ", "  Hello  world  ",
    "Hello, World! How are you?", "I'm sure they've said: we'll go, don't, WE'RE, It's he'd.", "The quick brown fox jumps over the lazy dog.",
    "0", "42", "1234567890", "3.14159265358979", "1,234,567.89", "2024-02-29T12:34:56Z", "v1.2.3-rc4+build.5", "x1y22z333 4444 55555", "½ ² ⅷ ٣٤",
    "camelCaseHTTPServer snake_case_name SCREAMING_CASE kebab-case", "user.name+tag@example.org https://example.org/a/b?c=d&e=%20f#g",
    "def f(x):\n    if x > 0:\n        return x ** 2\n\treturn -x  # tab\n", "fn main() { println!(\"{:?}\", vec![1, 2, 3]); }\r\n",
    "#include <stdio.h>\nint main(void) { return 0x7fff & ~1; }", "SELECT * FROM t WHERE a <> 'b' AND c IS NOT NULL;", "{\"a\": [1, 2.5e-3, null], \"b\": {\"c\": \"\\u00e9\"}}",
    "<html><body><h1>Hi</h1><p>a &amp; b</p></body></html>", "| a | b |\n|---|---|\n| 1 | 2 |\n", "- [ ] one\n- [x] two\n\n> quote\n\n```rust\nx\n```",
    "!!!???...---===+++***///\\\\\\|||", "(((a)))[[[b]]]{{{c}}}<<<d>>>", "$ 5.00 € 3,50 £2 ¥100 ₹9", "a\u00a0b\u2003c\u3000d", "…—–“quoted” ‘single’ «guillemets»",
    "Grüße aus Köln, Straße, ÄÖÜ", "Ça va? Où êtes-vous, garçon ? L'été à Noël.", "¿Qué tal? ¡Mañana, señor!", "Žluťoučký kůň úpěl ďábelské ódy", "Zażółć gęślą jaźń", "İstanbul'da ığdır",
    "Съешь же ещё этих мягких французских булок", "Η γρήγορη αλεπού πηδάει", "שלום עולם", "مرحبا بالعالم", "नमस्ते दुनिया", "สวัสดีชาวโลก", "გამარჯობა", "Xin chào thế giới Việt Nam",
    "你好,世界!今天天气很好。", "我想在apple工作1314151天~", "こんにちは世界、カタカナとひらがな。", "안녕하세요 세계", "𠮷野家で𩸽", "Ｆｕｌｌｗｉｄｔｈ １２３",
    "😀😃 👍🏽 👩‍👩‍👧‍👦 🇩🇪 ❤️", "𝒜𝓁𝓅𝒽𝒶 ∑∏∫√∞ ≤≥≠ → ⇒ ∀x∈ℝ", "ﬁ ﬂ Ⅷ ㎏ ™ ©", "cafe\u0301 e\u0302 n\u0303 A\u030a", "\u1112\u1161\u11ab\u1100\u1173\u11af", "q\u0323\u0307 \u0958",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "hahahahahahahahahaha", "                                                                x", "\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\ny",
    "antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis", "\u0007\u001b[31mred\u001b[0m\u007f", "\u200bzero\u200dwidth\ufeff", "a\u0301\u0301\u0301\u0301", "\ufffd\ufffd",
    "<|im_start|>user\nHi<|im_end|>\n", "<s>[INST] Hi [/INST]</s>", "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>", "<start_of_turn>user\nHi<end_of_turn>\n",
    "<|endoftext|>", "<|user|>\nHi<|end|>\n<|assistant|>", "<｜begin▁of▁sentence｜>User: Hi", "[CLS] a [SEP] [MASK]", "<fim_prefix>a<fim_suffix>b<fim_middle>", "<|im_end", "<| im_end |>", "<0x0A> <unk> ▁",
]


def main(program, test_data, output):
    folder = pathlib.Path(test_data)
    files = {name: folder / f"vocab/ggml-vocab-{name}.gguf" for name in VOCABULARIES.split()}
    files |= {name: folder / f"models/{name}.gguf" for name in MODELS.split()}
    given = "".join(text + "\0" for text in TEXTS).encode()
    vocabularies = {}
    for name, file in files.items():
        run = lambda mode: subprocess.run([program, file, mode], input=given, stdout=subprocess.PIPE, check=True).stdout.decode()
        ids = lambda mode: [[int(word) for word in line.split()] for line in run(mode).split("\n")[: len(TEXTS)]]
        vocabularies[name] = {"parse": ids("parse"), "plain": ids("plain")}
        assert len(vocabularies[name]["plain"]) == len(TEXTS)
    compact = lambda value: json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    lines = ",\n".join(f"{compact(name)}: {compact(ids)}" for name, ids in vocabularies.items())
    pathlib.Path(output).write_text(f'{{"texts": {compact(TEXTS)},\n"vocabularies": {{\n{lines}\n}}}}\n')


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
