#!/usr/bin/env python3
"""Makes tiny random Whisper models, with what `transformers` computes of a window and a text.

    tiny_speech.py OUT

For each case OUT/NAME gets

    config.json, generation_config.json, model.safetensors    as `save_pretrained` writes them
    tokenizer.json                                            of single letters and what transcripts begin with
    model.gguf                                                a twin with OpenAI's tensor names
    model.bin                                                 a twin in whisper.cpp's format, matrices in F16
    model.pt                                                  a twin as OpenAI publishes models, all in F16
    mel.bin                                                   F32 little-endian [frames][mels]
    tokens.json                                               a text
    states.bin                                                F32 [states][width], the encoder's last states
    logits.bin                                                F32 [tokens][vocabulary]
    weights.bin                                               F32 [heads][tokens][states], of the alignment heads

Everything is computed in float64 from weights that F16 holds exactly.
"""

import argparse
import copy
import json
import re
import struct
from pathlib import Path

import gguf
import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import WhisperConfig, WhisperForConditionalGeneration

LETTERS = 256
SPECIAL = ["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>"]
VOCABULARY = LETTERS + len(SPECIAL)
TOKENS = 21
START = LETTERS + 1


def config(**shape) -> WhisperConfig:
    token = dict(
        bos_token_id=LETTERS,
        eos_token_id=LETTERS,
        pad_token_id=LETTERS,
        decoder_start_token_id=START,
        suppress_tokens=[],
        begin_suppress_tokens=[],
    )
    return WhisperConfig(vocab_size=VOCABULARY, max_target_positions=96, **token, **shape)


def sizes(width: int, heads: int, encoder: int, decoder: int) -> dict:
    return dict(
        d_model=width,
        encoder_layers=encoder,
        decoder_layers=decoder,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width,
    )


# The window of the first spans several blocks of the cache, the last of them not full; the second has the shape of turbo.
CASES = {
    "plain": (config(num_mel_bins=80, max_source_positions=140, **sizes(48, 3, 2, 2)), [[0, 1], [1, 0], [1, 2]]),
    "turbo": (config(num_mel_bins=128, max_source_positions=64, **sizes(32, 2, 3, 1)), [[0, 0], [0, 1]]),
}

# Names in the checkpoint -> OpenAI's, by regular expressions.
NAMES = [
    (r"^model\.", ""),
    (r"layers\.(\d+)", r"blocks.\1"),
    (r"encoder_attn_layer_norm", "cross_attn_ln"),
    (r"self_attn_layer_norm", "attn_ln"),
    (r"final_layer_norm", "mlp_ln"),
    (r"encoder\.layer_norm", "encoder.ln_post"),
    (r"decoder\.layer_norm", "decoder.ln"),
    (r"encoder_attn", "cross_attn"),
    (r"self_attn", "attn"),
    (r"q_proj", "query"),
    (r"k_proj", "key"),
    (r"v_proj", "value"),
    (r"out_proj", "out"),
    (r"fc1", "mlp.0"),
    (r"fc2", "mlp.2"),
    (r"embed_tokens", "token_embedding"),
    (r"embed_positions\.weight", "positional_embedding"),
]


def fill(model: torch.nn.Module) -> None:
    """Weights at a scale at which scores and norms are well spread, rounded to F16."""
    numbers = np.random.Generator(np.random.PCG64(43))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            normal = numbers.standard_normal(tuple(parameter.shape))
            if "norm" in name and name.endswith("weight"):
                normal = 1.0 + 0.3 * normal
            elif len(parameter.shape) == 1:
                normal = 0.3 * normal
            elif "embed" not in name:
                normal = 1.5 * normal / np.sqrt(np.prod(parameter.shape[1:]))
            parameter.copy_(torch.from_numpy(normal.astype(np.float16).astype(np.float64)))


def openai_tensors(folder: Path) -> dict[str, np.ndarray]:
    tensors = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        if name == "proj_out.weight":
            continue
        for pattern, theirs in NAMES:
            name = re.sub(pattern, theirs, name)
        tensors[name] = tensor.numpy()
    return tensors


