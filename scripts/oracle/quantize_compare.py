#!/usr/bin/env python3
"""Quantises models with llama.cpp and with akunu and compares the files: size, dtypes, error, time.

    quantize_compare.py --llama-quantize PATH --akunu "PATH quantize" MODEL.gguf ... [--recipes Q4_K_M,Q8_0] [--threads N]

MODEL is F32, F16 or BF16; one that is quantised is first turned into F16 by llama.cpp, or with `--requantize` given to
both as it is. With `--again` both are given what llama.cpp made of it by the same recipe, decoded to F32: weights that lie on
the recipe's own grid. `--random FOLDER` adds a llama model of random weights with 512 columns, which the K-quants take without falling back to other dtypes.

Per model and recipe one row of a Markdown table: file size of both, tensors whose dtype differs, tensors whose bytes
differ, the ratio of akunu's round-trip error (RMSE against the input) to llama.cpp's over all tensors that differ, the
worst tensor's, and both times. Ends with exit code 1 if a size or dtype differs or a tensor's error is more than 2% above
llama.cpp's. Q2_K_S, which llama.cpp refuses to write without an importance matrix, is compared by dtype alone.
"""

import argparse
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time

import numpy as np
from gguf import GGUFReader, GGUFWriter, quants

from quantize_recipes import RECIPES, dry_run

FLOATS = {"F32", "F16", "BF16"}
SLICE = 1 << 22  # values dequantised at a time


