"""Writes the GGUF twin of a saved Hugging Face model, by the conventions llama.cpp reads.

What differs from the SafeTensors file, besides names:

* llama (Llama, Mistral, Mixtral): the rows of Q and K are reordered from split halves to interleaved pairs, head by head.
* Gemma: norm weights hold 1 + w. There is never an output tensor.
* Experts: one three-dimensional tensor per projection and layer, [expert][out][in].
* Llama-3 RoPE scaling is a tensor of divisors, `rope_freqs.weight`; LongRoPE two of them.
* Vectors are F32 whatever the dtype of the matrices.
"""

import json
import math
import re
from pathlib import Path

import gguf
import numpy as np
import torch
from safetensors.torch import load_file

# model_type of config.json -> architecture of the GGUF file
ARCHITECTURES = {
    "llama": "llama",
    "mistral": "llama",
    "mixtral": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3moe",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3_text": "gemma3",
    "phi3": "phi3",
}

GLOBAL_NAMES = {"embed_tokens.weight": "token_embd.weight", "norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}

LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.gate": "ffn_gate_inp",
    "block_sparse_moe.gate": "ffn_gate_inp",
}

# Gemma 2 and 3 norm both before and after each half of a layer.
SANDWICH_NAMES = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}

EXPERT_NAMES = {
    "w1": "ffn_gate_exps",
    "w2": "ffn_down_exps",
    "w3": "ffn_up_exps",
    "gate_proj": "ffn_gate_exps",
    "down_proj": "ffn_down_exps",
    "up_proj": "ffn_up_exps",
}


def interleave(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """Within each head, row i of the first half and row i of the second become rows 2i and 2i + 1."""
    half = rows.shape[0] // heads // 2
    return rows.reshape(heads, 2, half, -1).transpose(1, 2).reshape(rows.shape)


def text_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """The language model's tensors, without what a multimodal wrapper puts before their names."""
    tensors = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        if "vision_tower" in name or "multi_modal_projector" in name:
            continue
        tensors[re.sub(r"^(language_model\.|model\.)*", "", name)] = tensor
    return tensors


def twin_tensors(tensors: dict[str, torch.Tensor], config: dict, architecture: str) -> dict[str, torch.Tensor]:
    heads, key_heads = config["num_attention_heads"], config["num_key_value_heads"]
    names = LAYER_NAMES | (SANDWICH_NAMES if architecture in ("gemma2", "gemma3") else {})
    out: dict[str, torch.Tensor] = {}
    experts: dict[str, dict[int, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        if name in GLOBAL_NAMES:
            out[GLOBAL_NAMES[name]] = tensor
            continue
        layer, rest = re.fullmatch(r"layers\.(\d+)\.(.*)", name).groups()
        expert = re.fullmatch(r"(?:mlp|block_sparse_moe)\.experts\.(\d+)\.(\w+)\.weight", rest)
        if expert:
            experts.setdefault(f"blk.{layer}.{EXPERT_NAMES[expert[2]]}.weight", {})[int(expert[1])] = tensor
            continue
        stem, kind = rest.rsplit(".", 1)
        if architecture == "llama" and stem in ("self_attn.q_proj", "self_attn.k_proj"):
            tensor = interleave(tensor, heads if stem.endswith("q_proj") else key_heads)
        out[f"blk.{layer}.{names[stem]}.{kind}"] = tensor
    for name, parts in experts.items():
        out[name] = torch.stack([parts[i] for i in range(len(parts))])
    if architecture.startswith("gemma"):
        for name in out:
            if name.endswith("norm.weight"):
                out[name] = out[name].float() + 1.0
        fold_query_scale(out, config)
    return out


def fold_query_scale(tensors: dict[str, torch.Tensor], config: dict) -> None:
    """llama.cpp scales Gemma's scores by the head size, but for the 27B models, and has no key for another scale: what makes Q carries it."""
    scale = config.get("query_pre_attn_scalar")
    if scale is None or scale == config["head_dim"]:
        return
    for name in tensors:
        carries = name.endswith(".attn_q_norm.weight") or (name.endswith(".attn_q.weight") and config["model_type"] == "gemma2")
        if carries:
            tensors[name] = tensors[name] * math.sqrt(config["head_dim"] / scale)


def llama3_divisors(rope: dict, size: int) -> np.ndarray:
    """[size / 2]: what each frequency is divided by."""
    frequencies = rope["rope_theta"] ** (-np.arange(0, size, 2, dtype=np.float64) / size)
    turns = rope["original_max_position_embeddings"] * frequencies / (2 * math.pi)
    low, high, factor = rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]
    blend = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return (1.0 / ((1.0 - blend) / factor + blend)).astype(np.float32)


def add_rope(writer: gguf.GGUFWriter, config: dict, architecture: str, rotary: int) -> None:
    rope = config["rope_parameters"]
    if "full_attention" in rope:
        writer.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
        rope = rope["full_attention"]
    if architecture not in ("gemma", "gemma2"):
        # Those files leave it to the default, 10000.
        writer.add_rope_freq_base(rope["rope_theta"])
    kind = rope["rope_type"]
    if kind == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    elif kind == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_divisors(rope, rotary))
    elif kind == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        if "attention_factor" in rope:
            writer.add_rope_scaling_yarn_attn_factor(rope["attention_factor"])
        if "beta_fast" in rope:
            writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
            writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
    elif kind == "longrope":
        original = rope["original_max_position_embeddings"]
        growth = config["max_position_embeddings"] / original
        # Phi-3 files name no scaling type: the two tensors say it.
        writer.add_rope_scaling_attn_factors(math.sqrt(1.0 + math.log(growth) / math.log(original)))
        writer.add_tensor("rope_factors_short.weight", np.array(rope["short_factor"], dtype=np.float32))
        writer.add_tensor("rope_factors_long.weight", np.array(rope["long_factor"], dtype=np.float32))
    if architecture == "phi3":
        # Phi-3 files carry the original length with or without scaling.
        writer.add_rope_scaling_orig_ctx_len(config["original_max_position_embeddings"])


def add_metadata(writer: gguf.GGUFWriter, config: dict, architecture: str, write_pattern: bool) -> None:
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    rotary = int(head * config["rope_parameters"].get("partial_rotary_factor", 1.0))
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if "head_dim" in config:
        writer.add_key_length(head)
        writer.add_value_length(head)
    if architecture in ("llama", "phi3"):
        writer.add_rope_dimension_count(rotary)
    if architecture == "llama":
        writer.add_vocab_size(config["vocab_size"])
    add_rope(writer, config, architecture, rotary)

    if config.get("sliding_window"):
        writer.add_sliding_window(config["sliding_window"])
    elif architecture == "phi3":
        # Zero says that there is none.
        writer.add_sliding_window(0)
    if write_pattern:
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config["layer_types"]])
    if config.get("attn_logit_softcapping"):
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
    if config.get("final_logit_softcapping"):
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])

    experts = config.get("num_local_experts") or config.get("num_experts")
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config["num_experts_per_tok"])
    if "moe_intermediate_size" in config:
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if config.get("norm_topk_prob") is False:
        writer.add_expert_weights_norm(False)


