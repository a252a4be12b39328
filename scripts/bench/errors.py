#!/usr/bin/env python3
"""Word errors of `akunu transcribe` beside whisper.cpp, on the same files, model and settings.

    scripts/bench/errors.py AKUNU WHISPER_GGML [--audio FILE=REFERENCE.txt ...] [--threads N] [--openai] [--fallback]

Needs: pip install pywhispercpp, espeak-ng and ffmpeg. Texts of our own are read by espeak-ng in several voices and languages; each recording in
English given with --audio is taken as it is and in worse conditions. Every file is transcribed by both with the likeliest token each time and with five
hypotheses, the language given, every window tried once; with --fallback, what is unsure is tried again at higher temperatures, as all of them do
unless told otherwise. Errors are words to change, add or leave out, over words that were said, without
regard to case and punctuation. With --openai, what OpenAI's own program makes of the same weights stands beside them (pip install openai-whisper).
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from words import errors, words

TEXTS = {
    "en": "The library opens at nine in the morning and closes late in the evening. Children under twelve need an adult with them. "
    "You can borrow ten books for four weeks, and you may ask for more time by telephone. "
    "The reading room on the second floor is quiet, so please take calls outside.",
    "de": "Die Bibliothek öffnet um neun Uhr morgens und schließt spät am Abend. Kinder unter zwölf Jahren brauchen einen Erwachsenen. "
    "Sie können zehn Bücher für vier Wochen ausleihen und am Telefon um mehr Zeit bitten.",
    "fr": "La bibliothèque ouvre à neuf heures du matin et ferme tard le soir. Les enfants de moins de douze ans viennent avec un adulte. "
    "Vous pouvez emprunter dix livres pour quatre semaines et demander plus de temps par téléphone.",
    "es": "La biblioteca abre a las nueve de la mañana y cierra tarde por la noche. Los niños menores de doce años vienen con un adulto. "
    "Usted puede llevar diez libros durante cuatro semanas y pedir más tiempo por teléfono.",
    "it": "La biblioteca apre alle nove del mattino e chiude tardi la sera. I bambini sotto i dodici anni vengono con un adulto. "
    "Potete prendere dieci libri per quattro settimane e chiedere più tempo per telefono.",
    "pt": "A biblioteca abre às nove da manhã e fecha tarde à noite. As crianças com menos de doze anos vêm com um adulto. "
    "Pode levar dez livros durante quatro semanas e pedir mais tempo por telefone.",
    "ru": "Библиотека открывается в девять часов утра и закрывается поздно вечером. Дети до двенадцати лет приходят со взрослыми. "
    "Можно взять десять книг на четыре недели и попросить больше времени по телефону.",
}

VOICES = [
    ("en", "en-us", 150), ("en", "en-us+f3", 150), ("en", "en-gb", 150), ("en", "en-gb-scotland", 140), ("en", "en-us+m4", 180),
    ("de", "de", 140), ("fr", "fr-fr", 140), ("es", "es", 140), ("it", "it", 140), ("pt", "pt-br", 140), ("ru", "ru", 140),
]  # fmt: skip

# ffmpeg's filters.
CONDITIONS = {
    "as it is": "anull",
    "telephone": "highpass=f=300,lowpass=f=3400,aresample=8000",
    "faster": "atempo=1.3",
    "slower": "atempo=0.8",
    "echo": "aecho=0.8:0.7:60|120:0.4|0.25",
    "quiet": "volume=0.03",
}

PEER = """
import json, sys
from pywhispercpp.model import Model
path, threads, beams, step = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
search = {"params_sampling_strategy": 1} if beams > 1 else {}
quiet = dict(print_progress=False, print_realtime=False, print_timestamps=False, redirect_whispercpp_logs_to=None)
found = []
for line in sys.stdin:
    sound, language = json.loads(line)
    # Another one for each file: what was heard before would be context.
    model = Model(path, n_threads=threads, **quiet, **search)
    how = {"beam_search": {"beam_size": beams, "patience": 1.0}} if beams > 1 else {"greedy": {"best_of": 5 if step else 1}}
    segments = model.transcribe(sound, language=language, temperature_inc=step, no_context=False, **how)
    found.append(" ".join(segment.text for segment in segments))