def random_model(path):
    """A llama model with weights as training leaves them: normal, rows and columns of different size, a few outliers."""
    rng = np.random.default_rng(0)
    layers, width, hidden, vocabulary = 16, 512, 1024, 2048
    writer = GGUFWriter(path, "llama")
    writer.add_block_count(layers)
    writer.add_context_length(512)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(hidden)
    writer.add_head_count(8)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)

    def add(name, rows, columns):
        spread = np.exp(0.3 * rng.standard_normal((rows, 1))) * np.exp(0.3 * rng.standard_normal((1, columns)))
        weights = 0.02 * spread * rng.standard_normal((rows, columns))
        outliers = rng.random((rows, columns)) < 1e-4
        writer.add_tensor(name, np.where(outliers, 10 * weights, weights).astype(np.float32))

    add("token_embd.weight", vocabulary, width)
    add("output.weight", vocabulary, width)
    writer.add_tensor("output_norm.weight", np.ones(width, np.float32))
    for layer in range(layers):
        for name, rows, columns in [
            ("attn_q", width, width), ("attn_k", width // 4, width), ("attn_v", width // 4, width),
            ("attn_output", width, width), ("ffn_gate", hidden, width), ("ffn_up", hidden, width),
            ("ffn_down", width, hidden),
        ]:  # fmt: skip
            add(f"blk.{layer}.{name}.weight", rows, columns)
        for name in ["attn_norm", "ffn_norm"]:
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(width, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def run(command):
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    return done, time.perf_counter() - start


def tensors(path):
    return {tensor.name: tensor for tensor in GGUFReader(path).tensors}



def squared_errors(source, *others):
    """Sums over the tensor of the squared differences between `source` and each of the others."""
    sums = np.zeros(len(others))
    flat = source.data.reshape(-1, source.data.shape[-1])
    step = max(1, SLICE // int(source.shape[0]))
    for start in range(0, len(flat), step):
        rows = slice(start, start + step)
        truth = quants.dequantize(flat[rows], source.tensor_type).astype(np.float64)
        for i, other in enumerate(others):
            data = other.data.reshape(-1, other.data.shape[-1])[rows]
            sums[i] += np.sum((truth - quants.dequantize(data, other.tensor_type)) ** 2)
    return sums


class Comparison:
    def __init__(self, source, theirs, ours):
        self.dtype_differs = []
        self.bytes_differ = 0
        self.theirs, self.ours, self.worst = 0.0, 0.0, (0.0, "")
        before, theirs, ours = tensors(source), tensors(theirs), tensors(ours)
        assert theirs.keys() == ours.keys() == before.keys()
        for name, their in theirs.items():
            our = ours[name]
            if our.tensor_type != their.tensor_type:
                self.dtype_differs.append(f"{name}: {our.tensor_type.name}, not {their.tensor_type.name}")
            elif not np.array_equal(our.data, their.data):
                self.bytes_differ += 1
                their_error, our_error = squared_errors(before[name], their, our)
                self.theirs += their_error
                self.ours += our_error
                ratio = float(np.sqrt(our_error / their_error)) if their_error else float("inf") if our_error else 1.0
                self.worst = max(self.worst, (ratio, name))

    @property
    def ratio(self):
        return float(np.sqrt(self.ours / self.theirs)) if self.theirs else None


def as_f16(llama_quantize, model, folder):
    dtypes = {tensor.tensor_type.name for tensor in GGUFReader(model).tensors}
    if dtypes <= FLOATS:
        return model
    path = f"{folder}/{pathlib.Path(model).stem}-f16.gguf"
    done, _ = run([llama_quantize, "--allow-requantize", model, path, "F16"])
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    return path


def once(llama_quantize, source, recipe, folder):
    """What the recipe leaves of a model, as F32."""
    first, path = f"{folder}/first.gguf", f"{folder}/once.gguf"
    for command in [[source, first, recipe], ["--allow-requantize", first, path, "F32"]]:
        done, _ = run([llama_quantize, *command])
        if done.returncode != 0:
            sys.exit(done.stdout + done.stderr)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--llama-quantize", required=True)
    parser.add_argument("--akunu", required=True, help='the command that takes IN OUT TYPE, such as "akunu quantize"')
    parser.add_argument("--recipes", default=",".join(RECIPES))
    parser.add_argument("--threads", default="2", help="threads of llama.cpp; akunu uses what the machine has")
    parser.add_argument("--requantize", action="store_true", help="leave quantised models as they are")
    parser.add_argument("--again", action="store_true", help="quantise what the recipe left once more")
    parser.add_argument("--random", metavar="FOLDER", help="write and compare a random model too")
    arguments = parser.parse_args()

    failures = []
    print("| model | recipe | llama.cpp, bytes | akunu, bytes | other dtype | other bytes | RMSE ratio | worst tensor | llama.cpp, s | akunu, s |")
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        models = list(arguments.models)
        if arguments.random:
            models.append(f"{arguments.random}/random.gguf")
            random_model(models[-1])
        for model in models:
            title = pathlib.Path(model).stem
            floats = model if arguments.requantize else as_f16(arguments.llama_quantize, model, folder)
            allow = ["--allow-requantize"] if arguments.requantize else []
            for recipe in arguments.recipes.split(","):
                theirs, ours = f"{folder}/theirs.gguf", f"{folder}/ours.gguf"
                source = once(arguments.llama_quantize, floats, recipe, folder) if arguments.again else floats
                done, our_time = run([*shlex.split(arguments.akunu), *allow, source, ours, recipe])
                if done.returncode != 0:
                    failures.append(f"{title} {recipe}: {done.stderr}")
                    continue
                our_size = pathlib.Path(ours).stat().st_size
                done, their_time = run([arguments.llama_quantize, *allow, source, theirs, recipe, arguments.threads])
                if done.returncode != 0:
                    expected = dry_run(arguments.llama_quantize, source, recipe)
                    differ = [name for name, our in tensors(ours).items() if our.tensor_type.name != expected[name]]
                    print(f"| {title} | {recipe} | | {our_size} | {len(differ)} | | | | | {our_time:.1f} |", flush=True)
                    failures += [f"{title} {recipe}: {name} has another dtype" for name in differ]
                    continue
                their_size = pathlib.Path(theirs).stat().st_size
                compared = Comparison(source, theirs, ours)
                ratio, worst = "", ""
                if compared.ratio is not None:
                    ratio, worst = f"{compared.ratio:.3f}", f"{compared.worst[0]:.3f}"
                print(
                    f"| {title} | {recipe} | {their_size} | {our_size} | {len(compared.dtype_differs)} "
                    f"| {compared.bytes_differ} | {ratio} | {worst} | {their_time:.1f} | {our_time:.1f} |",
                    flush=True,
                )
                failures += [f"{title} {recipe}: {tensor}" for tensor in compared.dtype_differs]
                if their_size != our_size:
                    failures.append(f"{title} {recipe}: {our_size} bytes, not {their_size}")
                if compared.worst[0] > 1.02:
                    failures.append(f"{title} {recipe}: RMSE {compared.worst[0]:.3f} times as large in {compared.worst[1]}")
    print("\n".join(failures), file=sys.stderr)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
