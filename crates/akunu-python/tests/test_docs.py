"""The example of docs/python.md, with real models."""

from __future__ import annotations

import os
import pathlib
import re

import pytest

DOCS = pathlib.Path(os.environ.get("AKUNU_DOCS", pathlib.Path(__file__).parents[3] / "docs"))
DATA = pathlib.Path(os.environ["AKUNU_TEST_DATA"])
# Names in the folder the example runs in, or in the cache, and the files of the test data they are.
FILES = {
    "model.gguf": "models/smollm2.gguf",
    "interview.wav": "audio/jfk.wav",
    "cache/models/minilm": "models/minilm",
    "cache/models/whisper-tiny/whisper-tiny.bin": "models/whisper-tiny.bin",
}


def test_the_example_of_the_documentation_runs(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, file in FILES.items():
        place = tmp_path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(DATA / file)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AKUNU_CACHE", str(tmp_path / "cache"))
    (example,) = re.findall(r"^```python\n(.*?)^```", (DOCS / "python.md").read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, object] = {}
    exec(example, names)
    assert capsys.readouterr().out.strip()
    assert names["answer"] in ("red", "blue")
    assert getattr(names["vectors"], "shape") == (2, 384)
    assert "your country" in getattr(names["said"], "text")
