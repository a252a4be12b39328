#!/usr/bin/env python3
"""Speed of other models beside llama.cpp than those of goals.py: a table of `akunu bench --peer`.

measure: runs the tests of some models, adds them to a JSON file, so that a long measurement can be done in pieces, and
prints the table of all that is in it.
    compare.py measure results.json --akunu akunu --peer llama-bench -p 512 -n 128 model.gguf ...
table: prints the results as a Markdown table, a line for each model, with the geometric means of the ratios below.
    compare.py table results.json
"""

import argparse
import json
import math
import subprocess
from pathlib import Path


def measure(args):
    path = Path(args.results)
    results = json.loads(path.read_text()) if path.exists() else []
    for model in args.models:
        command = [args.akunu, "bench", model, "--peer", args.peer, "-o", "json"]
        command += ["-t", args.threads, "-p", args.prompt, "-n", args.generate, "-d", args.depth, "-r", args.repetitions]
        command += ["--sequences", args.sequences]
        found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        for test in found:
            test["name"] = Path(model).stem
            results = [old for old in results if key(old) != key(test)] + [test]
        path.write_text(json.dumps(results, indent=1) + "\n")
    table(args)


def key(test):
    return test["name"], kind(test), test["n_threads"]


def kind(test):
    what = f"pp{test['n_prompt']}" if test["n_prompt"] else f"tg{test['n_gen']}"
    sequences = test.get("n_sequences", 1)
    what += f" x{sequences}" if sequences > 1 else ""
    return what + (f" @ {test['n_depth']}" if test["n_depth"] else "")


def table(args):
    tests = json.loads(Path(args.results).read_text())
    kinds = list(dict.fromkeys(kind(test) for test in tests))
    head = "".join(f" {what}: akunu | peer | ratio | of neighbouring runs |" for what in kinds)
    print(f"| model |{head}\n|---|" + "---:|---:|---:|---|" * len(kinds))
    for name in dict.fromkeys((test["name"], test["n_threads"]) for test in tests):
        found = {kind(test): test for test in tests if (test["name"], test["n_threads"]) == name}
        print(f"| {name[0]} |" + "".join(cells(found.get(what)) for what in kinds))
    for what in kinds:
        ratios = {test["name"]: test["ratio"] for test in tests if kind(test) == what}
        mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
        least = min(ratios, key=ratios.get)
        print(f"\n{what}: geometric mean {mean:.2f} of {len(ratios)}, the least {ratios[least]:.2f} ({least})")


def cells(test):
    if test is None:
        return " | | | |"
    speeds = f" {test['median_ts']:.4g} | {test['peer_median_ts']:.4g} | {test['ratio']:.2f} |"
    return f"{speeds} {test['ratio_min']:.2f} to {test['ratio_max']:.2f} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("measure")
    command.set_defaults(run=measure)
    command.add_argument("results")
    command.add_argument("models", nargs="+")
    command.add_argument("--akunu", default="akunu")
    command.add_argument("--peer", default="llama-bench")
    command.add_argument("-t", "--threads", default="2")
    command.add_argument("-p", "--prompt", default="512")
    command.add_argument("-n", "--generate", default="128")
    command.add_argument("-d", "--depth", default="0")
    command.add_argument("-r", "--repetitions", default="5")
    command.add_argument("--sequences", default="1")
    command = commands.add_parser("table")
    command.set_defaults(run=table)
    command.add_argument("results")
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
