#!/usr/bin/env python3
"""Writes small GGUF files with the `gguf` package, and what that package reads back from them.

    python3 scripts/oracle/gguf_files.py crates/akunu-format/tests/fixtures/gguf

Made with gguf 0.19 and numpy 2. Outputs:

    all-types.gguf, .json        every metadata type, nested arrays, an alignment of 64, several dtypes
    split-0000?-of-00003.gguf    the shards of a model with five tensors
"""

import argparse
import json
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, quantize

# key, type, element type (arrays), value
METADATA = [
    ("test.u8", "UINT8", None, 255),
    ("test.i8", "INT8", None, -128),
    ("test.u16", "UINT16", None, 65535),
    ("test.i16", "INT16", None, -32768),
    ("test.u32", "UINT32", None, 4294967295),
    ("test.i32", "INT32", None, -2147483648),
    ("test.f32", "FLOAT32", None, 0.1),
    ("test.true", "BOOL", None, True),
    ("test.false", "BOOL", None, False),
    ("test.string", "STRING", None, "embers: අකුණු 🔥"),
    ("test.empty_string", "STRING", None, ""),
    ("test.u64", "UINT64", None, 18446744073709551615),
    ("test.i64", "INT64", None, -9223372036854775808),
    ("test.f64", "FLOAT64", None, 0.1),
    ("test.u8s", "ARRAY", "UINT8", [0, 7, 255]),
    ("test.i8s", "ARRAY", "INT8", [-128, 127]),
    ("test.u16s", "ARRAY", "UINT16", [1, 65535]),
    ("test.i16s", "ARRAY", "INT16", [-32768, 32767]),
    ("test.u32s", "ARRAY", "UINT32", [0, 4294967295]),
    ("test.i32s", "ARRAY", "INT32", [-2147483648, 2147483647]),
    ("test.f32s", "ARRAY", "FLOAT32", [0.5, -0.25, 3.0]),
    ("test.bools", "ARRAY", "BOOL", [True, False, True]),
    ("test.strings", "ARRAY", "STRING", ["<s>", "", "Ġhello", "▁world"]),
    ("test.u64s", "ARRAY", "UINT64", [18446744073709551615]),
    ("test.i64s", "ARRAY", "INT64", [-9223372036854775808, 1]),
    ("test.f64s", "ARRAY", "FLOAT64", [0.1, 1e300]),
    # The writer takes the types of nested lists from the values: int32 and string.
    ("test.nested", "ARRAY", "ARRAY", [[1, 2, 3], [4]]),
    ("test.nested_strings", "ARRAY", "ARRAY", [[["a", "b"], ["c"]], [["d"]]]),
]

rng = np.random.default_rng(20240607)


def rows(*shape):
    return rng.standard_normal(shape, dtype=np.float32)


def tensors():
    """name, values, dtype of quantised bytes (None: numpy's own)"""
    yield "scalar_like", rows(1), None
    yield "f32.vector", rows(5), None
    yield "f32.matrix", rows(2, 3), None
    yield "f16.cube", rows(2, 3, 4).astype(np.float16), None
    yield "i32.values", np.arange(7, dtype=np.int32), None
    yield "f64.values", np.arange(3, dtype=np.float64) / 3, None
    for name, dtype in [("q8_0", GGMLQuantizationType.Q8_0), ("q4_0", GGMLQuantizationType.Q4_0)]:
        yield f"{name}.matrix", quantize(rows(3, 64), dtype), dtype
    yield "rank4", rows(2, 1, 3, 2), None


def write_all_types(path):
    writer = GGUFWriter(path, "test")
    writer.add_custom_alignment(64)
    for key, value_type, element_type, value in METADATA:
        element_type = None if element_type is None else GGUFValueType[element_type]
        writer.add_key_value(key, value, GGUFValueType[value_type], sub_type=element_type)
    for name, values, dtype in tensors():
        writer.add_tensor(name, values, raw_dtype=dtype)
    close(writer)


def close(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def describe(path):
    """What the package's reader finds: types are from the outside in, shapes outermost first."""
    reader = GGUFReader(path)
    metadata = []
    for key, field in reader.fields.items():
        if key.startswith("GGUF."):
            continue
        # The reader flattens nested arrays; their structure is as written above.
        value = dict((k, v) for k, _, _, v in METADATA).get(key) if "nested" in key else field.contents()
        metadata.append({"key": key, "types": [t.name for t in field.types], "value": value})
    return {
        "metadata": metadata,
        "tensors": [
            {
                "name": tensor.name,
                "dtype": tensor.tensor_type.name,
                "shape": [int(dim) for dim in reversed(tensor.shape)],
                "offset": int(tensor.data_offset),
                "bytes": tensor.data.tobytes().hex(),
            }
            for tensor in reader.tensors
        ],
    }


def write_split(path):
    writer = GGUFWriter(path, "test", split_max_tensors=2)
    writer.add_string("general.name", "split")
    for i in range(5):
        writer.add_tensor(f"blk.{i}.weight", np.full((2, 4), i, dtype=np.float32))
    close(writer)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the directory to write into")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    write_all_types(out / "all-types.gguf")
    with open(out / "all-types.json", "w") as file:
        json.dump(describe(out / "all-types.gguf"), file, indent=1, ensure_ascii=False)
        file.write("\n")
    write_split(out / "split.gguf")


if __name__ == "__main__":
    main()
