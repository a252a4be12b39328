#!/usr/bin/env python3
"""Asks llama.cpp's quantiser which dtype each tensor of many models gets under each recipe.

    quantize_recipes.py LLAMA_QUANTIZE crates/akunu/tests/fixtures/recipes.json

The models have the names and the metadata of real ones and rows of some hundred values: the quantiser looks at no more
than that in a dry run. The fixture holds, per model, its metadata, its tensors by name (`*` for the number of the layer)
with dtype and shape (outermost dimension first), and per recipe the dtypes of the tensors that change, layer by layer
and run-length encoded: `"Q6_K*3 Q4_K"` is Q6_K in the first three layers and Q4_K in the fourth.
"""

import itertools
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter

RECIPES = (
    "F32 BF16 F16 Q8_0 Q6_K Q5_1 Q5_K_M Q5_K_S Q5_0 Q4_1 Q4_K_M Q4_K_S Q4_0 IQ4_NL Q3_K_L Q3_K_M Q3_K_S Q2_K Q2_K_S"
).split()
ROWS = 2


def decoder(architecture, layers, heads, value_heads, width=256, hidden=512, tied=False, experts=0, qkv=False, **more):
    """A model as a dictionary of metadata and a list of (name, dtype, shape)."""
    metadata = {
        "general.architecture": architecture,
        f"{architecture}.block_count": layers,
        f"{architecture}.context_length": 256,
        f"{architecture}.embedding_length": width,
        f"{architecture}.feed_forward_length": hidden,
        f"{architecture}.attention.head_count": heads,
        f"{architecture}.attention.head_count_kv": value_heads,
        f"{architecture}.attention.layer_norm_rms_epsilon": 1e-5,
    }
    metadata |= {f"{architecture}.{key}": value for key, value in more.items()}
    if experts:
        metadata |= {f"{architecture}.expert_count": experts, f"{architecture}.expert_used_count": 2}
    tensors = [("token_embd.weight", "F16", [ROWS, width]), ("output_norm.weight", "F32", [width])]
    if not tied:
        tensors.append(("output.weight", "F16", [ROWS, width]))
    for layer in range(layers):
        stacked = [experts] if experts else []
        suffix = "_exps" if experts else ""
        rows = [
            ("attn_norm", "F32", [width]),
            ("attn_output", "F16", [ROWS, width]),
            ("ffn_norm", "F32", [width]),
            (f"ffn_down{suffix}", "F16", stacked + [ROWS, hidden]),
            (f"ffn_up{suffix}", "F16", stacked + [ROWS, width]),
        ]
        rows += [("attn_qkv", "F16", [ROWS, width])] if qkv else [
            (f"attn_{part}", "F16", [ROWS, width]) for part in "qkv"
        ]
        rows += [] if architecture == "phi3" else [(f"ffn_gate{suffix}", "F16", stacked + [ROWS, width])]
        rows += [("ffn_gate_inp", "F32", [experts, width])] if experts else []
        rows += [("attn_q_norm", "F32", [64]), ("attn_k_norm", "F32", [64])] if architecture in ("qwen3", "gemma3") else []
        if architecture in ("gemma2", "gemma3"):
            rows += [("post_attention_norm", "F32", [width]), ("post_ffw_norm", "F32", [width])]
        tensors += [(f"blk.{layer}.{name}.weight", dtype, shape) for name, dtype, shape in rows]
        if architecture == "qwen2":
            tensors += [(f"blk.{layer}.attn_{part}.bias", "F32", [width]) for part in "qkv"]
    return metadata, tensors


