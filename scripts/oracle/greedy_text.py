"""Greedy continuations by llama.cpp, with the margin between the two most likely tokens at each step.

    llama-quantize --allow-requantize MODEL.gguf F32.gguf F32
    greedy_text.py F32.gguf OUT.json

The weights are expanded to F32 first: llama.cpp rounds activations to eight bits where weights are quantised, which moves
the logits of a small model by as much as half a unit. Needs the package xllamacpp.
"""

import json
import sys

import xllamacpp

PROMPTS = [
    "The capital of France is",
    "1, 2, 3, 4, 5,",
    "def fibonacci(n):\n",
    "Once upon a time, in a small village by the sea,",
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
    params.n_ctx = 512
    params.n_parallel = 1
    params.warmup = False
    server = xllamacpp.Server(params)
    cases = [continuation(server, prompt) for prompt in PROMPTS]
    with open(out, "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


main(*sys.argv[1:])