def add_vocabulary(writer: gguf.GGUFWriter, size: int) -> None:
    """A SentencePiece vocabulary without merit of its own: specials, a newline byte, printable ASCII, then invented pieces."""
    kinds = gguf.TokenType
    pieces = [("<unk>", kinds.UNKNOWN), ("<s>", kinds.CONTROL), ("</s>", kinds.CONTROL), ("<0x0A>", kinds.BYTE), ("\u2581", kinds.NORMAL)]
    pieces += [(chr(code), kinds.NORMAL) for code in range(33, 127)]
    pieces += [(f"\u2581w{i}", kinds.NORMAL) for i in range(size - len(pieces))]
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([piece.encode() for piece, _ in pieces])
    writer.add_token_scores([-float(i) for i in range(len(pieces))])
    writer.add_token_types([int(kind) for _, kind in pieces])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(False)


def encoded(tensor: torch.Tensor) -> tuple[np.ndarray, gguf.GGMLQuantizationType]:
    if tensor.dim() == 1 or tensor.dtype == torch.float32:
        return tensor.float().contiguous().numpy(), gguf.GGMLQuantizationType.F32
    if tensor.dtype == torch.float16:
        return tensor.contiguous().numpy(), gguf.GGMLQuantizationType.F16
    return tensor.contiguous().view(torch.uint8).numpy(), gguf.GGMLQuantizationType.BF16


def write_twin(folder: Path, write_pattern: bool = False) -> None:
    config = json.loads((folder / "config.json").read_text())
    config = config.get("text_config", config)
    architecture = ARCHITECTURES[config["model_type"]]
    tensors = text_tensors(folder)
    dtype = tensors["embed_tokens.weight"].dtype
    file_type = {
        torch.float32: gguf.LlamaFileType.ALL_F32,
        torch.float16: gguf.LlamaFileType.MOSTLY_F16,
        torch.bfloat16: gguf.LlamaFileType.MOSTLY_BF16,
    }[dtype]

    writer = gguf.GGUFWriter(folder / "model.gguf", architecture)
    writer.add_file_type(file_type)
    add_metadata(writer, config, architecture, write_pattern)
    add_vocabulary(writer, config["vocab_size"])
    for name, tensor in twin_tensors(tensors, config, architecture).items():
        # A router stays F32 in real files.
        data, kind = encoded(tensor.float() if "ffn_gate_inp" in name else tensor)
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
