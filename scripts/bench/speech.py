#!/usr/bin/env python3
"""Speed and errors of `akunu transcribe` beside whisper.cpp, on the same files, model, threads and settings, interleaved.

    scripts/bench/speech.py AKUNU WHISPER_GGML TEXT [--audio FILE.wav=REFERENCE.txt ...] [--threads N] [--rounds N] [--minutes N]

Needs: pip install pywhispercpp, and espeak-ng for the speech it makes of TEXT, with four voices. AKUNU is the command, TEXT a plain text in
English. Times are of everything: loading the model, reading the sound, transcribing; the best of the rounds counts. The real-time factor
is that time over the length of the sound. Errors are words that differ from the reference, over words of the reference, without regard to
case and punctuation. Both take the likeliest token each time and try every window once.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
import wave
from pathlib import Path

from words import errors, words

VOICES = ["en-us", "en-gb", "en-us+f3", "en-gb+m4"]
# Words of one utterance, and seconds of silence after it.
WORDS, PAUSE = 30, 0.6

PEER = """
import json, sys, time
from pywhispercpp.model import Model
path, threads, sound = sys.argv[1], int(sys.argv[2]), sys.argv[3]
began = time.perf_counter()
model = Model(path, n_threads=threads, print_progress=False, print_realtime=False, print_timestamps=False, redirect_whispercpp_logs_to=None)
segments = model.transcribe(sound, language="en", temperature_inc=0.0, greedy={"best_of": 1})
took = time.perf_counter() - began
json.dump({"seconds": took, "text": " ".join(segment.text for segment in segments)}, sys.stdout)
"""


def speak(text: str, minutes: float, folder: Path) -> tuple[Path, str]:
    """About so many minutes of TEXT, read aloud: 16 kHz mono."""
    all_words = [word for word in re.sub(r"[^A-Za-z0-9.,;:!?' \n-]", " ", text).split() if not word.isupper()]
    sound, said, at = b"", [], len(all_words) // 10
    while len(sound) < minutes * 60 * 32000:
        piece = " ".join(all_words[at : at + WORDS])
        voice = VOICES[at // WORDS % len(VOICES)]
        path = folder / "piece.wav"
        subprocess.run(["espeak-ng", "-v", voice, "-s", "150", "-w", str(path), piece], check=True)
        command = ["ffmpeg", "-loglevel", "error", "-y", "-i", str(path), "-f", "s16le", "-ar", "16000", "-ac", "1", "-"]
        sound += subprocess.run(command, check=True, capture_output=True).stdout + bytes(int(PAUSE * 16000) * 2)
        said.append(piece)
        at += WORDS
    path = folder / f"{minutes:g}-minutes.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(sound)
    return path, " ".join(said)


def akunu(command: str, model: str, threads: int, sound: Path) -> dict:
    arguments = ["transcribe", "-m", model, "-t", str(threads), "--language", "en", "--beam", "1", "--no-fallback", str(sound)]
    began = time.perf_counter()
    done = subprocess.run([command, *arguments], check=True, capture_output=True, text=True)
    return {"seconds": time.perf_counter() - began, "text": done.stdout}


def whisper_cpp(model: str, threads: int, sound: Path) -> dict:
    command = [sys.executable, "-c", PEER, model, str(threads), str(sound)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout[done.stdout.index("{") :])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("akunu")
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--audio", action="append", default=[], metavar="FILE=REFERENCE")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=5)
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as temporary:
        files = []
        for pair in options.audio:
            path, reference = pair.split("=", 1)
            files.append((Path(path), Path(reference).read_text()))
        if options.minutes > 0:
            files.append(speak(Path(options.text).read_text(), options.minutes, Path(temporary)))
        print("| file | seconds | akunu, s | whisper.cpp, s | ratio | akunu, real-time factor | errors akunu | errors whisper.cpp |")
        print("|---|---|---|---|---|---|---|---|")
        for sound, reference in files:
            with wave.open(str(sound)) as file:
                length = file.getnframes() / file.getframerate()
            ours, theirs = [], []
            for _ in range(options.rounds):
                ours.append(akunu(options.akunu, options.model, options.threads, sound))
                theirs.append(whisper_cpp(options.model, options.threads, sound))
            a, b = (min(run["seconds"] for run in runs) for runs in (ours, theirs))
            expected = words(reference)
            rates = [100 * errors(expected, words(runs[0]["text"])) / len(expected) for runs in (ours, theirs)]
            print(
                f"| {sound.name} | {length:.1f} | {a:.2f} | {b:.2f} | {b / a:.2f} | {a / length:.4f} "
                f"| {rates[0]:.1f} % | {rates[1]:.1f} % |"
            )


if __name__ == "__main__":
    main()
