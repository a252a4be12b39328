#!/usr/bin/env python3
"""Two or more builds of the CPU crate's example program in turn, and how much faster each is than the first.

    cargo build --release -p akunu-cpu --example bench
    cp target/release/examples/bench before
    scripts/bench/turns.py -r 12 before target/release/examples/bench -- model.gguf 2 0 24 9 16

What follows `--` are the arguments of the program. Machines that others use change their speed by the minute, so every run is
compared with its neighbour: the ratio is the median over all pairs. Steps of a kind repeat better than the whole: --op attend
compares the milliseconds of those.
"""

import argparse
import re
import statistics
import subprocess
import sys


def main():
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    arguments, program = sys.argv[1:at], sys.argv[at + 1 :]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", nargs="+", metavar="BUILD")
    parser.add_argument("-r", "--repetitions", type=int, default=10, help="runs of each build")
    parser.add_argument("--op", action="append", default=[], help="a kind of step whose time to compare instead of speeds")
    args = parser.parse_args(arguments)
    if not program:
        parser.error("no arguments for the program: put them behind --")
    found = [[] for _ in args.builds]
    for turn in range(args.repetitions):
        # The first in one turn is the last in the next: none always runs behind the same other one.
        order = range(len(args.builds))
        for build in order if turn % 2 == 0 else reversed(order):
            found[build].append(run(args.builds[build], program, args.op))
    for build, runs in zip(args.builds, found):
        for what in runs[0]:
            values = [run[what] for run in runs]
            ratio = statistics.median(run[what] / first[what] for run, first in zip(runs, found[0]))
            spread = f"{min(values):.1f} to {max(values):.1f}"
            print(f"{build}: {what} {statistics.median(values):.1f} ({spread}), {ratio:.3f} of the first")


def run(build, arguments, ops):
    """Tokens per second of each test, or the milliseconds of some kinds of steps in the last round."""
    text = subprocess.run([build, *arguments], check=True, capture_output=True, text=True).stdout
    if not ops:
        return {what: float(speed) for what, speed in re.findall(r"^(\w+): median ([\d.]+)", text, re.M)}
    times = re.findall(r"^ *([\d.]+) ms  (\S+)", text, re.M)
    missing = set(ops) - {kind for _, kind in times}
    if missing:
        sys.exit(f"turns.py: no steps of kind {', '.join(missing)}; there are {', '.join(sorted({kind for _, kind in times}))}")
    return {op: sum(float(time) for time, kind in times if kind == op) for op in ops}


if __name__ == "__main__":
    main()
