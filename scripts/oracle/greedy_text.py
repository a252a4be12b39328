"""Greedy continuations by llama.cpp, with the margin between the two most likely tokens at each step.

    llama-quantize --allow-requantize MODEL.gguf F32.gguf F32
    greedy_text.py F32.gguf OUT.json

The weights are expanded to F32 first: llama.cpp rounds activations to eight bits where weights are quantised, which moves
the logits of a small model by as much as half a unit. Needs the package xllamacpp.
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import xllamacpp

PROMPTS = [
    "The capital of France is",
    "1, 2, 3, 4, 5,",
    "def fibonacci(n):\n",
    "Once upon a time, in a small village by the sea,",
    "Water boils at a temperature of",
    "The three primary colours are",
    "Dear Sir or Madam,\n\nI am writing to",
    "In 1969, the first people",
    "To make bread, you need flour,",
    "Q: What is the largest planet of the solar system?\nA:",
    "<html>\n<head>\n<title>",
    "SELECT name, age FROM people WHERE",
    "Die Hauptstadt von Deutschland ist",
    "The opposite of hot is cold. The opposite of up is",
    "import numpy as np\n\ndef mean(values):\n    ",
    "Call me Ishmael. Some years ago",
    "Ingredients:\n- 2 eggs\n- 100 g sugar\n-",
    "If it rains tomorrow, we will",
    "The quick brown fox",
    "Translate to French: Good morning, my friend.",
]
TOKENS = 64


def continuation(server, prompt):
    request = {"prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "logprobs": 2, "cache_prompt": False}
    answer = server.handle_completions(request)
    answer = json.loads(answer) if isinstance(answer, str) else answer
    steps = answer["choices"][0]["logprobs"]["content"]
    best = [[top["logprob"] for top in step["top_logprobs"]] for step in steps]
    return {
        "prompt": prompt,
        "text": answer["choices"][0]["text"],
        "tokens": [step["id"] for step in steps],
        "margins": [round(first - second, 4) for first, second in best],
    }


def main(model, out):
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_ctx = 256 * len(PROMPTS)
    # Side by side, so that weights are read once for all.
    params.n_parallel = len(PROMPTS)
    # Threads that wait for each other are slow on a machine that has other work.
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.warmup = False
    server = xllamacpp.Server(params)
    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        cases = list(pool.map(lambda prompt: continuation(server, prompt), PROMPTS))
    with open(out, "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


main(*sys.argv[1:])
