#!/usr/bin/env python3
"""Makes the fixtures of akunu-format's dequantize tests with the Python `gguf` package.

    dequantize.py crates/akunu-format/tests/fixtures/dequantize

`NAME.bin`: blocks of the dtype, each followed by the values `gguf` finds in it (f32, little-endian). The first block is
all zero bits and the second all ones; then one block per special value of its F16 scales (see SPECIAL) with random
codes; then blocks with ordinary scales and random codes.

`sha256.txt`: per dtype, the hash of the values of many blocks (see `pseudo_random_blocks`) whose bytes come from
`pseudo_random_bytes`, so that every grid point and every kind of scale is met without storing them. NaNs are hashed as
0x7FC00000: their sign and payload are nobody's promise.
"""

import hashlib
import pathlib
import sys

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

# Where each dtype keeps its F16 scales (and minima), in bytes from the start of the block.
SCALES = {
    "F32": [], "F16": [0], "BF16": [],
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
    "IQ4_NL": [0], "IQ4_XS": [0], "IQ3_S": [0], "IQ3_XXS": [0], "IQ2_S": [0], "IQ2_XS": [0], "IQ2_XXS": [0],
    "IQ1_S": [0], "IQ1_M": "spread", "TQ1_0": [52], "TQ2_0": [64], "MXFP4": [], "NVFP4": [],
}  # fmt: skip

# F16 bit patterns: 0, -0, smallest and largest subnormal, smallest normal, 1, -1.5, largest, -largest, inf, -inf, NaN.
SPECIAL = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x3C00, 0xBE00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00]
ORDINARY_BLOCKS = 6


def pseudo_random_bytes(count):
    """splitmix64 from seed 0, each output as eight little-endian bytes."""
    with np.errstate(over="ignore"):
        z = np.arange(1, (count + 7) // 8 + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return z.astype("<u8").view(np.uint8)[:count]


def pseudo_random_blocks(block_len):
    return max(1024, 65536 // block_len)


def set_scale(block, places, bits):
    if places == "spread":  # IQ1_M: four bits at the top of each of the last four words
        words = block[48:56].view("<u2")
        for i in range(4):
            words[i] = (words[i] & 0x0FFF) | ((bits >> (4 * i) & 0xF) << 12)
        return
    for place in places:
        block[place : place + 2] = np.array([bits], "<u2").view(np.uint8)


def some_blocks(rng, name, block_bytes):
    blocks = [np.zeros(block_bytes, np.uint8), np.full(block_bytes, 0xFF, np.uint8)]
    for bits in SPECIAL:
        block = rng.integers(0, 256, block_bytes, dtype=np.uint8)
        set_scale(block, SCALES[name], bits)
        blocks.append(block)
    places = SCALES[name]
    for _ in range(ORDINARY_BLOCKS):
        block = rng.integers(0, 256, block_bytes, dtype=np.uint8)
        scales = rng.normal(0, 0.05, 2).astype("<f2").view("<u2")
        set_scale(block, places, int(scales[0]))
        if len(places) == 2:
            set_scale(block, places[1:], int(scales[1]))
        blocks.append(block)
    return np.stack(blocks)


def dequantize(blocks, dtype):
    with np.errstate(all="ignore"):
        return quants.dequantize(blocks, dtype).astype("<f4", copy=False)


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    hashes = []
    for name in SCALES:
        dtype = GGMLQuantizationType[name]
        block_len, block_bytes = GGML_QUANT_SIZES[dtype]
        blocks = some_blocks(np.random.default_rng(block_bytes), name, block_bytes)
        values = dequantize(blocks, dtype)
        assert values.shape == (len(blocks), block_len)
        with open(folder / f"{name}.bin", "wb") as f:
            for block, x in zip(blocks, values):
                f.write(block.tobytes() + x.tobytes())

        many = pseudo_random_bytes(pseudo_random_blocks(block_len) * block_bytes).reshape(-1, block_bytes)
        values = dequantize(many, dtype)
        bits = np.where(np.isnan(values), np.uint32(0x7FC00000), values.view("<u4"))
        hashes.append(f"{name} {hashlib.sha256(bits.astype('<u4').tobytes()).hexdigest()}\n")
    (folder / "sha256.txt").write_text("".join(hashes))


if __name__ == "__main__":
    main()
