#!/usr/bin/env python3
"""What independent readers say about the test models: parameters, and tensors and bytes by dtype.

    pip install gguf safetensors
    scripts/oracle/summaries.py TEST_DATA > crates/akunu/tests/fixtures/summaries.json

TEST_DATA is the folder scripts/fetch-test-data fills.
"""

import json
import pathlib
import struct
import sys

import gguf


def from_gguf(path):
    reader = gguf.GGUFReader(path)
    return [(tensor.tensor_type.name, int(tensor.n_elements), int(tensor.n_bytes)) for tensor in reader.tensors]


def from_safetensors(path):
    # The header is the format's own table of contents: a length and a JSON object.
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    rows = []
    for name, tensor in header.items():
        if name != "__metadata__":
            elements = 1
            for dimension in tensor["shape"]:
                elements *= dimension
            begin, end = tensor["data_offsets"]
            rows.append((tensor["dtype"], elements, end - begin))
    return rows


def summary(rows):
    dtypes = {}
    for dtype, elements, size in rows:
        share = dtypes.setdefault(dtype, {"tensors": 0, "parameters": 0, "bytes": 0})
        share["tensors"] += 1
        share["parameters"] += elements
        share["bytes"] += size
    return {"parameters": sum(row[1] for row in rows), "dtypes": dict(sorted(dtypes.items()))}


def main():
    data = pathlib.Path(sys.argv[1])
    result = {}
    for name in ["smollm2.gguf", "qwen2.5-coder-0.5b.gguf", "gemma3-270m.gguf"]:
        result[f"models/{name}"] = summary(from_gguf(data / "models" / name))
    for path in sorted((data / "vocab").glob("*.gguf")):
        result[f"vocab/{path.name}"] = summary(from_gguf(path))
    result["models/minilm"] = summary(from_safetensors(data / "models" / "minilm" / "model.safetensors"))
    json.dump(result, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
