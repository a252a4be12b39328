#!/usr/bin/env python3
"""What openai-whisper makes of recordings with the weights of a GGML file: tokens, times and words of every segment.

    scripts/oracle/transcripts.py WHISPER_GGML OUT.json AUDIO [AUDIO...]

Needs: pip install openai-whisper numpy torch, and ffmpeg. The tests' library.flac is a text of our own, read by `espeak-ng -v en-us -s 150`
and brought to 16 kHz by ffmpeg; biblioteca.flac and biblioteka.flac are the Spanish and Russian texts of scripts/bench/errors.py in the same way, hard to hear: openai-whisper
takes the first for silence with the likeliest token, and repeats itself over the second until there is no more room. For each recording and each of its settings, OUT gets
{"audio", "settings", "language", "segments": [{"start", "end", "text", "tokens", "avg_logprob", "compression_ratio",
"no_speech_prob", "temperature", "words"}]}. Only temperature 0 is tried: samples depend on a random number generator.
"""

import json
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
import whisper
from whisper.model import ModelDimensions, Whisper

SETTINGS = {
    "greedy": {"language": "en"},
    "beam": {"beam_size": 5},
    "words": {"language": "en", "beam_size": 5, "word_timestamps": True},
    "plain": {"language": "en", "without_timestamps": True},
    "prompt": {"language": "en", "initial_prompt": "A speech by John F. Kennedy."},
}
# Recordings in other languages, with settings of their own.
LANGUAGES = {"biblioteca.flac": "es", "biblioteka.flac": "ru"}


def settings_of(path: str) -> dict:
    language = LANGUAGES.get(Path(path).name)
    return {"greedy": {"language": language}, "five": {"language": language, "beam_size": 5}} if language else SETTINGS


def load(path: str) -> Whisper:
    """The model of a GGML file of F16 and F32 tensors."""
    data = Path(path).read_bytes()
    at = 4

    def take(form: str):
        nonlocal at
        values = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return values

    vocab, audio_ctx, audio_state, audio_head, audio_layer, text_ctx, text_state, text_head, text_layer, mels, _ = take("11i")
    bands, bins = take("2i")
    at += 4 * bands * bins
    for _ in range(take("i")[0]):
        length = take("i")[0]
        at += length
    tensors = {}
    while at < len(data):
        dims, length, kind = take("3i")
        shape = take(f"{dims}i")[::-1]
        name = data[at : at + length].decode()
        at += length
        dtype = {0: np.float32, 1: np.float16}[kind]
        count = int(np.prod(shape))
        tensors[name] = torch.from_numpy(np.frombuffer(data, dtype, count, at).astype(np.float32).reshape(shape))
        at += count * np.dtype(dtype).itemsize
    model = Whisper(
        ModelDimensions(mels, audio_ctx, audio_state, audio_head, audio_layer, vocab, text_ctx, text_state, text_head, text_layer)
    )
    for name in ("encoder.conv1.bias", "encoder.conv2.bias"):
        tensors[name] = tensors[name].reshape(-1)
    missing, extra = model.load_state_dict(tensors, strict=False)
    assert not extra and all(name == "decoder.mask" for name in missing), (missing, extra)
    model.set_alignment_heads(whisper._ALIGNMENT_HEADS["tiny"])
    return model.eval()


def samples(path: str) -> np.ndarray:
    command = ["ffmpeg", "-loglevel", "error", "-i", path, "-f", "s16le", "-ac", "1", "-ar", "16000", "-"]
    sound = subprocess.run(command, check=True, capture_output=True).stdout
    return np.frombuffer(sound, "<i2").astype(np.float32) / 32768


def main() -> None:
    torch.set_num_threads(1)
    model = load(sys.argv[1])
    results = []
    for path in sys.argv[3:]:
        for name, settings in settings_of(path).items():
            found = model.transcribe(samples(path), temperature=0.0, fp16=False, **settings)
            for segment in found["segments"]:
                del segment["id"], segment["seek"]
            results.append(
                {"audio": Path(path).name, "settings": name, "language": found["language"], "segments": found["segments"]}
            )
    rounded = json.loads(json.dumps(results), parse_float=lambda text: round(float(text), 5))
    Path(sys.argv[2]).write_text("[\n" + ",\n".join(json.dumps(result) for result in rounded) + "\n]\n")


if __name__ == "__main__":
    main()
