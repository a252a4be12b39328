"""Perplexities of one model in every form that llama-quantize can make of it.

    perplexity.py MODEL.gguf TEXT FOLDER OUT.json --quantize llama-quantize --peer llama-perplexity
    perplexity.py MODEL.gguf TEXT FOLDER OUT.json --akunu akunu --backend cpu
    perplexity.py MODEL.gguf TEXT FOLDER OUT.json --quantize llama-quantize --peer llama-perplexity --expand --types Q4_0 Q4_1 Q8_0

The model is expanded to F32 and quantised from there; the files stay in FOLDER. Figures are added to OUT.json: run it once for each
engine. Windows of 512 tokens, the first 4 of the text. llama.cpp rounds the activations before each product with quantised weights to
8 bits, so its figures are not exact: with --expand it runs the same weights as F32 instead.
"""

import argparse
import json
import pathlib
import re
import subprocess

TYPES = """F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 IQ4_NL IQ4_XS Q2_K Q3_K_S Q3_K_M Q3_K_L Q4_K_S Q4_K_M Q5_K_S Q5_K_M Q6_K""".split()
CONTEXT = 512
CHUNKS = 4


def quantise(tool, model, folder, kind):
    out = folder / f"{kind}.gguf"
    if not out.exists():
        source = model if kind == "F32" else folder / "F32.gguf"
        part = folder / "part"
        subprocess.run([tool, "--allow-requantize", source, part, kind], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        part.rename(out)
    return out


def expand(tool, file, folder):
    out = folder / "expanded.gguf"
    subprocess.run([tool, "--allow-requantize", file, out, "F32"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return out


def peer(tool, file, text):
    arguments = [tool, "-m", file, "-f", text, "-c", str(CONTEXT), "--chunks", str(CHUNKS)]
    done = subprocess.run(arguments, check=True, capture_output=True, text=True)
    return [float(x) for x in re.search(r"PPL = ([\d.]+) \+/- ([\d.]+)", done.stdout + done.stderr).groups()]


def ours(tool, backend, file, text):
    arguments = [tool, "perplexity", text, "-m", file, "-c", str(CONTEXT), "--chunks", str(CHUNKS), "--backend", backend, "--json"]
    done = json.loads(subprocess.run(arguments, check=True, capture_output=True, text=True).stdout)
    return [round(done["perplexity"], 4), round(done["error"], 4)]


def main():
    parser = argparse.ArgumentParser()
    for name in ["model", "text", "folder", "out"]:
        parser.add_argument(name, type=pathlib.Path)
    for name in ["--quantize", "--peer", "--akunu"]:
        parser.add_argument(name)
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--expand", action="store_true")
    parser.add_argument("--types", nargs="*", default=TYPES)
    given = parser.parse_args()
    given.folder.mkdir(exist_ok=True)
    figures = json.loads(given.out.read_text()) if given.out.exists() else {}
    for kind in given.types:
        file = quantise(given.quantize, given.model, given.folder, kind)
        row = figures.setdefault(kind, {})
        if given.peer and given.expand:
            row["llama.cpp, expanded"] = peer(given.peer, expand(given.quantize, file, given.folder), given.text)
        elif given.peer:
            row["llama.cpp"] = peer(given.peer, file, given.text)
        if given.akunu:
            row[given.backend] = ours(given.akunu, given.backend, file, given.text)
        print(kind, row, flush=True)
        lines = ",\n".join(f'  "{kind}": {json.dumps(figures[kind])}' for kind in TYPES if kind in figures)
        given.out.write_text("{\n" + lines + "\n}\n")


main()
