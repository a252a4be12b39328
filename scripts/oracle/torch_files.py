#!/usr/bin/env python3
"""Writes small checkpoints with torch.save, and a description of what went into them.

    scripts/oracle/torch_files.py crates/akunu-format/tests/fixtures/torch

Needs: pip install torch. OUT gets whisper.pt (laid out as OpenAI's models), plain.pt (a state dict alone, a newer pickle), their contents
as whisper.json and plain.json, and files that must be refused: transposed.pt, function.pt (would run a command if it were unpickled),
object.pt and old.pt (torch's format before 1.6).
"""

import json
import os
import sys
from collections import OrderedDict
from pathlib import Path

import torch

NAMES = {
    torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.float64: "F64", torch.int64: "I64",
    torch.int32: "I32", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


class Command:
    def __reduce__(self):
        return os.system, ("false",)


def describe(tensors) -> list:
    raw = lambda tensor: bytes(tensor.detach().contiguous().view(-1).view(torch.uint8).tolist()).hex()
    return [
        {"name": name, "dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "bytes": raw(tensor)}
        for name, tensor in tensors.items()
    ]


def main() -> None:
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(7)
    shared = torch.randn(6, 4)
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.LayerNorm(3))
    tensors = OrderedDict(
        {
            "encoder.conv1.weight": torch.randn(2, 3, 3).half(),
            "encoder.positional_embedding": shared,
            "decoder.upper": shared[2:5],
            "decoder.column": shared[:, :1].contiguous(),
            "decoder.scalar": torch.tensor(2.5, dtype=torch.float64),
            "decoder.empty": torch.zeros(0, 4),
            "decoder.parameter": torch.nn.Parameter(torch.randn(5).bfloat16()),
            "decoder.mask": torch.tensor([True, False, True]),
            "decoder.ids": torch.tensor([[1, -2], [3, 2**40]]),
        }
    )
    sizes = {"n_mels": 80, "n_vocab": 51865, "n_audio_ctx": 1500, "n_text_layer": 4}
    torch.save({"dims": sizes, "model_state_dict": tensors}, out / "whisper.pt")
    (out / "whisper.json").write_text(json.dumps({"dims": sizes, "tensors": describe(tensors)}) + "\n")
    # A module's own dictionary carries the versions of its parts as an attribute.
    plain = module.state_dict()
    torch.save(plain, out / "plain.pt", pickle_protocol=4)
    (out / "plain.json").write_text(json.dumps({"dims": {}, "tensors": describe(plain)}) + "\n")
    torch.save({"turned": torch.randn(3, 4).T}, out / "transposed.pt")
    torch.save({"weight": torch.randn(3), "surprise": Command()}, out / "function.pt")
    torch.save(module, out / "object.pt")
    torch.save(plain, out / "old.pt", _use_new_zipfile_serialization=False)


if __name__ == "__main__":
    main()
