#!/usr/bin/env python3
"""Makes the fixtures of akunu-format's quantize tests.

    quantize.py LIBRARY crates/akunu-format/tests/fixtures/quantize

LIBRARY is a shared library that exports llama.cpp's `ggml_quantize_chunk` (the Python package `xllamacpp` contains
one). Its bytes are stored for every dtype; where the Python package `gguf` can quantise too, both must agree.

`values.bin`: rows of 256 values (f32, little-endian), `ROWS` of each kind, the kinds in the order of `kinds`.
`NAME.bin`: the same rows as blocks of the dtype.
`floats.bin`: special values, each as f32, then as `gguf` makes them F16 and BF16: eight bytes together.
"""

import ctypes
import pathlib
import sys

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

ROW = 256
ROWS = 8
SIMPLE = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]
SEARCHED = ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL"]


def kinds(rng):
    shape = (ROWS, ROW)
    # As trained weights are distributed.
    yield rng.normal(0, 0.02, shape)
    # Some rows and columns far larger than others.
    yield rng.normal(0, 0.02, shape) * np.exp(rng.normal(0, 1, (ROWS, 1))) * np.exp(rng.normal(0, 1, (1, ROW)))
    # Outliers.
    yield rng.standard_t(2, shape) * 0.01
    # Above zero alone, and below zero alone.
    yield rng.normal(1, 0.1, shape)
    yield -rng.gamma(1, 0.05, shape)
    # Weights that were quantised before: on a grid of 16 levels, and on a symmetric one.
    scale = np.repeat(rng.uniform(0.001, 0.003, (ROWS, ROW // 32)), 32, axis=1)
    yield scale * rng.integers(0, 16, shape) - 8 * scale
    yield scale * rng.integers(-3, 4, shape)
    # Sub-blocks of zeros, of one value, of ones and zeros, of one value among zeros; a row of zeros.
    rows = np.zeros(shape)
    rows[0, 32:64] = 0.5
    rows[1, 32:64] = -0.5
    rows[2] = rng.integers(0, 2, ROW)
    rows[3, 77] = 3
    rows[4, 77] = -3
    rows[5, :128] = rng.normal(0, 1, 128)
    rows[6] = -1.25
    yield rows


def specials():
    halves = np.arange(0, 1 << 16, 509, dtype=np.uint32).astype("<u2")
    halves = halves[np.isfinite(halves.view("<f2"))].view("<f2").astype("<f4")
    bits = halves.view("<u4")
    near = [halves]
    # Half way to the neighbour, and just beside half way, in F16 and in BF16.
    for half_way in [0x1000, 0x8000]:
        near += [(bits + np.uint32(half_way + by)).view("<f4") for by in (-1, 0, 1)]
    edges = [0.0, -0.0, np.inf, -np.inf, np.nan, 65504, 65519.996, -65519.996, 6e-8, 2.9e-8, 2.98e-8, 1e-45, 1e-10]
    values = np.concatenate(near + [np.array(edges, "<f4")]).astype("<f4")
    overflows = np.isfinite(values) & (np.abs(values) >= 65520)
    return values[~overflows]


def main():
    library = ctypes.CDLL(sys.argv[1])
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    library.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + [ctypes.c_int64] * 3 + [
        ctypes.c_void_p
    ]
    folder = pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    values = np.concatenate(list(kinds(np.random.default_rng(0)))).astype("<f4")
    (folder / "values.bin").write_bytes(values.tobytes())
    for name in SIMPLE + SEARCHED:
        dtype = GGMLQuantizationType[name]
        block_len, block_bytes = GGML_QUANT_SIZES[dtype]
        blocks = np.zeros((len(values), ROW // block_len * block_bytes), np.uint8)
        library.ggml_quantize_chunk(int(dtype), values.ctypes.data, blocks.ctypes.data, 0, len(values), ROW, None)
        if name in SIMPLE:
            assert np.array_equal(blocks, quants.quantize(values, dtype)), name
        (folder / f"{name}.bin").write_bytes(blocks.tobytes())

    values = specials()
    with np.errstate(all="ignore"):
        columns = [values.reshape(-1, 1).view(np.uint8)]
        for name, width in [("F16", 2), ("BF16", 2)]:
            columns.append(
                np.ascontiguousarray(quants.quantize(values.reshape(-1, 1), GGMLQuantizationType[name]))
                .view(np.uint8)
                .reshape(-1, width)
            )
    (folder / "floats.bin").write_bytes(np.hstack(columns).tobytes())


if __name__ == "__main__":
    main()
