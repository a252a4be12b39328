#!/usr/bin/env python3
"""Writes small checkpoints with `transformers`, `mlx` and `mlx-lm`, and what those libraries read from them.

    python3 scripts/oracle/checkpoints.py crates/akunu-format/tests/fixtures/checkpoint

Made with transformers 5.22, torch 2, mlx 0.32 (cpu) and mlx-lm 0.32. Outputs:

    sharded/      a random Llama, saved by transformers in several shards
    sharded.json  names, shapes and bytes of its tensors, from torch
    affine/       a matrix for each bits x group size x scale dtype of mlx.core.quantize, with the values
                  mlx.core.dequantize gives for scales and biases cast to float32 (it computes in the dtype of
                  the scales, so this is the comparison that is exact in float32)
    mixed/        a random Llama, quantised by mlx-lm with a different choice per module
    mixed.json    bits, group size and shape of its matrices, from mlx's modules
"""

import argparse
import json
import shutil
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import torch
from mlx_lm.models import llama
from mlx_lm.utils import quantize_model, save_config, save_model
from transformers import LlamaConfig, LlamaForCausalLM

BITS = (2, 3, 4, 5, 6, 8)
GROUP_SIZES = (32, 64, 128)
SCALE_DTYPES = {"f16": mx.float16, "bf16": mx.bfloat16, "f32": mx.float32}


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1) + "\n")


def write_sharded(out):
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=16, hidden_size=8, intermediate_size=12, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=32, tie_word_embeddings=False, dtype="bfloat16",
    )
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(out / "sharded", max_shard_size=800)
    tensors = []
    for name, tensor in model.state_dict().items():
        assert tensor.dtype == torch.bfloat16
        raw = tensor.contiguous().view(torch.uint8).numpy().tobytes()
        tensors.append({"name": name, "dtype": "BF16", "shape": list(tensor.shape), "bytes": raw.hex()})
    write_json(out / "sharded.json", sorted(tensors, key=lambda tensor: tensor["name"]))


def write_affine(out):
    directory = out / "affine"
    directory.mkdir()
    rng = np.random.default_rng(11)
    tensors, overrides = {}, {}
    for bits in BITS:
        for group_size in GROUP_SIZES:
            for dtype_name, dtype in SCALE_DTYPES.items():
                module = f"b{bits}.g{group_size}.{dtype_name}"
                values = mx.array(rng.standard_normal((2, 128), dtype=np.float32)).astype(dtype)
                weight, scales, biases = mx.quantize(values, group_size=group_size, bits=bits)
                assert scales.dtype == dtype
                tensors |= {f"{module}.weight": weight, f"{module}.scales": scales, f"{module}.biases": biases}
                tensors[f"{module}.expected"] = mx.dequantize(
                    weight, scales.astype(mx.float32), biases.astype(mx.float32), group_size=group_size, bits=bits
                )
                overrides[module] = {"bits": bits, "group_size": group_size}
    mx.save_safetensors(str(directory / "model.safetensors"), tensors, metadata={"format": "mlx"})
    write_json(directory / "config.json", {"quantization": {"group_size": 64, "bits": 4} | overrides})


def write_mixed(out):
    mx.random.seed(3)
    config = {
        "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, "intermediate_size": 96,
        "num_attention_heads": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-5, "vocab_size": 48,
        "tie_word_embeddings": False,
    }
    model = llama.Model(llama.ModelArgs.from_dict(config))
    model.set_dtype(mx.bfloat16)

    def choose(path, module):
        if path == "model.embed_tokens":
            return {"bits": 6, "group_size": 64, "mode": "affine"}
        if path.endswith("o_proj"):
            return {"bits": 3, "group_size": 32}
        return not path.endswith("v_proj")

    model, config = quantize_model(model, config, group_size=32, bits=4, quant_predicate=choose)
    save_model(out / "mixed", model)
    save_config(config, out / "mixed" / "config.json")
    matrices = []
    for name, module in model.named_modules():
        if isinstance(module, (nn.QuantizedLinear, nn.QuantizedEmbedding)):
            shape = [module.weight.shape[0], module.weight.shape[1] * 32 // module.bits]
            matrices.append(
                {"name": f"{name}.weight", "bits": module.bits, "group_size": module.group_size, "shape": shape}
            )
    write_json(out / "mixed.json", sorted(matrices, key=lambda matrix: matrix["name"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the directory to write into; what is there is replaced")
    out = parser.parse_args().out
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    write_sharded(out)
    write_affine(out)
    write_mixed(out)


if __name__ == "__main__":
    main()