# For each family a usual shape; then what single rules look at: layers, shared values, experts, row lengths.
MODELS = {
    "llama": decoder("llama", 22, 32, 4),
    "llama, no shared values": decoder("llama", 32, 32, 32),
    "llama, tied": decoder("llama", 16, 32, 8, tied=True),
    "llama, 576 columns": decoder("llama", 30, 9, 3, width=576, hidden=1536, tied=True),
    "llama, 288 columns": decoder("llama", 6, 6, 6, width=288, hidden=768),
    "llama, 80 columns": decoder("llama", 5, 5, 5, width=80, hidden=208),
    "llama, 80 layers": decoder("llama", 80, 64, 8),
    "llama, 80 layers, no shared values": decoder("llama", 80, 64, 64),
    "llama, 8 experts": decoder("llama", 32, 32, 8, experts=8),
    "llama, 4 experts": decoder("llama", 9, 32, 8, experts=4),
    "qwen2": decoder("qwen2", 28, 12, 2, tied=True),
    "qwen2, 896 columns": decoder("qwen2", 24, 14, 2, width=896, hidden=4864, tied=True),
    "qwen2, 80 layers": decoder("qwen2", 80, 64, 8),
    "qwen3": decoder("qwen3", 36, 32, 8),
    "gemma": decoder("gemma", 18, 8, 1, tied=True),
    "gemma2": decoder(
        "gemma2", 26, 8, 4, tied=True, attn_logit_softcapping=50.0, final_logit_softcapping=30.0,
        **{"attention.sliding_window": 64},
    ),
    "gemma3": decoder("gemma3", 18, 4, 1, width=640, hidden=2048, tied=True, **{"attention.sliding_window": 64}),
    "phi3": decoder("phi3", 32, 32, 32, qkv=True),
    "phi3, shared values": decoder("phi3", 40, 40, 10, qkv=True),
}  # fmt: skip


def write(path, metadata, tensors):
    writer = GGUFWriter(path, metadata["general.architecture"])
    for key, value in metadata.items():
        if key != "general.architecture":
            (writer.add_float32 if isinstance(value, float) else writer.add_uint32)(key, value)
    for name, dtype, shape in tensors:
        writer.add_tensor(name, np.zeros(shape, np.float16 if dtype == "F16" else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def dry_run(llama_quantize, path, recipe):
    """What llama.cpp says it would do: a dtype by tensor."""
    output = subprocess.run([llama_quantize, "--dry-run", path, recipe], capture_output=True, text=True)
    if output.returncode != 0:
        sys.exit(output.stdout + output.stderr)
    line = re.compile(r"^\[ *\d+/ *\d+\] +(\S+) +- \[.*\], type = +(\w+), size = [^(]*?(?:\((\w+)\))?$", re.MULTILINE)
    return {name: (after or before).upper() for name, before, after in line.findall(output.stdout + output.stderr)}


def any_layer(name):
    return re.sub(r"^blk\.\d+\.", "blk.*.", name)


def runs(dtypes):
    runs = [(dtype, len(list(run))) for dtype, run in itertools.groupby(dtypes)]
    return " ".join(dtype if count == 1 else f"{dtype}*{count}" for dtype, count in runs)


def llama_order(name):
    layer = re.match(r"blk\.(\d+)\.", name)
    return int(layer[1]) if layer else -1, name


def main():
    llama_quantize, out = sys.argv[1], pathlib.Path(sys.argv[2])
    models = {}
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/model.gguf"
        for title, (metadata, tensors) in MODELS.items():
            tensors.sort(key=lambda tensor: llama_order(tensor[0]))
            write(path, metadata, tensors)
            recipes = {}
            for recipe in RECIPES:
                after = dry_run(llama_quantize, path, recipe)
                assert list(after) == [name for name, _, _ in tensors], (title, recipe)
                assert all(dtype in GGMLQuantizationType.__members__ for dtype in after.values())
                changed = {}
                for name, before, _ in tensors:
                    changed.setdefault(any_layer(name), []).append((before, after[name]))
                recipes[recipe] = {
                    name: runs([after for _, after in dtypes])
                    for name, dtypes in changed.items()
                    if any(before != after for before, after in dtypes)
                }
            kinds = {any_layer(name): f"{dtype} {'x'.join(map(str, shape))}" for name, dtype, shape in tensors}
            models[title] = {"metadata": metadata, "tensors": kinds, "recipes": recipes}
            print(title)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(models, indent=0) + "\n")


if __name__ == "__main__":
    main()
