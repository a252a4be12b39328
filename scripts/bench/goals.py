#!/usr/bin/env python3
"""All goals of the CPU backend beside llama.cpp: runs what each is measured by, and says which are held.

    goals.py measure goals.json --akunu akunu --peer llama-bench --small DIR/smollm2 --large DIR/random-1.1b [--only PART ...]
    goals.py table goals.json ...
    goals.py draw goals.svg "first machine=a.json,b.json" "second machine=c.json"

--small and --large are beginnings of names: of files of some 135M parameters (smollm2-Q4_0.gguf and so on) and of some 1.1B. Both are
asked for in the dtypes below. The peer's llama-batched-bench is looked for beside its llama-bench; --peer-avx2 is one built with AVX2
alone, without which that part is left out. Every test is added to the JSON file when it is done, so a run of all that is cut short goes on
with what is missing; --run tells runs apart (`--run 2`). With each test is written how much of all processors' time went to others
meanwhile, as far as the system knows.

On a machine of many cores `--cores 2,3 4,5 6,7` runs three comparisons at a time, each on cores of its own. They compete for memory.

Parts: files (a prompt and decoding, each file), prompts, depths, sequences, shares, start, one-thread, avx2.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from html import escape
from pathlib import Path
from queue import SimpleQueue
from threading import Lock

SMALL = ["F16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL"]
LARGE = ["Q4_0", "Q8_0", "Q2_K", "Q3_K_M", "Q4_K_M", "Q5_K_M", "Q6_K"]

# The bars: of means over all files and of each file, or of each test alone.
MEAN_AND_LEAST = {"prompt": (2.0, 1.2), "decode": (1.4, 1.0)}
ALONE = {"pp64": 1.5, "pp2048": 1.5, "depth 1024": 2.0, "depth 4096": 3.0, "8 sequences": 2.0, "16 sequences": 2.0}
EACH = {"share": 0.75, "start-up": 1.0, "avx2 prompt": 1.1, "avx2 decode": 1.1}


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
    command.add_argument("--cores", nargs="+", default=[""])
    command = commands.add_parser("table")
    command.set_defaults(do=lambda args: table(load(*args.results)))
    command.add_argument("results", nargs="+")
    command = commands.add_parser("draw")
    command.set_defaults(do=draw)
    command.add_argument("svg")
    command.add_argument("machines", nargs="+")
    args = parser.parse_args()
    args.do(args)


def load(*paths):
    """The results of some files, in the order of the models. A run is in one file, or its parts are in several."""
    found = [result for path in paths for result in json.loads(Path(path).read_text())]
    seen = {(result["run"], result["part"], result["file"], result["name"]) for result in found}
    if len(seen) < len(found):
        raise SystemExit(f"goals.py: {', '.join(paths)} have the same test of the same run twice; --run tells runs apart")
    kinds = {True: LARGE, False: SMALL}
    return sorted(found, key=lambda result: (result["large"], kinds[result["large"]].index(kind_of(result["file"]))))


def kind_of(file):
    return next(kind for kind in [*SMALL, *LARGE] if file.endswith(f"-{kind}"))


def save(path, results):
    """At once or not at all: what was measured is not lost when this is stopped."""
    written = Path(path).with_suffix(".new")
    written.write_text("[\n" + ",\n".join(map(json.dumps, results)) + "\n]\n")
    written.replace(path)


def measure(args):
    results = load(args.results) if Path(args.results).exists() else []
    lock, free = Lock(), SimpleQueue()
    for cores in args.cores:
        free.put(cores)

    def one(part, path, large, name, what):
        cores = free.get()
        try:
            args_here = argparse.Namespace(**vars(args), on=["taskset", "-c", cores] if cores else [])
            before, began = processors(), time.monotonic()
            found = {kind: rounded(numbers) for kind, numbers in what(args_here, str(path), large).items()}
        finally:
            free.put(cores)
        result = {"run": args.run, "part": part, "file": path.stem, "name": name, "stolen": stolen(before, processors())}
        result |= {"large": large, "seconds": round(time.monotonic() - began, 1), "found": found}
        said = ", ".join(f"{kind} {value['value']:.2f}" for kind, value in found.items())
        with lock:
            results.append(result)
            save(args.results, results)
            print(f"run {args.run}, {path.stem}, {name}: {said} ({result['stolen']:.0%} stolen, {result['seconds']} s)", flush=True)

    done = {(old["run"], old["part"], old["file"], old["name"]) for old in results}
    tests = [(part, *test) for part in args.only for test in PARTS[part](args)]
    with ThreadPoolExecutor(len(args.cores)) as pool:
        running = []
        for part, path, large, name, what in tests:
            if not path.exists():
                print(f"no {path}")
            elif (args.run, part, path.stem, name) not in done:
                running.append(pool.submit(one, part, path, large, name, what))
        try:
            for test in running:
                test.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    if results:
        table(load(args.results))


def rounded(numbers):
    return {name: round(number, 4) for name, number in numbers.items()}


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
    return round((after[1] - before[1]) / max(1, after[0] - before[0]), 4)


def bench(args, path, *more, peer=None, env=None, names=()):
    """The ratios of `akunu bench --peer`, under names of their own where there are some."""
    command = [*args.on, args.akunu, "bench", path, "--backend", "cpu", "--peer", peer or args.peer, "-o", "json", *more]
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
    how = ["-t", "2", *(["-p", "128", "-n", "24"] if large else ["-p", "512", "-n", "64"]), "-r", "5"]
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
    command = [*args.on, args.akunu, "profile", path, "--backend", "cpu", "-t", "2", "-p", "0", "--tokens", "64", "--json"]
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
        "akunu": [*args.on, args.akunu, "complete", path, "--backend", "cpu", "-p", text, "-n", "1", "-t", "2"],
        "peer": [*args.on, args.peer, "-m", path, "-p", "8", "-n", "0", "-r", "1", "--no-warmup", "-t", "2"],
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
    return told(value, bar) + ("" if value >= bar else ": **missed**")


def told(value, bar):
    """With one digit more where it is missed by less than is seen otherwise."""
    return f"{value:.2f}" if value >= bar or float(f"{value:.2f}") < bar else f"{math.floor(1000 * value) / 1000:.3f}"


def runs_of(results):
    return sorted({result["run"] for result in results}, key=lambda run: (len(run), run))


def values(results, run, kind, part=None):
    """What each file has of a kind."""
    tests = (r for r in results if r["run"] == run and kind in r["found"] and part in (None, r["part"]))
    return {test["file"]: test["found"][kind] for test in tests}


def table(results):
    """The goals, then what each file has."""
    runs = runs_of(results)
    print("\n| test | goal |" + "".join(f" run {run} |" for run in runs) + "\n|---|---|" + "---|" * len(runs))
    for part, who in [("files", "two threads"), ("one-thread", "one thread")]:
        for kind, (mean, least) in MEAN_AND_LEAST.items():
            cells = [of_all(values(results, run, kind, part), mean, least) for run in runs]
            print(f"| {kind}, {who}: mean, each | {mean}, {least} | " + " | ".join(cells) + " |")
    for kind, bar in ALONE.items():
        for file in dict.fromkeys(result["file"] for result in results if kind in result["found"]):
            cells = [alone(values(results, run, kind).get(file), bar) for run in runs]
            print(f"| {kind}, {file} | {bar} | " + " | ".join(cells) + " |")
    for kind, bar in EACH.items():
        cells = [of_each(values(results, run, kind), bar) for run in runs]
        print(f"| {kind}, each | {bar} | " + " | ".join(cells) + " |")
    most = max((result["stolen"] for result in results), default=0)
    print(f"\nStolen: at most {most:.0%} of a test's time.")
    for part, before in [("files", ""), ("one-thread", ""), ("avx2", "avx2 ")]:
        speeds([result for result in results if result["part"] == part], part, before)
    starts(results)


def of_all(found, mean, least):
    if not found:
        return "–"
    ratios = {file: value["value"] for file, value in found.items()}
    middle = math.exp(statistics.mean(map(math.log, ratios.values())))
    worst = min(ratios, key=ratios.get)
    return f"{verdict(middle, mean)}, least {verdict(ratios[worst], least)} ({worst}), {len(ratios)} files"


def alone(found, bar):
    return f"{verdict(found['value'], bar)} ({found['from']:.2f} to {found['to']:.2f})" if found else "–"


def of_each(found, bar):
    if not found:
        return "–"
    ratios = sorted((value["value"], file) for file, value in found.items())
    missed = [f"{told(ratio, bar)} {file}" for ratio, file in ratios if ratio < bar]
    if missed:
        return f"**missed** by {len(missed)} of {len(ratios)}: " + ", ".join(missed)
    return f"all {len(ratios)}, least {ratios[0][0]:.2f} ({ratios[0][1]})"


def speeds(results, part, before):
    """Of each file both speeds, the medians of all runs, and the ratio of each run."""
    runs = runs_of(results)
    if not runs:
        return
    print(f"\n{part}, tokens per second:\n")
    print("| file | prompt: akunu | peer | ratios | decode: akunu | peer | ratios |\n|---|---:|---:|---|---:|---:|---|")
    for file in dict.fromkeys(result["file"] for result in results):
        line = f"| {file} |"
        for kind in MEAN_AND_LEAST:
            found = [value[file] for run in runs if file in (value := values(results, run, before + kind))]
            for who in ("akunu", "peer"):
                line += f" {statistics.median(value[who] for value in found):.4g} |"
            line += " " + ", ".join(f"{value['value']:.2f}" for value in found) + " |"
        print(line)


def starts(results):
    """Of each file what share of the bandwidth it reaches in each run, and how long both programs take to start."""
    found = [result for result in results if result["part"] in ("shares", "start")]
    if not found:
        return
    print("\n| file | share of read bandwidth, % | start-up, seconds: akunu, peer | ratios |\n|---|---|---|---|")
    for file in dict.fromkeys(result["file"] for result in found):
        of = {kind: [v[file] for run in runs_of(found) if file in (v := values(found, run, kind))] for kind in ("share", "start-up")}
        shares = ", ".join(f"{100 * value['value']:.0f}" for value in of["share"])
        seconds = "; ".join(f"{value['akunu']:.2f}, {value['peer']:.2f}" for value in of["start-up"])
        ratios = ", ".join(f"{value['value']:.2f}" for value in of["start-up"])
        print(f"| {file} | {shares} | {seconds} | {ratios} |")


# What is drawn: a title, the part and the kind of each.
DRAWN = [
    ("prompt of 512 tokens", "files", "prompt"),
    ("decode", "files", "decode"),
    ("other prompts, depths and sequences", None, None),
    ("start-up", "start", "start-up"),
    ("one thread: prompt", "one-thread", "prompt"),
    ("one thread: decode", "one-thread", "decode"),
    ("AVX2 only: prompt", "avx2", "avx2 prompt"),
    ("AVX2 only: decode", "avx2", "avx2 decode"),
]
# The goals of each file.
BARS = {kind: least for kind, (_, least) in MEAN_AND_LEAST.items()} | ALONE | EACH
COLOURS = ["#3a6ea5", "#d0752b", "#5b9f53"]
ROW, LEFT, WIDTH = 15, 170, 560
LEAST, MOST = 0.5, 20


def draw(args):
    """The medians of all runs and how far these are apart, of each test, on a scale of logarithms."""
    machines = [tuple(machine.split("=", 1)) for machine in args.machines]
    if len(machines) > len(COLOURS):
        raise SystemExit(f"goals.py: at most {len(COLOURS)} machines are drawn")
    found = [(name, load(*paths.split(","))) for name, paths in machines]

    def x(ratio):
        return LEFT + WIDTH * math.log(min(max(ratio, LEAST), MOST) / LEAST) / math.log(MOST / LEAST)

    lines, y = [], ROW
    for (name, _), colour in zip(found, COLOURS, strict=False):
        lines.append(f'<circle cx="{LEFT + 5}" cy="{y}" r="4" fill="{colour}"/><text x="{LEFT + 14}" y="{y + 4}">{escape(name)}</text>')
        y += ROW
    text = "Speed as a multiple of llama.cpp's: the median of all runs, and how far they are apart. Black: the goal of each file."
    lines.append(f'<text x="{LEFT}" y="{y + 4}">{text}</text>')
    for title, part, kind in DRAWN:
        rows = list(rows_of(found, part, kind))
        if not rows:
            continue
        y += 2 * ROW
        lines.append(f'<text x="{LEFT}" y="{y}" font-weight="bold">{escape(title)}</text>')
        top = y + 5
        y += ROW
        for label, bar, ratios in rows:
            lines.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{escape(label)}</text>')
            lines.append(f'<path d="M{x(bar):.1f} {y - 5}v10" stroke="black" stroke-width="1.5"/>')
            for i, (colour, of_machine) in enumerate(zip(COLOURS, ratios, strict=False)):
                if of_machine:
                    at = y + 3 * (i - (len(ratios) - 1) / 2)
                    lines.append(f'<path d="M{x(min(of_machine)):.1f} {at}H{x(max(of_machine)):.1f}" stroke="{colour}" stroke-width="2"/>')
                    lines.append(f'<circle cx="{x(statistics.median(of_machine)):.1f}" cy="{at}" r="3" fill="{colour}"/>')
            y += ROW
        for ratio in (0.5, 1, 2, 5, 10, 20):
            lines.insert(0, f'<path d="M{x(ratio):.1f} {top}V{y - 5}" stroke="{"#c33" if ratio == 1 else "#ddd"}"/>')
            lines.append(f'<text x="{x(ratio):.1f}" y="{y + 6}" text-anchor="middle" fill="#666">{ratio}×</text>')
        y += ROW // 2
    begin = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 30} {y + ROW}" font-family="sans-serif" font-size="11">'
    lines = [begin, '<rect width="100%" height="100%" fill="white"/>', *lines, "</svg>"]
    Path(args.svg).write_text("\n".join(lines) + "\n")


def rows_of(machines, part, kind):
    """What is drawn in a line: its label, the goal, and the ratios of all runs on each machine."""
    for test in [kind] if kind else ALONE:
        # Machines may have other files of one size and dtype.
        found = [{label: [] for label in labels(machines, test, part)} for _ in machines]
        for of_machine, (_, results) in zip(found, machines, strict=True):
            for result in results:
                if test in result["found"] and part in (None, result["part"]):
                    of_machine[label_of(result)].append(result["found"][test]["value"])
        for label in found[0]:
            yield (f"{label} {test}" if part is None else label), BARS[test], [of_machine[label] for of_machine in found]


def labels(machines, test, part):
    all_results = (result for _, results in machines for result in results)
    return dict.fromkeys(label_of(r) for r in all_results if test in r["found"] and part in (None, r["part"]))


def label_of(result):
    return f"{'1.1B' if result['large'] else '135M'} {kind_of(result['file'])}"


if __name__ == "__main__":
    main()
