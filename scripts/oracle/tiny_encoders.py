#!/usr/bin/env python3
"""Makes tiny random encoders, with the hidden states `transformers` gives for two texts.

    tiny_encoders.py OUT

For each case OUT/NAME gets

    config.json, model.safetensors    as `save_pretrained` writes them
    model.gguf                        the twin that llama.cpp reads
    prompts.json                      two lists of token ids, 40 and 7 long
    hidden.bin                        F32 little-endian [47][hidden], the last layer's states, one text after the other

The states come from the weights in the file, computed in float64.
"""

import argparse
import copy
import json
import re
from pathlib import Path

import gguf
import numpy as np
import torch
from safetensors.torch import load_file
from transformers import AutoModel, BertConfig, NomicBertConfig, XLMRobertaConfig

VOCABULARY = 96
SHAPE = dict(vocab_size=VOCABULARY, hidden_size=48, num_hidden_layers=2, num_attention_heads=3, intermediate_size=80)

CASES = {
    "bert": BertConfig(**SHAPE, max_position_embeddings=64, type_vocab_size=2),
    "bert-tanh": BertConfig(**SHAPE, max_position_embeddings=64, type_vocab_size=2, hidden_act="gelu_new"),
    "xlm-roberta": XLMRobertaConfig(**SHAPE, max_position_embeddings=66, type_vocab_size=1, pad_token_id=1),
    "nomic-bert": NomicBertConfig(**SHAPE, max_position_embeddings=64, type_vocab_size=2, layer_norm_eps=1e-12),
}

# Names in the checkpoint -> names in GGUF, by regular expressions.
NAMES = [
    (r"embeddings\.word_embeddings", "token_embd"),
    (r"embeddings\.position_embeddings", "position_embd"),
    (r"embeddings\.token_type_embeddings", "token_types"),
    (r"embeddings\.LayerNorm|emb_ln", "token_embd_norm"),
    (r"encoder\.layers?\.(\d+)\.", r"blk.\1."),
    (r"attention\.self\.query", "attn_q"),
    (r"attention\.self\.key", "attn_k"),
    (r"attention\.self\.value", "attn_v"),
    (r"attention\.output\.dense|attn\.out_proj", "attn_output"),
    (r"attention\.output\.LayerNorm|norm1", "attn_output_norm"),
    (r"attn\.Wqkv", "attn_qkv"),
    (r"intermediate\.dense|mlp\.fc11", "ffn_up"),
    (r"mlp\.fc12", "ffn_gate"),
    (r"(?<!attention\.)output\.dense|mlp\.fc2", "ffn_down"),
    (r"(?<!attention\.)output\.LayerNorm|norm2", "layer_output_norm"),
]


def prompts() -> list[list[int]]:
    numbers = np.random.Generator(np.random.PCG64(41))
    return [[int(i) for i in numbers.integers(4, VOCABULARY, size=length)] for length in (40, 7)]


def fill(model: torch.nn.Module) -> None:
    """Weights at a scale at which scores, gates and norms are well spread."""
    numbers = np.random.Generator(np.random.PCG64(42))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            normal = numbers.standard_normal(tuple(parameter.shape))
            if "norm" in name.lower() and name.endswith("weight"):
                normal = 1.0 + 0.3 * normal
            elif len(parameter.shape) == 1:
                normal = 0.3 * normal
            elif "embeddings" not in name:
                normal = 1.5 * normal / np.sqrt(parameter.shape[-1])
            parameter.copy_(torch.from_numpy(normal))


@torch.no_grad()
def hidden(model: torch.nn.Module, ids: list[int]) -> np.ndarray:
    return copy.deepcopy(model).double()(input_ids=torch.tensor([ids])).last_hidden_state[0].numpy()


def write_twin(folder: Path, config) -> None:
    family = "nomic-bert" if config.model_type == "nomic_bert" else "bert"
    writer = gguf.GGUFWriter(str(folder / "model.gguf"), family)
    offset = config.pad_token_id + 1 if config.model_type == "xlm-roberta" else 0
    writer.add_context_length(config.max_position_embeddings - offset)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_layer_norm_eps(config.layer_norm_eps)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    if family == "nomic-bert":
        writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    for name, tensor in load_file(folder / "model.safetensors").items():
        if name.startswith("pooler"):
            continue
        for pattern, ours in NAMES:
            name = re.sub(pattern, ours, name)
        if name == "position_embd.weight":
            tensor = tensor[offset:]
        writer.add_tensor(name, tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("out", type=Path)
    out = arguments.parse_args().out
    for name, config in CASES.items():
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(0)
        model = AutoModel.from_config(config, attn_implementation="eager").eval()
        fill(model)
        model.save_pretrained(folder)
        (folder / "prompts.json").write_text(json.dumps(prompts()) + "\n")
        states = np.concatenate([hidden(model, ids) for ids in prompts()])
        (folder / "hidden.bin").write_bytes(states.astype("<f4").tobytes())
        # GGUF has no place for the kind of GELU.
        if config.hidden_act != "gelu_new":
            write_twin(folder, config)


if __name__ == "__main__":
    main()
