#!/usr/bin/env python3
"""Log-mel spectrograms by openai-whisper and sound files by ffmpeg, for the tests of akunu-audio.

    scripts/oracle/audio.py JFK_WAV crates/akunu-audio/tests/fixtures

Needs: pip install openai-whisper numpy, and ffmpeg.

mel_{80,128}.f32   spectrogram of noise at four levels (`noise` below): [frame][band], little-endian F32
jfk_{80,128}.f32   every 20th frame of the spectrogram of JFK_WAV
tones.*            half a second of two tones (`tones` below), stereo at 44.1 kHz, in every format, and in Opus, which is refused
"""

import subprocess
import sys
import wave
from pathlib import Path

import numpy as np
from whisper.audio import N_SAMPLES, log_mel_spectrogram

# Ending of the name, and how ffmpeg is to encode it.
FORMATS = {
    "surround.flac": ["-ar", "192000", "-ac", "8", "-sample_fmt", "s16"],
    "aiff": ["-ar", "22050", "-ac", "1"],
    "flac": ["-sample_fmt", "s16"],
    "mp3": ["-b:a", "64k"],
    "ogg": ["-c:a", "libvorbis", "-b:a", "64k"],
    "aac.m4a": ["-c:a", "aac", "-b:a", "192k"],
    "alac.m4a": ["-c:a", "alac", "-sample_fmt", "s16p"],
    "opus": ["-c:a", "libopus", "-b:a", "16k"],
    "opus": ["-c:a", "libopus", "-b:a", "16k"],
}


def noise() -> np.ndarray:
    """A linear congruential generator, at levels that are powers of two, so that every sample is exact."""
    levels = [1 / 64] * 4000 + [0.0] * 4000 + [0.5] * 8000 + [1 / 1024] * 8037
    state, samples = 1, []
    for level in levels:
        state = (state * 1664525 + 1013904223) % 2**32
        samples.append(((state >> 16) - 32768) / 32768 * level)
    return np.array(samples, dtype=np.float32)


def tones() -> np.ndarray:
    """Left 440 Hz, right 1000 Hz, [sample][channel]."""
    time = np.arange(22050) / 44100
    return np.stack([0.5 * np.sin(2 * np.pi * 440 * time), 0.25 * np.sin(2 * np.pi * 1000 * time)], axis=1)


def main() -> None:
    recording, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    with wave.open(recording) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (16000, 1, 2)
        speech = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768
    for bands in (80, 128):
        spectrogram = log_mel_spectrogram(noise(), bands, padding=N_SAMPLES).numpy().T
        spectrogram[:154].astype("<f4").tofile(folder / f"mel_{bands}.f32")
        spectrogram = log_mel_spectrogram(speech, bands, padding=N_SAMPLES).numpy().T
        spectrogram[: len(speech) // 160 : 20].astype("<f4").tofile(folder / f"jfk_{bands}.f32")
    for ending, options in FORMATS.items():
        command = ["ffmpeg", "-loglevel", "error", "-y", "-f", "f64le", "-ar", "44100", "-ac", "2", "-i", "-"]
        subprocess.run(
            [*command, *options, "-bitexact", str(folder / f"tones.{ending}")], input=tones().tobytes(), check=True
        )


if __name__ == "__main__":
    main()
