#!/usr/bin/env python3
"""Compares akunu's conversion of Hugging Face directories with llama.cpp's convert_hf_to_gguf.py.

usage: convert_compare.py AKUNU LLAMA TEST_DATA WORK [NAME ...]

AKUNU is the command, LLAMA a checkout of llama.cpp, TEST_DATA the folder that scripts/fetch-test-data fills, WORK a folder for models (about
300 MB), NAME one of llama3, qwen2, qwen3 (all if none is given). Small models with random weights and the real tokenizers of Llama 3,
Qwen 2.5, Qwen 3 are made with `transformers`, converted by both programs, and every metadata key and every tensor is
compared. Prints what differs; exits with 1 if anything does but what only describes where a model comes from (IGNORED)
and what is known (KNOWN).
"""

import pathlib
import shutil
import subprocess
import sys

import gguf
import numpy
import torch
import transformers

SMALL = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
MODELS = {
    "llama3": ("llama3_2", lambda vocab: transformers.LlamaConfig(
        **SMALL, vocab_size=vocab, tie_word_embeddings=True, bos_token_id=128000, eos_token_id=[128001, 128008, 128009], max_position_embeddings=131072,
        rope_parameters=dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192))),
    "qwen2": ("qwen2_5", lambda vocab: transformers.Qwen2Config(**SMALL, vocab_size=vocab, tie_word_embeddings=True, max_position_embeddings=4096, bos_token_id=151643, eos_token_id=151645)),
    "qwen3": ("qwen3", lambda vocab: transformers.Qwen3Config(**SMALL, head_dim=16, vocab_size=vocab, tie_word_embeddings=False, max_position_embeddings=4096, bos_token_id=151643, eos_token_id=151645)),
}
# What a model is called, where it came from and who made it, which says nothing of how it runs.
IGNORED = ("general.name", "general.basename", "general.size_label", "general.finetune", "general.type", "general.quantization_version", "general.version", "general.tags", "GGUF.")
# Keys that one program writes and the other leaves to be found from the rest, and end tokens that only akunu lists.
KNOWN = ("vocab_size", "attention.key_length", "attention.value_length", "rope.dimension_count", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.add_sep_token")
# Qwen's tokens for code with a hole: control tokens to llama.cpp, user-defined ones to their own tokenizer.json.
KNOWN_TYPES = ("<|fim_", "<|repo_name|>", "<|file_sep|>")


def vocabulary_size(folder):
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    return (max(tokenizer.get_vocab().values()) + 64) // 64 * 64


def make(folder, tokenizer, config):
    torch.manual_seed(7)
    model = transformers.AutoModelForCausalLM.from_config(config(vocabulary_size(tokenizer)), dtype=torch.bfloat16)
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(tokenizer / name, folder / name)


def metadata(reader):
    found = {name: field.contents() for name, field in reader.fields.items() if not name.startswith(IGNORED)}
    tokens = found.get("tokenizer.ggml.tokens", [])
    for token_id in (i for i, token in enumerate(tokens) if token.startswith(KNOWN_TYPES)):
        found["tokenizer.ggml.token_type"][token_id] = None
    return found


def shown(value):
    text = repr(value)
    return text if len(text) < 100 else f"{text[:90]}... ({len(value)})"


def compare(ours, theirs):
    ours, theirs = gguf.GGUFReader(ours), gguf.GGUFReader(theirs)
    mine, other = metadata(ours), metadata(theirs)
    one_sided = {key for key in mine.keys() ^ other.keys() if key.endswith(KNOWN)}
    keys = sorted((mine.keys() | other.keys()) - one_sided)
    differences = [f"{key}: {shown(mine.get(key))}, llama.cpp {shown(other.get(key))}" for key in keys if mine.get(key) != other.get(key)]
    for key in ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.merges"):
        if mine.get(key) != other.get(key) and mine.get(key) and other.get(key):
            pairs = [(i, a, b) for i, (a, b) in enumerate(zip(mine[key], other[key])) if a != b]
            differences.append(f"  {key}: {len(pairs)} differ, first {pairs[:5]}")
    mine, other = ({tensor.name: tensor for tensor in reader.tensors} for reader in (ours, theirs))
    differences += [f"tensor {name} is only in one" for name in sorted(mine.keys() ^ other.keys())]
    for name in sorted(mine.keys() & other.keys()):
        a, b = mine[name], other[name]
        if (a.tensor_type, list(a.shape)) != (b.tensor_type, list(b.shape)):
            differences.append(f"tensor {name}: {a.tensor_type.name} {list(a.shape)}, llama.cpp {b.tensor_type.name} {list(b.shape)}")
        # The divisors of RoPE are computed by either program; everything else is copied.
        elif not (numpy.allclose(a.data, b.data, rtol=2e-7, atol=0) if name == "rope_freqs.weight" else numpy.array_equal(a.data, b.data)):
            differences.append(f"tensor {name}: other values")
    return differences, len(mine)


def main(akunu, llama, test_data, work, *names):
    failed = False
    for name in names or MODELS:
        tokenizer, config = MODELS[name]
        folder = pathlib.Path(work) / name
        if not (folder / "model.safetensors").exists():
            make(folder, pathlib.Path(test_data) / "tokenizers" / tokenizer, config)
        ours, theirs = folder / "akunu.gguf", folder / "llama.gguf"
        subprocess.run([akunu, "quantize", folder, ours, "BF16"], check=True)
        convert = [sys.executable, pathlib.Path(llama) / "convert_hf_to_gguf.py", folder, "--outfile", theirs, "--outtype", "bf16"]
        subprocess.run(convert, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        differences, tensors = compare(ours, theirs)
        print(f"{name}: {tensors} tensors, {len(differences)} differences")
        for difference in differences:
            print("  " + difference)
        failed |= bool(differences)
    sys.exit(failed)


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
