#!/usr/bin/env python3
"""Has a model write instances of many JSON Schemas at temperature 1 and validates every one with `jsonschema`.

    scripts/structured/validate.py AKUNU MODEL [--random N] [--real N] [--tokens N] [--seeds N]

AKUNU is the binary. Every text must be an instance, or have been cut off by its length and say so.
"""

import argparse
import decimal
import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import jsonschema
from generate import schemas
from real import REAL

SLOTS = 8


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    def __init__(self, akunu, model):
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        command = [akunu, "serve", model, "--port", str(port), "--parallel", str(SLOTS), "--ctx", "2048", "--max-queue", "64"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(600):
            try:
                urllib.request.urlopen(self.url + "/health").close()
                return
            except OSError:
                if self.process.poll() is not None:
                    sys.exit("the server did not start")
                time.sleep(0.1)
        sys.exit("the server did not answer")

    def complete(self, schema, seed, tokens):
        prompt = f"A JSON document that follows this schema:\n{json.dumps(schema, ensure_ascii=False)[:600]}\n\n"
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": 1.0, "seed": seed, "guided_json": schema}
        request = urllib.request.Request(self.url + "/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=600) as response:
                choice = json.load(response)["choices"][0]
                return choice["text"], choice["finish_reason"]
        except urllib.error.HTTPError as error:
            return json.load(error)["error"]["message"], "refused"

    def stop(self):
        self.process.terminate()
        self.process.wait()


def is_multiple(validator, divisor, instance, schema):
    """`multipleOf` over the decimals that were written: in binary floats 10.12 is no multiple of 0.01."""
    if validator.is_type(instance, "number") and Fraction(instance) % Fraction(divisor) != 0:
        yield jsonschema.ValidationError(f"{instance} is not a multiple of {divisor}")


def verdict(schema, text, reason):
    """`valid`, `length`, or what is wrong."""
    if reason == "length":
        return "length"
    if reason != "stop":
        return f"{reason}: {text}"
    try:
        value = json.loads(text, parse_float=decimal.Decimal)
    except ValueError as error:
        return f"not JSON ({error}): {text}"
    checker = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
    checker = jsonschema.validators.extend(checker, {"multipleOf": is_multiple})
    # Bounds are the decimals that were written, too.
    schema = json.loads(json.dumps(schema), parse_float=decimal.Decimal)
    errors = list(checker(schema, format_checker=checker.FORMAT_CHECKER).iter_errors(value))
    return "valid" if not errors else f"invalid ({errors[0].message}): {text}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("akunu")
    parser.add_argument("model")
    parser.add_argument("--random", type=int, default=300, help="how many random schemas")
    parser.add_argument("--real", type=int, default=60, help="how many hand-written ones")
    parser.add_argument("--tokens", type=int, default=400, help="most tokens of a text")
    parser.add_argument("--seeds", type=int, default=1, help="texts of each schema")
    arguments = parser.parse_args()
    cases = dict(list(REAL.items())[: arguments.real]) | schemas(arguments.random)
    server = Server(arguments.akunu, arguments.model)
    began = time.time()
    try:
        with ThreadPoolExecutor(SLOTS) as pool:
            asked = [(name, seed) for seed in range(arguments.seeds) for name in cases]
            answers = pool.map(lambda one: server.complete(cases[one[0]], hash_of(one[0]) + one[1], arguments.tokens), asked)
            verdicts = {one: verdict(cases[one[0]], *answer) for one, answer in zip(asked, answers)}
    finally:
        server.stop()
    counts = {what: list(verdicts.values()).count(what) for what in ["valid", "length"]}
    bad = {one: what for one, what in verdicts.items() if what not in counts}
    for (name, seed), what in bad.items():
        print(f"{name}, seed {seed}: {what[:400]}\n    {json.dumps(cases[name], ensure_ascii=False)[:1000]}")
    print(f"{len(verdicts)} texts of {len(cases)} schemas in {time.time() - began:.0f} s: {counts['valid']} valid, {counts['length']} cut off by length, {len(bad)} wrong")
    return 1 if bad else 0


def hash_of(name):
    """The same number for a name every time."""
    return sum(ord(c) * 31**i for i, c in enumerate(name)) % 2**31


if __name__ == "__main__":
    sys.exit(main())
