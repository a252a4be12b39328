#!/usr/bin/env python3
"""Checks the GGUF twins of `tiny_models.py` with llama.cpp, and writes what it found into the table of FIXTURES/README.md.

    tiny_verify.py FIXTURES LLAMA_LOGITS

LLAMA_LOGITS is the program made of `llama_logits.cpp`. Where llama.cpp departs from transformers on purpose, transformers is made to do
the same, so that what is left is rounding:

* fields of the configuration that llama.cpp does not honour (`Case.peer`),
* GELU from a table over F16,
* inputs of a matrix product rounded to the F16 or BF16 of the matrix.
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from tiny_cases import CASES, VOCABULARY, Case
from tiny_models import build, changed, distance, load, logits, under_long_factors

# On all positions, relative to the largest logit. Where activations are rounded (F16, BF16, GELU's table), some fall on the other side.
LIMITS = {"float32": 2e-5, "float16": 1e-3, "bfloat16": 5e-3}
GELU_LIMIT = 1e-3
TABLE_MARK = "<!-- table: tiny_verify.py -->"


def llama_cpp(program: Path, model: Path, ids: list[int], context: int) -> np.ndarray:
    with tempfile.NamedTemporaryFile() as out:
        tokens = " ".join(map(str, ids))
        subprocess.run([program, model, str(context), out.name], input=tokens, text=True, check=True)
        return np.fromfile(out.name, "<f4").reshape(len(ids), VOCABULARY)


class GeluByTable(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.gelu(x.half().double(), approximate="tanh").half().to(x.dtype)
        return torch.where(x <= -10, torch.zeros_like(x), torch.where(x >= 10, x, y))


def as_peer(case: Case, folder: Path):
    """The model as llama.cpp computes it."""
    model = load(folder)
    if case.peer:
        model = build(changed(case.config, case.peer), model.state_dict())
    coarse = getattr(torch, case.dtype)
    for module in model.modules():
        if "GELU" in type(getattr(module, "act_fn", None)).__name__:
            module.act_fn = GeluByTable()
        if isinstance(module, torch.nn.Linear) and coarse != torch.float32:
            module.register_forward_pre_hook(lambda _module, inputs: (inputs[0].float().to(coarse).to(inputs[0].dtype),))
    return model


def check(case: Case, folder: Path, program: Path) -> str:
    """A row of the table."""
    ids = json.loads((folder / "prompt.json").read_text())
    model = as_peer(case, folder)
    # recorded logits -> the context llama.cpp needs for them, and the model
    runs = {"logits.bin": (256, model)}
    if case.long:
        original = case.config.original_max_position_embeddings
        runs = {"logits.bin": (original, model), "logits-long.bin": (2 * original, under_long_factors(model))}
    plain, explained = 0.0, 0.0
    for name, (context, model) in runs.items():
        seen = llama_cpp(program, folder / "model.gguf", ids, context)
        plain = max(plain, distance(seen, np.fromfile(folder / name, "<f4").reshape(seen.shape)))
        explained = max(explained, distance(seen, logits(model, ids)))
    print(f"{case.name:18} recorded {plain:.1e}  as llama.cpp does {explained:.1e}")
    gelu = case.config.model_type.startswith("gemma")
    if explained > max(LIMITS[case.dtype], GELU_LIMIT if gelu else 0.0):
        raise SystemExit(f"{case.name}: llama.cpp differs by {explained:.1e}, which nothing explains")
    size = sum(file.stat().st_size for file in folder.iterdir())
    return f"| {case.name} | {case.exercises} | {size // 1024} | {plain:.0e} | {explained:.0e} | {case.peer_note} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fixtures", type=Path)
    parser.add_argument("llama_logits", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.disable_progress_bar()
    rows = ["| name | exercises | KB | a | b | llama.cpp |", "|---|---|---|---|---|---|"]
    rows += [check(case, arguments.fixtures / case.name, arguments.llama_logits) for case in CASES]
    readme = arguments.fixtures / "README.md"
    before, _, after = readme.read_text().split(TABLE_MARK)
    readme.write_text(f"{before}{TABLE_MARK}\n" + "\n".join(rows) + f"\n{TABLE_MARK}{after}")


if __name__ == "__main__":
    main()
