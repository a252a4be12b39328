"""Speech, with a real model."""

from __future__ import annotations

import os
import pathlib
import wave

import akunu
import numpy as np
import pytest

DATA = pathlib.Path(os.environ.get("AKUNU_TEST_DATA", "no test data"))
MODEL, RECORDING = DATA / "models/whisper-tiny.bin", DATA / "audio/jfk.wav"

pytestmark = pytest.mark.skipif(not MODEL.exists(), reason="run scripts/fetch-test-data")


def test_a_recording_becomes_text() -> None:
    transcriber = akunu.Transcriber.load(MODEL)
    said = transcriber.transcribe(RECORDING, beams=1)
    assert "what your country can do for you" in said.text and str(said) == said.text
    assert said.language == "en" and 10 < said.duration < 12
    assert said.segments[0]["start"] < said.segments[-1]["end"] <= said.duration + 1
    assert "-->" in said.write("srt")
    with wave.open(str(RECORDING)) as file:
        assert file.getframerate() == 16000 and file.getnchannels() == 1
        samples = np.frombuffer(file.readframes(file.getnframes()), np.int16).astype(np.float32) / np.float32(32768)
    assert transcriber.transcribe(samples, beams=1).text == said.text
    with pytest.raises(akunu.UsageError):
        transcriber.transcribe(RECORDING, language="Klingon")
    with pytest.raises(akunu.UsageError, match="float32"):
        transcriber.transcribe(samples.astype(np.float64))
    with pytest.raises(akunu.NotFoundError):
        transcriber.transcribe("no/such/file.wav")


def test_segments_come_as_they_are_found() -> None:
    transcriber = akunu.Transcriber.load(MODEL, beams=1)
    heard: list[dict[str, object]] = []
    said = transcriber.transcribe(RECORDING, temperatures=[0.0], condition_on_previous_text=False, on_segment=heard.append)
    assert heard == said.segments and said.damage is None

    def enough(segment: dict[str, object]) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        transcriber.transcribe(RECORDING, on_segment=enough)
    with pytest.raises(akunu.UsageError, match="hypotheses"):
        transcriber.transcribe(RECORDING, beams=2)


def test_a_recording_that_breaks_off_says_so(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "cut.wav"
    path.write_bytes(RECORDING.read_bytes()[:100_000])
    said = akunu.Transcriber.load(MODEL).transcribe(path, beams=1, best_of=1)
    assert said.damage is not None and "breaks off" in said.damage