def write_gguf(folder: Path, config: WhisperConfig) -> None:
    writer = gguf.GGUFWriter(str(folder / "model.gguf"), "whisper")
    for side, context, layers, heads in [
        ("encoder", config.max_source_positions, config.encoder_layers, config.encoder_attention_heads),
        ("decoder", config.max_target_positions, config.decoder_layers, config.decoder_attention_heads),
    ]:
        writer.add_uint32(f"whisper.{side}.context_length", context)
        writer.add_uint32(f"whisper.{side}.embedding_length", config.d_model)
        writer.add_uint32(f"whisper.{side}.block_count", layers)
        writer.add_uint32(f"whisper.{side}.attention.head_count", heads)
    writer.add_uint32("whisper.encoder.mels_count", config.num_mel_bins)
    for name, tensor in openai_tensors(folder).items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_ggml(folder: Path, config: WhisperConfig) -> None:
    numbers = [
        config.vocab_size, config.max_source_positions, config.d_model, config.encoder_attention_heads,
        config.encoder_layers, config.max_target_positions, config.d_model, config.decoder_attention_heads,
        config.decoder_layers, config.num_mel_bins, 1,
    ]  # fmt: skip
    with open(folder / "model.bin", "wb") as file:
        file.write(struct.pack("<I11i", 0x67676D6C, *numbers))
        file.write(struct.pack("<ii", config.num_mel_bins, 1) + bytes(4 * config.num_mel_bins))
        file.write(struct.pack("<i", LETTERS))
        for letter in range(LETTERS):
            file.write(struct.pack("<iB", 1, letter))
        for name, tensor in openai_tensors(folder).items():
            half = tensor.ndim > 1 and "positional" not in name
            if name.endswith(("conv1.bias", "conv2.bias")):
                tensor = tensor.reshape(-1, 1)
            values = tensor.astype(np.float16 if half else np.float32)
            dims = tensor.shape[::-1]
            file.write(struct.pack("<iii", len(dims), len(name), int(half)))
            file.write(struct.pack(f"<{len(dims)}i", *dims) + name.encode() + values.tobytes())


def write_torch(folder: Path, config: WhisperConfig) -> None:
    sizes = dict(
        n_mels=config.num_mel_bins,
        n_vocab=config.vocab_size,
        n_audio_ctx=config.max_source_positions,
        n_audio_state=config.d_model,
        n_audio_head=config.encoder_attention_heads,
        n_audio_layer=config.encoder_layers,
        n_text_ctx=config.max_target_positions,
        n_text_state=config.d_model,
        n_text_head=config.decoder_attention_heads,
        n_text_layer=config.decoder_layers,
    )
    tensors = {name: torch.from_numpy(tensor).half() for name, tensor in openai_tensors(folder).items()}
    torch.save({"dims": sizes, "model_state_dict": tensors}, folder / "model.pt")


def write_tokenizer(folder: Path) -> None:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    assert len(letters) == LETTERS
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIAL])
    tokenizer.save(str(folder / "tokenizer.json"))


def write(path: Path, values: np.ndarray) -> None:
    path.write_bytes(values.astype("<f4").tobytes())


@torch.no_grad()
def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("out", type=Path)
    out = arguments.parse_args().out
    for name, (shape, heads) in CASES.items():
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(0)
        shape._attn_implementation = "eager"
        model = WhisperForConditionalGeneration(shape).eval()
        fill(model)
        model.generation_config.alignment_heads = heads
        model.save_pretrained(folder)
        write_gguf(folder, shape)
        write_ggml(folder, shape)
        write_torch(folder, shape)
        write_tokenizer(folder)
        numbers = np.random.Generator(np.random.PCG64(44))
        mel = numbers.standard_normal((2 * shape.max_source_positions, shape.num_mel_bins)).astype(np.float32)
        text = [START + 1, START] + [int(i) for i in numbers.integers(0, VOCABULARY, size=TOKENS - 2)]
        exact = copy.deepcopy(model).double()
        found = exact(
            input_features=torch.from_numpy(mel.T[None].astype(np.float64)),
            decoder_input_ids=torch.tensor([text]),
            output_attentions=True,
        )
        write(folder / "mel.bin", mel)
        (folder / "tokens.json").write_text(json.dumps(text) + "\n")
        write(folder / "states.bin", found.encoder_last_hidden_state[0].numpy())
        write(folder / "logits.bin", found.logits[0].numpy())
        write(folder / "weights.bin", np.stack([found.cross_attentions[l][0, h].numpy() for l, h in heads]))
        print(name, f"logits {found.logits.std():.2f}", f"weights up to {found.cross_attentions[-1].max():.3f}")


if __name__ == "__main__":
    main()