print()
print("FOUND" + json.dumps(found))
"""


def convert(source: Path, filters: str, out: Path) -> None:
    command = ["ffmpeg", "-loglevel", "error", "-y", "-i", str(source), "-af", filters]
    subprocess.run([*command, "-ar", "16000", "-ac", "1", "-c:a", "pcm_s16le", str(out)], check=True)


def akunu(options: argparse.Namespace, beams: int, sound: Path, language: str) -> str:
    arguments = ["-m", options.model, "-t", str(options.threads), "--language", language, "--beam", str(beams), str(sound)]
    once = [] if options.fallback else ["--no-fallback"]
    return subprocess.run([options.akunu, "transcribe", *once, *arguments], check=True, capture_output=True, text=True).stdout


def openai(options: argparse.Namespace, beams: int, files: list) -> list[str]:
    sys.path.append(str(Path(__file__).parent.parent / "oracle"))
    import torch
    from transcripts import load, samples

    torch.set_num_threads(options.threads)
    loaded = load(options.model)
    search = {"beam_size": beams} if beams > 1 else {}
    temperature = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0) if options.fallback else 0.0
    how = {"temperature": temperature, "fp16": False, "best_of": 5, **search}
    return [loaded.transcribe(samples(str(sound)), language=language, **how)["text"] for _, sound, language, _ in files]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("akunu")
    parser.add_argument("model")
    parser.add_argument("--audio", action="append", default=[], metavar="FILE=REFERENCE")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--openai", action="store_true")
    parser.add_argument("--fallback", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder, files = Path(temporary), []
        for pair in options.audio:
            path, reference = pair.split("=", 1)
            for name, filters in CONDITIONS.items():
                out = folder / f"{len(files)}.wav"
                convert(Path(path), filters, out)
                files.append((f"{Path(path).name}, {name}", out, "en", Path(reference).read_text()))
        for language, voice, speed in VOICES:
            raw, out = folder / "raw.wav", folder / f"{len(files)}.wav"
            subprocess.run(["espeak-ng", "-v", voice, "-s", str(speed), "-w", str(raw), TEXTS[language]], check=True)
            convert(raw, "anull", out)
            files.append((f"espeak-ng {voice}", out, language, TEXTS[language]))
        found = {}
        for beams in (1, 5):
            asked = "".join(json.dumps([str(sound), language]) + "\n" for _, sound, language, _ in files)
            command = [sys.executable, "-c", PEER, options.model, str(options.threads), str(beams), "0.2" if options.fallback else "0"]
            done = subprocess.run(command, check=True, capture_output=True, text=True, input=asked)
            theirs = json.loads(done.stdout[done.stdout.index("FOUND") + 5 :])
            ours = [akunu(options, beams, sound, language) for _, sound, language, _ in files]
            found[beams] = [ours, theirs]
            if options.openai:
                found[beams].append(openai(options, beams, files))
        peers = ["whisper.cpp", "OpenAI"] if options.openai else ["whisper.cpp"]
        print(" | ".join(["| file", "words", "akunu, likeliest", *peers, "akunu, five hypotheses", *peers]) + " |")
        columns = 1 + 2 * (1 + len(peers))
        print("|---" + "|--:" * columns + "|")
        totals = [0] * columns
        for i, (name, _, _, reference) in enumerate(files):
            expected = words(reference)
            counts = [errors(expected, words(side[i])) for beams in (1, 5) for side in found[beams]]
            totals = [total + count for total, count in zip(totals, [len(expected), *counts])]
            print(f"| {name} | {len(expected)} | " + " | ".join(map(str, counts)) + " |")
        rates = [f"{100 * count / totals[0]:.1f} %" for count in totals[1:]]
        print(f"| all | {totals[0]} | " + " | ".join(rates) + " |")


if __name__ == "__main__":
    main()
