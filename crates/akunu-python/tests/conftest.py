"""Tiny random models: texts mean nothing, what must hold is how calls agree with each other."""

from __future__ import annotations

import os
import pathlib
import struct

import akunu
import pytest

FIXTURES = pathlib.Path(
    os.environ.get("AKUNU_FIXTURES", pathlib.Path(__file__).parents[2] / "akunu-program/tests/fixtures/tiny")
)
TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def with_template(source: pathlib.Path, target: pathlib.Path) -> None:
    """Copies a GGUF file and gives it a chat template: one more entry at the beginning of its metadata."""
    data = source.read_bytes()
    magic, version, tensors, entries = struct.unpack_from("<4sIQQ", data)
    key, value = b"tokenizer.chat_template", TEMPLATE.encode()
    # Tensors stay aligned when what is added is a multiple of 32 bytes.
    value += b" " * (-(8 + len(key) + 4 + 8 + len(value)) % 32)
    entry = struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, len(value)) + value
    target.write_bytes(struct.pack("<4sIQQ", magic, version, tensors, entries + 1) + entry + data[24:])


@pytest.fixture(scope="session")
def tiny() -> pathlib.Path:
    return FIXTURES / "llama/model.gguf"


@pytest.fixture(scope="session")
def model(tiny: pathlib.Path) -> akunu.Model:
    return akunu.Model.load(tiny, threads=1, sequences=2)


@pytest.fixture(scope="session")
def chatty(tiny: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> akunu.Model:
    path = tmp_path_factory.mktemp("chatty") / "model.gguf"
    with_template(tiny, path)
    return akunu.Model.load(path, threads=1, sequences=2)


@pytest.fixture(scope="session")
def embedder(tiny: pathlib.Path) -> akunu.Embedder:
    return akunu.Embedder.load(tiny, threads=1)
