#!/usr/bin/env python3
"""What the products of a prompt lose when they are made of few bits: the table in docs/decisions/prompt-phase.md.

Runs 512 tokens of a text through a llama-family GGUF file in PyTorch, every product but the output's replaced by one of:

    bf1  both factors as bf16            bf3  both split into two of bf16, without low · low
    b8   bf16, with both corrections as one int8 product under one scale for each row
    c    16 bits under one scale for each row, as two int8 each, without low · low; cl: with it
    gN   as c, with a scale for every N columns of a row; gNl: with low · low
    d    activations of 15 bits in groups of 32, exact weights

    int8_products.py model.gguf tokens.json bf1 bf3 b8 c cl g256 g256l d

`tokens.json` is an array of at least 512 token ids.
"""

import json
import math
import sys

import gguf
import numpy
import torch
from transformers import LlamaConfig, LlamaForCausalLM

NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def load(path):
    reader = gguf.GGUFReader(path)

    def field(name):
        return reader.fields["llama." + name].contents()

    heads, kv_heads = field("attention.head_count"), field("attention.head_count_kv")
    state = {}
    for tensor in reader.tensors:
        weight = torch.tensor(gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32))
        name = tensor.name.removesuffix(".weight").split(".")
        if name[0] in TOP:
            state[TOP[name[0]] + ".weight"] = weight
            continue
        if name[2] in ("attn_q", "attn_k"):
            count = heads if name[2] == "attn_q" else kv_heads
            rows, columns = weight.shape
            weight = weight.reshape(count, rows // count // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)
        state[f"model.layers.{name[1]}.{NAMES[name[2]]}.weight"] = weight
    state.setdefault("lm_head.weight", state["model.embed_tokens.weight"])
    config = LlamaConfig(
        hidden_size=field("embedding_length"),
        intermediate_size=field("feed_forward_length"),
        num_hidden_layers=field("block_count"),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        vocab_size=state["model.embed_tokens.weight"].shape[0],
        rms_norm_eps=field("attention.layer_norm_rms_epsilon"),
        rope_theta=field("rope.freq_base"),
    )
    model = LlamaForCausalLM(config).eval()
    model.load_state_dict(state)
    return model


def bf16(x):
    return x.to(torch.bfloat16).to(torch.float32)


def largest(x):
    return x.abs().amax(-1, keepdim=True).clamp_min(1e-30)


def two_bytes(x):
    """High and low byte of 16-bit integers, and the scale of each row."""
    scale = largest(x) / (127 * 256 + 127)
    whole = torch.round(x / scale)
    high = torch.round(whole / 256).clamp(-127, 127)
    return high, whole - 256 * high, scale


def words_product(x, w, low):
    (xh, xl, xs), (wh, wl, ws) = two_bytes(x), two_bytes(w)
    sums = 65536 * (xh @ wh.T) + 256 * (xh @ wl.T + xl @ wh.T)
    return (sums + xl @ wl.T if low else sums) * (xs * ws.T)


def product(x, w, kind):
    if kind == "exact":
        return x @ w.T
    if kind[0] in "cg":
        size = int(kind[1:].removesuffix("l") or x.shape[-1])
        pairs = zip(x.split(size, -1), w.split(size, -1))
        return sum(words_product(x, w, kind[-1] == "l") for x, w in pairs)
    if kind == "d":
        groups = x.reshape(x.shape[0], -1, 32)
        scale = largest(groups) / 16256
        return (torch.round(groups / scale) * scale).reshape(x.shape) @ w.T
    xh, wh = bf16(x), bf16(w)
    sums = xh @ wh.T
    if kind == "bf3":
        sums += xh @ bf16(w - wh).T + bf16(x - xh) @ wh.T
    elif kind == "b8":
        xs, ws = largest(x) / 127, largest(w) / 127

        def low(part, scale):
            return torch.round(512 * part / scale).clamp(-127, 127)

        mixed = torch.round(xh / xs) @ low(w - wh, ws).T + low(x - xh, xs) @ torch.round(wh / ws).T
        sums += mixed * (xs * ws.T / 512)
    elif kind != "bf1":
        sys.exit(f"there is no kind of product {kind}")
    return sums


def main():
    torch.set_grad_enabled(False)
    path, tokens, *kinds = sys.argv[1:]
    model = load(path)
    with open(tokens) as file:
        ids = torch.tensor([json.load(file)[:512]])
    kind = "exact"
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            module.forward = lambda x, module=module: product(x[0], module.weight, kind)[None]
    exact = model(ids).logits[0].double()
    best = exact.topk(20).indices
    surprise = exact.log_softmax(-1)
    print("| products | median error | largest | perplexity | best 20 log-probabilities |\n|---|---:|---:|---:|---:|")
    for kind in kinds:
        logits = model(ids).logits[0].double()
        errors = (logits - exact).abs().amax(-1) / exact.abs().amax(-1)
        change = logits.log_softmax(-1) - surprise
        moved = 100 * math.expm1(-change[:-1].gather(1, ids[0, 1:, None]).mean())
        worst = change.gather(1, best).abs().max()
        print(f"| {kind} | {errors.median():.5f} | {errors.max():.5f} | {moved:+.3f} % | {worst:.4f} |", flush=True)


if __name__ == "__main__":
    main()
