#!/usr/bin/env python3
"""Quantises small random models with `mlx-lm`, and writes the logits that their weights give for one prompt.

    tiny_mlx.py OUT

For each case OUT/NAME gets

    config.json, model.safetensors   as mlx-lm writes them
    prompt.json                      40 token ids
    logits.bin                       F32 little-endian [40][vocabulary]

The logits are those of `transformers` in float64, with the weights that `mlx.core.dequantize`
gives for scales and biases in float32. The script fails where mlx-lm's own logits for the file are not near them.

Made with transformers 5.22, torch 2, mlx 0.32 (cpu) and mlx-lm 0.32.
"""

import argparse
import json
import shutil
import tempfile
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import torch
from mlx_lm.utils import load_model, quantize_model, save_config, save_model
from tiny_cases import VOCABULARY, llama
from tiny_models import build, distance, fill, logits, prompt
from transformers import Gemma3TextConfig, Qwen3Config

# Weights and sums in half precision, as mlx-lm computes, stay within this of the exact logits.
NEAR = {"float16": 0.02, "bfloat16": 0.12}

COMMON = {
    "vocab_size": VOCABULARY, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 256,
}
TIED = llama(**COMMON, tie_word_embeddings=True)
UNTIED = llama(**COMMON, tie_word_embeddings=False)
QWEN3 = Qwen3Config(**COMMON, tie_word_embeddings=True)
# mlx-lm reads the pattern, transformers the types.
GEMMA3 = Gemma3TextConfig(
    **(COMMON | {"num_hidden_layers": 2}), sliding_window=16, sliding_window_pattern=2, layer_types=["sliding_attention", "full_attention"],
    query_pre_attn_scalar=32,
)


def mixed(path: str, _module) -> bool | dict:
    """A choice of its own for some modules, as mixed recipes make."""
    if path == "model.embed_tokens":
        return {"bits": 6, "group_size": 64, "mode": "affine"}
    if path.endswith("o_proj"):
        return {"bits": 3, "group_size": 32, "mode": "affine"}
    return not path.endswith("v_proj")


# Name: configuration, bits, group size, dtype of scales and of what stays whole, choice per module.
CASES = {
    "llama-2bit": (TIED, 2, 64, "float16", None),
    "llama-3bit": (TIED, 3, 32, "float16", None),
    "llama-4bit": (TIED, 4, 64, "bfloat16", None),
    "llama-5bit": (TIED, 5, 128, "float16", None),
    "llama-6bit": (TIED, 6, 32, "bfloat16", None),
    "llama-8bit": (UNTIED, 8, 64, "float16", None),
    "llama-mixed": (UNTIED, 4, 32, "bfloat16", mixed),
    "qwen3-4bit": (QWEN3, 4, 128, "float16", None),
    "gemma3-4bit": (GEMMA3, 4, 64, "bfloat16", None),
}


def exact_weights(model: nn.Module) -> dict[str, torch.Tensor]:
    """Every weight by its name, as the file means it."""
    state = {}
    for name, module in model.named_modules():
        if isinstance(module, (nn.QuantizedLinear, nn.QuantizedEmbedding)):
            scales, biases = module.scales.astype(mx.float32), module.biases.astype(mx.float32)
            state[f"{name}.weight"] = mx.dequantize(module.weight, scales, biases, group_size=module.group_size, bits=module.bits)
        elif not module.children():
            state |= {f"{name}.{key}": value.astype(mx.float32) for key, value in module.parameters().items()}
    return {name: torch.from_numpy(np.array(value)) for name, value in state.items()}


def write(folder: Path, case: tuple) -> float:
    """One fixture. Returns how far mlx-lm's logits are from the exact ones."""
    config, bits, group_size, dtype, choice = case
    source = build(config)
    fill(source, folder.name)
    with tempfile.TemporaryDirectory() as scratch:
        source.to(getattr(torch, dtype)).save_pretrained(scratch)
        model, facts = load_model(Path(scratch))
    model, facts = quantize_model(model, facts, group_size=group_size, bits=bits, quant_predicate=choice)
    save_model(folder, model)
    save_config(facts, folder / "config.json")
    model, _ = load_model(folder)
    state = exact_weights(model)
    if config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    ids = prompt()
    (folder / "prompt.json").write_text(json.dumps(ids) + "\n")
    truth = logits(build(config, state), ids)
    truth.astype("<f4").tofile(folder / "logits.bin")
    return distance(np.array(model(mx.array([ids]))[0].astype(mx.float32)), truth)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the directory to write into; cases that are there are replaced")
    out = parser.parse_args().out
    torch.set_num_threads(1)
    for name, case in CASES.items():
        shutil.rmtree(out / name, ignore_errors=True)
        (out / name).mkdir(parents=True)
        far = write(out / name, case)
        print(f"{name}: mlx-lm is {far:.1e} away")
        if far > NEAR[case[3]]:
            raise SystemExit(f"{name}: half precision does not explain that")
        for path in (out / name).iterdir():
            if path.name not in ("config.json", "model.safetensors", "prompt.json", "logits.bin"):
                path.unlink()


if __name__ == "__main__":
    main()
