#!/usr/bin/env python3
"""All goals of the CPU backend beside llama.cpp: runs what each is measured by, and says which are held.

    goals.py measure goals.json --akunu akunu --peer llama-bench --small DIR/smollm2 --large DIR/random-1.1b [--only PART ...]
    goals.py table goals.json

--small and --large are beginnings of names: of files of some 135M parameters (smollm2-Q4_0.gguf and so on) and of some 1.1B. Both are
asked for in the dtypes below. The peer's llama-batched-bench is looked for beside its llama-bench; --peer-avx2 is one built with AVX2
alone, without which that part is left out. Every test is added to the JSON file when it is done, so a run of all that is cut short goes on
with what is missing; --run tells runs apart (`--run 2`). Beside a result stands how much of the processors' time went to others
meanwhile, as far as the system knows, where it was a twentieth and more: such ratios are to be read with care.

Parts: files (a prompt and decoding, each file), prompts, depths, sequences, shares, start, one-thread, avx2.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import time
from pathlib import Path

SMALL = ["F16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL"]
LARGE = ["Q4_0", "Q8_0", "Q2_K", "Q3_K_M", "Q4_K_M", "Q5_K_M", "Q6_K"]

# Of each goal what is measured, what is compared (mean and least of all files, or each), and the bar.
MEAN_AND_LEAST = {"decode": (1.4, 1.0), "prompt": (2.0, 1.2)}
EACH = {
    "pp64": 1.5, "pp2048": 1.5, "depth 1024": 2.0, "depth 4096": 3.0, "8 sequences": 2.0, "16 sequences": 2.0,
    "start-up": 1.0, "share": 0.75, "avx2 decode": 1.1, "avx2 prompt": 1.1,
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("measure")
    command.set_defaults(do=measure)
    command.add_argument("results")
    command.add_argument("--akunu", required=True)
    command.add_argument("--peer", required=True)
    command.add_argument("--peer-avx2")
    command.add_argument("--small", required=True)
    command.add_argument("--large", required=True)
    command.add_argument("--run", default="1")
    command.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    command = commands.add_parser("table")
    command.set_defaults(do=lambda args: table(load(args.results)))
    command.add_argument("results")
    args = parser.parse_args()
    args.do(args)


def load(path):
    return json.loads(Path(path).read_text()) if Path(path).exists() else []


def save(path, results):
    """At once or not at all: what was measured is not lost when this is stopped."""
    written = Path(path).with_suffix(".new")
    written.write_text(json.dumps(results, indent=1) + "\n")
    written.replace(path)


def measure(args):
    results = load(args.results)
    for part in args.only:
        for path, large, name, what in PARTS[part](args):
            if not path.exists():
                print(f"no {path}")
            done = any((old["run"], old["part"], old["file"], old["name"]) == (args.run, part, path.stem, name) for old in results)
            if done or not path.exists():
                continue
            before, began = processors(), time.monotonic()
            found = what(args, str(path), large)
            result = {"run": args.run, "part": part, "file": path.stem, "name": name, "stolen": stolen(before, processors())}
            result |= {"seconds": round(time.monotonic() - began, 1), "found": found}
            results.append(result)
            save(args.results, results)
            said = ", ".join(f"{kind} {value['value']:.2f}" for kind, value in found.items())
            print(f"run {args.run}, {path.stem}, {name}: {said} ({result['stolen']:.0%} stolen, {result['seconds']} s)", flush=True)
    table(results)


def files(args):
    """Each file, and whether it is a large one."""
    for names, kinds, large in [(args.small, SMALL, False), (args.large, LARGE, True)]:
        yield from ((Path(f"{names}-{kind}.gguf"), large) for kind in kinds)


def processors():
    """Time of all processors, and what others had of it; nothing where the system does not say."""
    try:
        counts = [int(x) for x in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except OSError:
        return 0, 0
    return sum(counts), counts[7]


def stolen(before, after):
    return (after[1] - before[1]) / max(1, after[0] - before[0])


def bench(args, path, *more, peer=None, env=None, names=()):
    """The ratios of `akunu bench --peer`, under names of their own where there are some."""
    command = [args.akunu, "bench", path, "--backend", "cpu", "--peer", peer or args.peer, "-o", "json", *more]
    tests = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, env=env).stdout)
    names = names or ["prompt" if test["n_prompt"] else "decode" for test in tests]
    return {
        name: {"value": test["ratio"], "from": test["ratio_min"], "to": test["ratio_max"], "akunu": test["median_ts"], "peer": test["peer_median_ts"]}
        for name, test in zip(names, tests, strict=True)
    }  # fmt: skip


def both(args, path, large):
    return bench(args, path, "-t", "2", "-p", "512", "-n", "24" if large else "64", "-r", "5")


def one_thread(args, path, large):
    return bench(args, path, "-t", "1", *(["-p", "128", "-n", "24"] if large else ["-p", "512", "-n", "64"]), "-r", "5")


def avx2(args, path, large):
    how = ["-t", "2", "-p", "512", "-n", "24" if large else "64", "-r", "5"]
    names = ["avx2 prompt", "avx2 decode"]
    return bench(args, path, *how, peer=args.peer_avx2, env=os.environ | {"AKUNU_ISA": "avx2"}, names=names)


def prompts(length):
    return lambda args, path, large: bench(args, path, "-t", "2", "-p", str(length), "-n", "0", "-r", "5", names=[f"pp{length}"])


def depth(length):
    how = ["-t", "2", "-p", "0", "-n", "32", "-d", str(length), "-r", "5"]
    return lambda args, path, large: bench(args, path, *how, names=[f"depth {length}"])


def sequences(args, path, large):
    how = ["-n", "12", "-r", "5"] if large else ["-n", "24", "-r", "7"]
    names = ["8 sequences", "16 sequences"]
    return bench(args, path, "-t", "2", "-p", "0", "--sequences", "8,16", *how, names=names)


def share(args, path, large):
    command = [args.akunu, "profile", path, "--backend", "cpu", "-t", "2", "-p", "0", "--tokens", "64", "--json"]
    shares, read = [], []
    for _ in range(5):
        parts = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["parts"]
        tokens = next(part for part in parts if part["part"] == "tokens")
        shares.append(tokens["share_of_read"])
        read.append(tokens["gb_s"])
    value, gb_s = statistics.median(shares), statistics.median(read)
    return {"share": {"value": value, "from": min(shares), "to": max(shares), "gb_s": gb_s}}


def start(args, path, large):
    """Seconds from the command to the end of 8 prompt tokens, of files that are in memory: the first run does not count."""
    # Eight tokens, with the one that begins a text where there is such a one.
    text = "onet" if large else "The capital of France is a city in"
    commands = {
        "akunu": [args.akunu, "complete", path, "--backend", "cpu", "-p", text, "-n", "1", "-t", "2"],
        "peer": [args.peer, "-m", path, "-p", "8", "-n", "0", "-r", "1", "--no-warmup", "-t", "2"],
    }
    seconds = {who: [] for who in commands}
    for turn in range(8):
        for who, command in sorted(commands.items(), reverse=turn % 2 == 1):
            began = time.monotonic()
            subprocess.run(command, check=True, capture_output=True)
            seconds[who].append(time.monotonic() - began)
    akunu, peer = (statistics.median(all[1:]) for all in seconds.values())
    return {"start-up": {"value": peer / akunu, "akunu": akunu, "peer": peer}}


def of(kind, large):
    """One of the files of a part that looks at few."""
    return lambda args: Path(f"{args.large if large else args.small}-{kind}.gguf")


def some(*tests):
    return lambda args: [(path(args), large, name, what) for path, large, name, what in tests]


PARTS = {
    "files": lambda args: [(path, large, "two threads", both) for path, large in files(args)],
    "prompts": some(
        (of("Q4_1", False), False, "pp64", prompts(64)),
        (of("Q4_0", True), True, "pp64", prompts(64)),
        (of("Q4_1", False), False, "pp2048", prompts(2048)),
    ),
    "depths": some((of("Q4_1", False), False, "depth 1024", depth(1024)), (of("Q4_1", False), False, "depth 4096", depth(4096))),
    "sequences": some((of("Q4_0", False), False, "sequences", sequences), (of("Q4_0", True), True, "sequences", sequences)),
    "shares": lambda args: [(path, large, "share", share) for path, large in files(args)],
    "start": lambda args: [(path, large, "start-up", start) for path, large in files(args)],
    "one-thread": lambda args: [(path, large, "one thread", one_thread) for path, large in files(args)],
    "avx2": lambda args: [(path, large, "avx2", avx2) for path, large in files(args) if args.peer_avx2],
}


def verdict(value, bar):
    return f"{value:.2f}" if value >= bar else f"{value:.2f}: **missed**"


def table(results):
    runs = sorted({result["run"] for result in results}, key=lambda run: (len(run), run))
    print("\n| test | goal |" + "".join(f" run {run} |" for run in runs) + "\n|---|---|" + "---|" * len(runs))
    for part, who in [("files", "two threads"), ("one-thread", "one thread")]:
        for kind, (mean, least) in MEAN_AND_LEAST.items():
            cells = []
            for run in runs:
                tests = [r for r in results if r["run"] == run and r["part"] == part]
                found = {r["file"]: r["found"][kind]["value"] for r in tests}
                if not found:
                    cells.append("–")
                    continue
                middle = math.exp(sum(map(math.log, found.values())) / len(found))
                worst = min(found, key=found.get)
                most = max(r["stolen"] for r in tests)
                said = f"{verdict(middle, mean)}, least {verdict(found[worst], least)} ({worst}), {len(found)} files"
                cells.append(said + of_time(most, "at most "))
            print(f"| {kind}, {who}, mean and least | {mean}, {least} | " + " | ".join(cells) + " |")
    for kind, bar in EACH.items():
        named = dict.fromkeys(r["file"] for r in results if kind in r["found"])
        if not named:
            print(f"| {kind} | {bar} |" + " – |" * len(runs))
        for file in named:
            cells = []
            for run in runs:
                found = [r for r in results if r["run"] == run and r["file"] == file and kind in r["found"]]
                cells.append("; ".join(cell(r["found"][kind], bar, r["stolen"]) for r in found) or "–")
            print(f"| {kind}, {file} | {bar} | " + " | ".join(cells) + " |")


def cell(found, bar, stolen):
    spread = f" ({found['from']:.2f} to {found['to']:.2f})" if "from" in found else ""
    return verdict(found["value"], bar) + spread + of_time(stolen)


def of_time(stolen, most=""):
    return f", {most}{stolen:.0%} stolen" if stolen >= 0.05 else ""


if __name__ == "__main__":
    main()
