#!/usr/bin/env python3
"""The weights of a multilingual Whisper model in whisper.cpp's format as OpenAI and Hugging Face would publish them.

    scripts/oracle/whisper_twins.py WHISPER_GGML OUT

Needs: pip install openai-whisper transformers torch numpy tokenizers. OUT/openai gets model.pt, written as OpenAI's files are (sizes under
"dims", tensors in F16 under "model_state_dict"), and multilingual.tiktoken from the package openai-whisper. OUT/huggingface gets a directory
as `save_pretrained` of WhisperForConditionalGeneration writes it, with a tokenizer.json of the same pieces; as in the first files that Hugging
Face published, times have no tokens in it and no speech is <|nocaptions|>. Use:

    akunu transcribe -m OUT/openai/model.pt jfk.wav
    akunu transcribe -m OUT/huggingface jfk.wav
"""

import base64
import re
import shutil
import sys
from dataclasses import asdict
from pathlib import Path

import torch
import whisper
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import WhisperConfig, WhisperForConditionalGeneration
from whisper.tokenizer import LANGUAGES

from transcripts import load

# OpenAI's names -> Hugging Face's, by regular expressions.
NAMES = [
    (r"blocks\.(\d+)", r"layers.\1"),
    (r"\.attn\.", ".self_attn."),
    (r"\.attn_ln\.", ".self_attn_layer_norm."),
    (r"cross_attn_ln", "encoder_attn_layer_norm"),
    (r"cross_attn", "encoder_attn"),
    (r"mlp_ln", "final_layer_norm"),
    (r"mlp\.0", "fc1"),
    (r"mlp\.2", "fc2"),
    (r"\.query", ".q_proj"),
    (r"\.key", ".k_proj"),
    (r"\.value", ".v_proj"),
    (r"\.out\.", ".out_proj."),
    (r"encoder\.ln_post", "encoder.layer_norm"),
    (r"decoder\.ln\.", "decoder.layer_norm."),
    (r"token_embedding", "embed_tokens"),
    (r"positional_embedding", "embed_positions.weight"),
]


def hugging_face(name: str) -> str:
    for pattern, theirs in NAMES:
        name = re.sub(pattern, theirs, name)
    return "model." + name


def letters() -> dict[int, str]:
    """The printable alphabet in which byte-level vocabularies are written."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in own]
    return {byte: chr(byte) for byte in own} | {byte: chr(256 + i) for i, byte in enumerate(others)}


def tokenizer(path: Path) -> Tokenizer:
    ranks = {}
    for line in path.read_bytes().splitlines():
        piece, rank = line.rsplit(b" ", 1)
        ranks[b"" if piece == b"=" else base64.b64decode(piece)] = int(rank)
    alphabet = letters()
    text = lambda piece: "".join(alphabet[byte] for byte in piece)
    merges = []
    for piece, rank in ranks.items():
        parts = [piece[i : i + 1] for i in range(len(piece))]
        while len(parts) > 2:
            joined = [ranks.get(parts[i] + parts[i + 1], len(ranks)) for i in range(len(parts) - 1)]
            i = min(range(len(joined)), key=joined.__getitem__)
            parts[i : i + 2] = [parts[i] + parts[i + 1]]
        if len(parts) == 2:
            merges.append((rank, tuple(text(part) for part in parts)))
    made = Tokenizer(
        models.BPE(vocab={text(piece): rank for piece, rank in ranks.items()}, merges=[merge for _, merge in sorted(merges)])
    )
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    names = ["<|endoftext|>", "<|startoftranscript|>", *(f"<|{code}|>" for code in list(LANGUAGES)[:99])]
    names += ["<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nocaptions|>", "<|notimestamps|>"]
    made.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names])
    return made


def main() -> None:
    model = load(sys.argv[1]).half()
    out = Path(sys.argv[2])
    sizes, tensors = model.dims, dict(model.state_dict())
    openai = out / "openai"
    openai.mkdir(parents=True, exist_ok=True)
    pieces = Path(whisper.__file__).parent / "assets" / "multilingual.tiktoken"
    shutil.copy(pieces, openai)
    torch.save({"dims": asdict(sizes), "model_state_dict": tensors}, openai / "model.pt")

    config = WhisperConfig(
        vocab_size=sizes.n_vocab, num_mel_bins=sizes.n_mels, d_model=sizes.n_audio_state,
        encoder_layers=sizes.n_audio_layer, encoder_attention_heads=sizes.n_audio_head,
        decoder_layers=sizes.n_text_layer, decoder_attention_heads=sizes.n_text_head,
        encoder_ffn_dim=4 * sizes.n_audio_state, decoder_ffn_dim=4 * sizes.n_text_state,
        max_source_positions=sizes.n_audio_ctx, max_target_positions=sizes.n_text_ctx,
    )  # fmt: skip
    twin = WhisperForConditionalGeneration(config).half()
    named = {hugging_face(name): tensor for name, tensor in tensors.items()}
    named["proj_out.weight"] = named["model.decoder.embed_tokens.weight"]
    twin.load_state_dict(named)
    folder = out / "huggingface"
    twin.save_pretrained(folder)
    tokenizer(pieces).save(str(folder / "tokenizer.json"))


if __name__ == "__main__":
    main()
