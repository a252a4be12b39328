#!/usr/bin/env python3
"""Makes one small llama in every quantised dtype, with the likeliest next tokens for one prompt.

    tiny_quants.py OUT LLAMA_QUANTIZE LLAMA_LOGITS

OUT gets `DTYPE.gguf`, as LLAMA_QUANTIZE of llama.cpp writes it (every matrix in that dtype), and `top20.json`: the 20 best
log-probabilities at the last 8 of 40 positions,

* `llama.cpp`: as LLAMA_LOGITS (made of `llama_logits.cpp`) computes them, that is with inputs of products rounded to 8 bits as well,
* `exact`: as transformers computes them in float64 from the weights decoded by the `gguf` package.

All columns are multiples of 256, so that the K-quants apply; attention's output has two of their blocks in a row.
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers
from tiny_cases import VOCABULARY, llama
from tiny_gguf import GLOBAL_NAMES, LAYER_NAMES, write_twin
from tiny_models import build, fill, logits, prompt
from tiny_verify import llama_cpp

DTYPES = ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL"]
POSITIONS = range(32, 40)
BEST = 20
# Largest difference in log-probability left between llama.cpp and transformers with inputs rounded alike. For Q4_1 and Q5_1 llama.cpp also
# rounds the sum of each run of inputs, which is not imitated here.
EXPLAINED = {"Q4_1": 0.1, "Q5_1": 0.1}
EXPLAINED_ELSEWHERE = 1e-3
TABLE_MARK = "<!-- table: tiny_quants.py -->"

CONFIG = llama(
    hidden_size=256,
    intermediate_size=256,
    num_hidden_layers=1,
    num_attention_heads=8,
    num_key_value_heads=1,
    head_dim=64,
    tie_word_embeddings=True,
)


def uneven(model: transformers.PreTrainedModel) -> None:
    """Gives every run of 32 weights a magnitude and a mean of its own, so that scales and minima of blocks matter. Scores and logits become
    small enough that rounding inputs to 8 bits moves no probability far."""
    numbers = np.random.Generator(np.random.PCG64(32))
    calmer = {"embed_tokens": 0.1, "q_proj": 0.4, "k_proj": 0.4, "gate_proj": 0.5}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2:
                rows, columns = parameter.shape
                runs = parameter.view(rows, columns // 32, 32)
                magnitude = np.exp(0.4 * numbers.standard_normal((rows, columns // 32, 1)))
                mean = 0.3 * numbers.standard_normal((rows, columns // 32, 1)) / np.sqrt(columns)
                runs.mul_(torch.from_numpy(magnitude)).add_(torch.from_numpy(mean)).mul_(calmer.get(name.split(".")[-2], 1.0))


def rounded_inputs(model: transformers.PreTrainedModel, dtype: str) -> transformers.PreTrainedModel:
    """The model with the inputs of products rounded as llama.cpp does: to 8 bits in runs of 256 for K-quants, of 32 for the others."""

    def run_of_256(_module, inputs):
        runs = inputs[0].float().reshape(-1, 256)
        largest = runs.gather(1, runs.abs().argmax(dim=1, keepdim=True))
        scale = -127.0 / largest
        return ((runs * scale).round().clamp(max=127) / scale).to(inputs[0].dtype).reshape(inputs[0].shape)

    def run_of_32(_module, inputs):
        runs = inputs[0].float().reshape(-1, 32)
        step = runs.abs().amax(dim=1, keepdim=True) / 127.0
        return ((runs / step).round() * step.half().float()).to(inputs[0].dtype).reshape(inputs[0].shape)

    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_pre_hook(run_of_256 if dtype.endswith("_K") else run_of_32)
    return model


def decoded(path: Path) -> dict[str, torch.Tensor]:
    """The weights of a GGUF file under the names of transformers."""
    names = {new: old for old, new in GLOBAL_NAMES.items()}
    layer_names = {new: old for old, new in LAYER_NAMES.items() if not old.startswith(("mlp.gate_up", "block_sparse", "self_attn.qkv"))}
    state = {}
    for tensor in gguf.GGUFReader(path).tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        weight = torch.from_numpy(np.array(values, dtype=np.float32))
        if tensor.name in names:
            state[f"model.{names[tensor.name]}"] = weight
            continue
        _, layer, stem, kind = tensor.name.split(".")
        if stem in ("attn_q", "attn_k"):
            heads = CONFIG.num_attention_heads if stem == "attn_q" else CONFIG.num_key_value_heads
            weight = weight.reshape(heads, -1, 2, weight.shape[1]).transpose(1, 2).reshape(weight.shape)
        state[f"model.layers.{layer}.{layer_names[stem]}.{kind}"] = weight
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    return state


def best(rows: np.ndarray) -> list[list[list]]:
    """For each of the last positions, [id, log-probability] from the likeliest down."""
    rows = rows[list(POSITIONS)].astype(np.float64)
    top = rows.max(axis=1, keepdims=True)
    log_probabilities = rows - top - np.log(np.exp(rows - top).sum(axis=1, keepdims=True))
    order = np.argsort(-log_probabilities, axis=1, kind="stable")[:, :BEST]
    return [[[int(i), round(float(row[i]), 6)] for i in ids] for row, ids in zip(log_probabilities, order)]


def worst_gap(seen: list, truth: list) -> float:
    """Largest difference in log-probability over the tokens that both lists name."""
    gaps = []
    for one, other in zip(seen, truth):
        known = dict(map(tuple, other))
        gaps += [abs(value - known[token]) for token, value in one if token in known]
    return max(gaps)


def dump(path: Path, table: dict) -> None:
    """One line per position."""
    lines = []
    for dtype, sources in table["dtypes"].items():
        parts = []
        for source, positions in sources.items():
            body = ",\n".join("        " + json.dumps(position, separators=(",", ":")) for position in positions)
            parts.append(f"      {json.dumps(source)}: [\n{body}\n      ]")
        lines.append(f"    {json.dumps(dtype)}: {{\n" + ",\n".join(parts) + "\n    }")
    head = f'  "prompt": {json.dumps(table["prompt"])},\n  "positions": {json.dumps(table["positions"])},\n'
    path.write_text("{\n" + head + '  "dtypes": {\n' + ",\n".join(lines) + "\n  }\n}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("llama_quantize", type=Path)
    parser.add_argument("llama_logits", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.disable_progress_bar()
    arguments.out.mkdir(parents=True, exist_ok=True)

    ids = prompt()
    model = build(CONFIG)
    fill(model, "quants")
    uneven(model)
    table = {"prompt": ids, "positions": list(POSITIONS), "dtypes": {}}
    rows = ["| dtype | KB | a | b | c |", "|---|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model.save_pretrained(folder)
        write_twin(folder)
        whole = logits(model, ids)
        for dtype in DTYPES:
            path = arguments.out / f"{dtype}.gguf"
            command = [arguments.llama_quantize, "--pure", folder / "model.gguf", path, dtype, "1"]
            subprocess.run(command, check=True, capture_output=True)
            seen = llama_cpp(arguments.llama_logits, path, ids, 256)
            truth = logits(build(CONFIG, decoded(path)), ids)
            rounded = logits(rounded_inputs(build(CONFIG, decoded(path)), dtype), ids)
            table["dtypes"][dtype] = {"llama.cpp": best(seen), "exact": best(truth)}
            gaps = [worst_gap(best(seen), best(other)) for other in (truth, rounded)]
            if gaps[1] > EXPLAINED.get(dtype, EXPLAINED_ELSEWHERE):
                raise SystemExit(f"{dtype}: llama.cpp differs by {gaps[1]:.3f}, which rounding does not explain")
            size = path.stat().st_size // 1024
            rows.append(f"| {dtype} | {size} | {gaps[0]:.3f} | {gaps[1]:.4f} | {worst_gap(best(truth), best(whole)):.2f} |")
            print(rows[-1])
    dump(arguments.out / "top20.json", table)
    readme = arguments.out / "README.md"
    before, _, after = readme.read_text().split(TABLE_MARK)
    readme.write_text(f"{before}{TABLE_MARK}\n" + "\n".join(rows) + f"\n{TABLE_MARK}{after}")


if __name__ == "__main__":
    main()
