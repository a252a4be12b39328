#!/usr/bin/env python3
"""Writes a Whisper model of toy size in whisper.cpp's container, and a description of what went into it.

    python3 scripts/oracle/whisper_ggml.py crates/akunu-format/tests/fixtures/whisper

Made with gguf 0.19 (for the quantised blocks) and numpy 2. Outputs tiny.bin and tiny.json.
"""

import argparse
import json
import struct
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import quantize

STATE, MELS, BINS, LAYERS = 8, 2, 5, 1
# ftype 7 is "mostly Q8_0", with version 2 of the quantised formats.
HPARAMS = dict(
    n_vocab=10, n_audio_ctx=4, n_audio_state=STATE, n_audio_head=2, n_audio_layer=LAYERS,
    n_text_ctx=6, n_text_state=STATE, n_text_head=2, n_text_layer=LAYERS, n_mels=MELS, ftype=2007,
)
# The last two are halves of a character: tokens are bytes, not text. The model has more ids than these.
TOKENS = [b"!", b" the", "é".encode(), b"", b"\xe4\xbd", b"\xa0"]

rng = np.random.default_rng(5)


def attention(name):
    for part in ("query", "key", "value", "out"):
        yield f"{name}.{part}.weight", (STATE, STATE)
        if part != "key":
            yield f"{name}.{part}.bias", (STATE,)


def norm(name):
    yield f"{name}.weight", (STATE,)
    yield f"{name}.bias", (STATE,)


def shapes():
    yield "encoder.positional_embedding", (HPARAMS["n_audio_ctx"], STATE)
    yield "encoder.conv1.weight", (STATE, MELS, 3)
    yield "encoder.conv1.bias", (STATE, 1)
    yield "encoder.conv2.weight", (STATE, STATE, 3)
    yield "encoder.conv2.bias", (STATE, 1)
    yield from norm("encoder.ln_post")
    yield "decoder.positional_embedding", (HPARAMS["n_text_ctx"], STATE)
    yield "decoder.token_embedding.weight", (HPARAMS["n_vocab"], STATE)
    yield from norm("decoder.ln")
    for side in ("encoder", "decoder"):
        for layer in range(LAYERS):
            block = f"{side}.blocks.{layer}"
            yield from attention(f"{block}.attn")
            yield from norm(f"{block}.attn_ln")
            if side == "decoder":
                yield from attention(f"{block}.cross_attn")
                yield from norm(f"{block}.cross_attn_ln")
            yield f"{block}.mlp.0.weight", (4 * STATE, STATE)
            yield f"{block}.mlp.0.bias", (4 * STATE,)
            yield f"{block}.mlp.2.weight", (STATE, 4 * STATE)
            yield f"{block}.mlp.2.bias", (STATE,)
            yield from norm(f"{block}.mlp_ln")


def encode(name, values):
    """Rows of 32 are quantised, other matrices are F16, vectors F32."""
    if values.shape[-1] == 32 and values.ndim == 2:
        dtype = Type.Q8_0 if name.startswith("encoder") else Type.Q5_1
        return dtype, quantize(values, dtype).tobytes()
    if values.ndim > 1 and min(values.shape) > 1:
        return Type.F16, values.astype("<f2").tobytes()
    return Type.F32, values.astype("<f4").tobytes()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the directory to write into")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)

    filters = rng.random((MELS, BINS), dtype=np.float32)
    blob = struct.pack("<I11i", 0x67676D6C, *HPARAMS.values())
    blob += struct.pack("<2i", MELS, BINS) + filters.astype("<f4").tobytes()
    blob += struct.pack("<i", len(TOKENS))
    for token in TOKENS:
        blob += struct.pack("<I", len(token)) + token
    tensors = []
    for name, shape in shapes():
        dtype, raw = encode(name, rng.standard_normal(shape, dtype=np.float32))
        blob += struct.pack("<3i", len(shape), len(name), dtype)
        blob += struct.pack(f"<{len(shape)}i", *reversed(shape)) + name.encode() + raw
        tensors.append({"name": name, "dtype": dtype.name, "shape": shape, "bytes": raw.hex()})
    (out / "tiny.bin").write_bytes(blob)
    description = {
        "hparams": HPARAMS,
        "filters": filters.astype(np.float64).tolist(),
        "tokens": [token.hex() for token in TOKENS],
        "tensors": tensors,
    }
    (out / "tiny.json").write_text(json.dumps(description) + "\n")


if __name__ == "__main__":
    main()
