#!/usr/bin/env python3
"""What openai-whisper makes of a recording with a model in whisper.cpp's F16 format.

    speech.py MODEL.bin AUDIO.wav OUT

OUT gets

    mel.bin         F16 little-endian [frames][mels]: the log-mel of the recording's own length; the rest of the window of
                    3000 frames repeats the last one
    tokens.json     the prompt, and what is written greedily after it
    states.bin      F32 [15][width]: every hundredth state of the encoder
    top.json        after each token from the last of the prompt on: the ids of the 20 largest logits, and the logits
    weights.bin     F32 [heads][tokens][150]: the cross-attention of the alignment heads, sums over ten states each

The recording must have 16 kHz and one channel. Everything is computed in float32 from the rounded log-mel.
"""

import argparse
import json
import struct
import wave
from pathlib import Path

import numpy as np
import torch
import whisper
from whisper.audio import N_FRAMES, log_mel_spectrogram, pad_or_trim
from whisper.model import ModelDimensions, Whisper, disable_sdpa

PROMPT = ["<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>"]
END = 50257


def load(path: Path) -> Whisper:
    data = path.read_bytes()
    sizes = struct.unpack_from("<11i", data, 4)
    vocabulary, audio_ctx, state, audio_heads, audio_layers, text_ctx, _, text_heads, text_layers, mels, _ = sizes
    at = 48
    rows, columns = struct.unpack_from("<ii", data, at)
    at += 8 + 4 * rows * columns
    (count,) = struct.unpack_from("<i", data, at)
    at += 4
    for _ in range(count):
        (length,) = struct.unpack_from("<i", data, at)
        at += 4 + length
    tensors = {}
    while at < len(data):
        rank, length, dtype = struct.unpack_from("<iii", data, at)
        at += 12
        shape = struct.unpack_from(f"<{rank}i", data, at)[::-1]
        at += 4 * rank
        name = data[at : at + length].decode()
        at += length
        kind = np.dtype("<f4" if dtype == 0 else "<f2")
        values = np.frombuffer(data, kind, int(np.prod(shape)), at).reshape(shape).astype(np.float32)
        at += values.size * kind.itemsize
        tensors[name] = torch.from_numpy(values.squeeze(-1) if shape[-1] == 1 else values)
    model = Whisper(
        ModelDimensions(
            n_mels=mels,
            n_audio_ctx=audio_ctx,
            n_audio_state=state,
            n_audio_head=audio_heads,
            n_audio_layer=audio_layers,
            n_vocab=vocabulary,
            n_text_ctx=text_ctx,
            n_text_state=state,
            n_text_head=text_heads,
            n_text_layer=text_layers,
        )
    )
    model.load_state_dict(tensors, strict=False)
    model.set_alignment_heads(whisper._ALIGNMENT_HEADS["tiny"])
    return model.eval()


@torch.no_grad()
def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("model", type=Path)
    arguments.add_argument("audio", type=Path)
    arguments.add_argument("out", type=Path)
    options = arguments.parse_args()
    model = load(options.model)
    with wave.open(str(options.audio)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (16000, 1, 2)
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768
    frames = len(samples) // 160 + 8
    mel = log_mel_spectrogram(pad_or_trim(samples), n_mels=model.dims.n_mels).T.numpy().astype(np.float16)
    mel[frames:] = mel[frames - 1]
    states = model.encoder(torch.from_numpy(mel[:N_FRAMES].T[None].astype(np.float32)))

    tokenizer = whisper.tokenizer.get_tokenizer(True, num_languages=99)
    prompt = [tokenizer.special_tokens[name] for name in PROMPT]
    text, top = list(prompt), []
    while len(text) < len(prompt) + 60:
        logits = model.decoder(torch.tensor([text]), states)[0, -1]
        best = torch.topk(logits, 20)
        top.append([best.indices.tolist(), [round(float(v), 5) for v in best.values]])
        if best.indices[0] == END:
            break
        text.append(int(best.indices[0]))
    print(tokenizer.decode(text[len(prompt) :]))

    scores = [None] * model.dims.n_text_layer
    for layer, block in enumerate(model.decoder.blocks):
        block.cross_attn.register_forward_hook(lambda _, ins, outs, layer=layer: scores.__setitem__(layer, outs[-1][0]))
    with disable_sdpa():
        model.decoder(torch.tensor([text]), states)
    heads = model.alignment_heads.indices().T.tolist()
    weights = torch.stack([scores[layer][head].softmax(dim=-1) for layer, head in heads])

    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "mel.bin").write_bytes(mel[:frames].astype("<f2").tobytes())
    (options.out / "tokens.json").write_text(json.dumps({"prompt": prompt, "text": text[len(prompt) :]}) + "\n")
    (options.out / "top.json").write_text(json.dumps(top) + "\n")
    (options.out / "states.bin").write_bytes(states[0, ::100].numpy().astype("<f4").tobytes())
    pooled = weights.reshape(len(heads), len(text), -1, 10).sum(dim=-1)
    (options.out / "weights.bin").write_bytes(pooled.numpy().astype("<f4").tobytes())


if __name__ == "__main__":
    main()
