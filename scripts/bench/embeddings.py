#!/usr/bin/env python3
"""Time to embed texts of mixed length with `akunu embed`, beside sentence-transformers and llama.cpp, each in turn.

    scripts/bench/embeddings.py AKUNU MODEL_DIRECTORY MODEL.gguf TEXT [--texts 1000] [--threads 2] [--rounds 3] [--beside NAME ...]
                               [--llama-server COMMAND]

Needs: pip install sentence-transformers xllamacpp numpy. MODEL_DIRECTORY and MODEL.gguf are the same model, in F32. The texts are pieces of TEXT
of 4 to 100 words. akunu's time is of the whole command, its start and the loading of the model included; the others' is of embedding alone,
with the model loaded and warm. sentence-transformers has batches of 32 (its default); llama.cpp (xllamacpp's server, without HTTP; or the llama-server
of --llama-server, over HTTP) gets 100 texts a request and several sequences at once. Prints the median of the rounds and the least cosine between akunu's vectors and the others'.
"""

import argparse
import json
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np

SENTENCE_TRANSFORMERS = """
import sys, time
import numpy as np, torch
from sentence_transformers import SentenceTransformer
model, texts, out, threads = sys.argv[1], open(sys.argv[2]).read().splitlines(), sys.argv[3], int(sys.argv[4])
torch.set_num_threads(threads)
model = SentenceTransformer(model, device="cpu")
model.encode(texts[:64], show_progress_bar=False)
began = time.perf_counter()
vectors = model.encode(texts, show_progress_bar=False, normalize_embeddings=True)
print("seconds", time.perf_counter() - began)
np.save(out, vectors)
"""

LLAMA_CPP = """
import sys, time
import numpy as np, xllamacpp
model, texts, out, threads = sys.argv[1], open(sys.argv[2]).read().splitlines(), sys.argv[3], int(sys.argv[4])
params = xllamacpp.CommonParams()
params.model.path = model
params.embedding = True
params.n_parallel = 16
params.n_ctx = 512 * params.n_parallel
params.n_batch = params.n_ubatch = 512
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
params.verbosity = -1
server = xllamacpp.Server(params)
def embed(texts):
    answer = server.handle_embeddings({"input": texts})
    return [entry["embedding"] for entry in sorted(answer["data"], key=lambda entry: entry["index"])]
embed(texts[:32])
began = time.perf_counter()
vectors = []
for i in range(0, len(texts), 100):
    vectors += embed(texts[i : i + 100])
print("seconds", time.perf_counter() - began)
np.save(out, np.array(vectors, np.float32))
"""


def child(source: str, model: Path, texts: Path, out: Path, threads: int) -> float:
    command = [sys.executable, "-c", source, str(model), str(texts), str(out), str(threads)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float([line.split()[1] for line in done.stdout.splitlines() if line.startswith("seconds")][-1])


def llama_server(command: str, model: Path, texts: Path, out: Path, threads: int) -> float:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    sizes = ["-np", "16", "-c", "8192", "-b", "512", "-ub", "512", "-t", str(threads)]
    arguments = ["-m", str(model), "--embedding", "--port", str(port), *sizes]
    server = subprocess.Popen([command, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"

    def embed(pieces: list[str]) -> list[list[float]]:
        request = urllib.request.Request(
            url + "/v1/embeddings", json.dumps({"input": pieces}).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=300) as answer:
            return [entry["embedding"] for entry in sorted(json.load(answer)["data"], key=lambda entry: entry["index"])]

    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(url + "/health", timeout=5).close()
                break
            except (urllib.error.URLError, ConnectionError):
                if time.monotonic() > deadline or server.poll() is not None:
                    sys.exit(f"{command} does not answer")
                time.sleep(0.1)
        pieces = texts.read_text().splitlines()
        embed(pieces[:32])
        began = time.perf_counter()
        vectors = [vector for i in range(0, len(pieces), 100) for vector in embed(pieces[i : i + 100])]
        seconds = time.perf_counter() - began
    finally:
        server.terminate()
        server.wait()
    np.save(out, np.array(vectors, np.float32))
    return seconds


def akunu(command: str, model: Path, texts: Path, out: Path, threads: int) -> float:
    began = time.perf_counter()
    arguments = ["embed", "-m", str(model), "-t", str(threads), "--input", str(texts), "--output", "npy"]
    with open(out, "wb") as file:
        subprocess.run([command, *arguments], check=True, stdout=file)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("akunu")
    parser.add_argument("directory", type=Path)
    parser.add_argument("gguf", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beside", action="append", metavar="NAME", help="only this one: sentence-transformers, llama.cpp")
    parser.add_argument("--llama-server", metavar="COMMAND", help="a llama-server to take for llama.cpp")
    options = parser.parse_args()
    words = options.text.read_text(encoding="utf-8").split()
    numbers = random.Random(1)
    pieces = []
    for _ in range(options.texts):
        at = numbers.randrange(len(words) - 100)
        pieces.append(" ".join(words[at : at + numbers.randint(4, 100)]))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        texts = folder / "texts"
        texts.write_text("\n".join(pieces) + "\n")
        contenders = {
            "akunu, SafeTensors": lambda out: akunu(options.akunu, options.directory, texts, out, options.threads),
            "akunu, GGUF": lambda out: akunu(options.akunu, options.gguf, texts, out, options.threads),
            "sentence-transformers": lambda out: child(SENTENCE_TRANSFORMERS, options.directory, texts, out, options.threads),
            "llama.cpp": lambda out: llama_server(options.llama_server, options.gguf, texts, out, options.threads)
            if options.llama_server
            else child(LLAMA_CPP, options.gguf, texts, out, options.threads),
        }
        if options.beside:
            contenders = {name: run for name, run in contenders.items() if name in ("akunu, SafeTensors", *options.beside)}
        times = {name: [] for name in contenders}
        for _ in range(options.rounds):
            for i, (name, run) in enumerate(contenders.items()):
                times[name].append(run(folder / f"{i}.npy"))
        vectors = [np.load(folder / f"{i}.npy") for i in range(len(contenders))]
        best = statistics.median(times["akunu, SafeTensors"])
        print(f"{options.texts} texts of 4 to 100 words, {options.threads} threads, {options.rounds} rounds\n")
        print("| | s, median | least and most | akunu is faster | least cosine |")
        print("|---|---|---|---|---|")
        for name, own in zip(contenders, vectors):
            median = statistics.median(times[name])
            cosine = float((vectors[0] * own).sum(1).min())
            print(f"| {name} | {median:.2f} | {min(times[name]):.2f}, {max(times[name]):.2f} | {median / best:.2f} | {cosine:.6f} |")


if __name__ == "__main__":
    main()
