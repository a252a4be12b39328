"""What the package promises."""

from __future__ import annotations

import asyncio
import doctest
import gc
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable

import akunu
import numpy as np
import pytest

# The end token of the tiny models, forbidden where a text must go on.
ENDLESS = {2: float("-inf")}


def test_examples_in_docstrings_run(
    model: akunu.Model, chatty: akunu.Model, embedder: akunu.Embedder, tiny: pathlib.Path
) -> None:
    names = {
        "akunu": akunu, "tiny": tiny, "chatty": chatty, "embedder": embedder, "urllib": urllib,
        "model": akunu.Model.load(tiny, threads=1, sequences=2),
    }
    urllib.request  # noqa: B018: imported for the example
    runner = doctest.DocTestRunner(optionflags=doctest.IGNORE_EXCEPTION_DETAIL)
    parser = doctest.DocTestParser()
    tried = 0
    for name, item in [("akunu", akunu), *vars(akunu._akunu).items()]:
        members = vars(item).items() if isinstance(item, type) else ()
        for where, text in [(name, item.__doc__), *((f"{name}.{key}", value.__doc__) for key, value in members)]:
            if text and ">>>" in text:
                tried += runner.run(parser.get_doctest(text, dict(names), where, None, None)).attempted
    assert tried > 12
    assert runner.failures == 0


def test_pieces_tokens_and_text_agree(model: akunu.Model) -> None:
    generation = model.generate("hello", max_tokens=12, logit_bias=ENDLESS)
    pieces = list(generation)
    assert "".join(pieces) == generation.text
    assert generation.finish_reason == "length"
    assert generation.statistics is not None and generation.statistics.generated_tokens == 12
    assert model.detokenize(generation.tokens).strip() == generation.text.strip()
    again = model.generate(model.tokenize("hello", add_special=True), max_tokens=12, logit_bias=ENDLESS)
    assert again.read() == generation.text


def test_the_same_seed_gives_the_same_text(model: akunu.Model) -> None:
    def text(seed: int) -> str:
        return model.generate("hello", max_tokens=16, temperature=1.5, seed=seed, logit_bias=ENDLESS).read()

    assert text(1) == text(1)
    assert len({text(seed) for seed in range(8)}) > 1


def test_texts_follow_constraints(model: akunu.Model) -> None:
    cases: list[tuple[akunu.Constraint, Callable[[str], bool]]] = [
        (akunu.Constraint.regex("[ab]{5}"), lambda text: len(text) == 5 and set(text) <= set("ab")),
        (akunu.Constraint.choice(["left", "right"]), lambda text: text in ("left", "right")),
        (akunu.Constraint.json_schema({"enum": [1, 22]}), lambda text: text in ("1", "22")),
        (akunu.Constraint.grammar('root ::= "x" | "yy"'), lambda text: text in ("x", "yy")),
    ]
    for constraint, fits in cases:
        assert fits(model.generate("hello", constraint=constraint).read())


def test_many_texts_are_what_each_would_be_alone(model: akunu.Model) -> None:
    prompts = ["hello", "good bye", "a", "b", "c"]
    together = model.generate_many(prompts, max_tokens=8)
    assert together == [model.generate(prompt, max_tokens=8).read() for prompt in prompts]


def test_prompts_that_fail_leave_the_others_alone(model: akunu.Model) -> None:
    good, empty, none = model.generate_many(["hello", "", None], max_tokens=8, return_exceptions=True)  # type: ignore[call-overload]
    assert good == model.generate("hello", max_tokens=8).read()
    assert isinstance(empty, akunu.UsageError) and str(empty).startswith("prompt 1: ")
    assert isinstance(none, TypeError)


def test_letting_go_frees_the_sequence(model: akunu.Model) -> None:
    for _ in range(5):
        for _piece in model.generate("hello", logit_bias=ENDLESS, context_shift=True):
            break
        gc.collect()
    with pytest.raises(akunu.UsageError, match="all sequences of the model are in use"):
        [model.generate("hello", logit_bias=ENDLESS, context_shift=True) for _ in range(3)]
    gc.collect()
    assert model.generate("hello", max_tokens=4, logit_bias=ENDLESS).read()


def test_another_thread_stops_a_generation(model: akunu.Model) -> None:
    generation = model.generate("hello", logit_bias=ENDLESS, context_shift=True)
    next(generation)
    threading.Timer(0.05, generation.stop).start()
    for _piece in generation:
        pass
    assert generation.finish_reason == "cancelled"


def test_async_iteration_leaves_the_loop_free(model: akunu.Model) -> None:
    async def both() -> tuple[str, int]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticker = asyncio.create_task(tick())
        text = ""
        async for piece in model.generate("hello", max_tokens=24, logit_bias=ENDLESS):
            text += piece
        ticker.cancel()
        return text, ticks

    text, ticks = asyncio.run(both())
    assert text == model.generate("hello", max_tokens=24, logit_bias=ENDLESS).read()
    assert ticks > 10


def test_a_conversation_remembers(chatty: akunu.Model) -> None:
    chat = chatty.chat(system="Be brief.", max_tokens=4, temperature=0)
    first = chat.ask("hi").read()
    second = chat.ask("and?")
    second.read()
    assert [message["role"] for message in chat.messages] == ["system", "user", "assistant", "user", "assistant"]
    assert chat.messages[2]["content"] == first
    assert second.statistics is not None and second.statistics.cached_tokens > 0
    chat.messages = [{"role": "user", "content": "x"}]
    assert len(chat.messages) == 1
    with pytest.raises(akunu.UsageError):
        chat.messages = [{"content": "nobody said this"}]  # type: ignore[typeddict-item]
    chat.reset()
    assert chat.messages == []


def test_vectors_are_arrays_of_their_own_memory(embedder: akunu.Embedder, model: akunu.Model) -> None:
    vectors = embedder.embed(["hello", "good bye"])
    assert vectors.shape == (2, embedder.dimensions) and vectors.dtype == np.float32
    assert vectors.flags.c_contiguous and vectors.flags.writeable
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert np.array_equal(model.embed(["hello"])[0], vectors[0])
    assert embedder.embed(["hello"], dimensions=4).shape == (1, 4)
    assert embedder.embed([]).shape == (0, embedder.dimensions)


def test_errors_have_kinds_and_hints(model: akunu.Model, tmp_path: pathlib.Path) -> None:
    with pytest.raises(akunu.NotFoundError) as missing:
        akunu.Model.load("smolm2")
    assert "did you mean smollm2" in (missing.value.hint or "")
    assert pickle.loads(pickle.dumps(missing.value)).hint == missing.value.hint
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\xff" * 64)
    with pytest.raises(akunu.AkunuError):
        akunu.Model.load(broken)
    with pytest.raises(ValueError, match='there is no setting "temprature"'):
        model.generate("hello", temprature=1)  # type: ignore[call-arg]
    with pytest.raises(akunu.UsageError, match="temperature"):
        model.generate("hello", temperature=-1)
    with pytest.raises(akunu.UsageError, match="context"):
        model.generate("x" * 4096)
    with pytest.raises(akunu.UsageError, match="^prompt 1: .*empty"):
        model.generate_many(["a", ""])
    for prompt in (None, [-1]):
        with pytest.raises(TypeError, match="a prompt is"):
            model.generate(prompt)  # type: ignore[arg-type]
    with pytest.raises(akunu.UsageError, match="max_tokens cannot be -1"):
        model.generate("a", max_tokens=-1)
    with pytest.raises(TypeError, match="temperature cannot be 'hot'"):
        model.generate("a", temperature="hot")  # type: ignore[arg-type]
    with pytest.raises(LookupError, match="chat template"):
        model.chat()


def test_the_server_answers(chatty: akunu.Model) -> None:
    import json

    with akunu.Server(chatty, name="tiny") as server:
        body = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4})
        request = urllib.request.Request(
            server.url + "/v1/chat/completions", body.encode(), {"Content-Type": "application/json"}
        )
        answer = json.load(urllib.request.urlopen(request))
    assert answer["choices"][0]["message"]["role"] == "assistant"


def test_a_server_others_can_reach_needs_a_key(chatty: akunu.Model) -> None:
    with pytest.raises(akunu.UsageError, match="can be reached by others"):
        akunu.Server(chatty, name="tiny", host="0.0.0.0")
    with pytest.raises(akunu.UsageError, match="api_key is empty"):
        akunu.Server(chatty, name="tiny", api_key="")
    with akunu.Server(chatty, name="tiny", api_key="secret") as server:
        request = urllib.request.Request(server.url + "/v1/models", headers={"Authorization": "Bearer secret"})
        assert urllib.request.urlopen(request).status == 200
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(server.url + "/v1/models")
        # The model is the program's.
        request = urllib.request.Request(
            server.url + "/v1/models/unload", b'{"model": "tiny"}', headers={"Authorization": "Bearer secret"}
        )
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(request)


def test_more_than_there_is_memory_for_is_an_error(tiny: pathlib.Path) -> None:
    with pytest.raises(akunu.UsageError, match="sequences is 100000"):
        akunu.Model.load(tiny, sequences=100_000)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only Unix forks")
def test_a_forked_process_is_told_to_load_the_model_itself(tiny: pathlib.Path) -> None:
    program = """
import akunu, os, sys
model = akunu.Model.load(sys.argv[1], threads=2)
child = os.fork()
if child == 0:
    try:
        model.generate("hello", max_tokens=1).read()
    except akunu.AkunuError as error:
        print(error, flush=True)
    del model
    sys.exit(0)
os.waitpid(child, 0)
generation = model.generate("hello", max_tokens=1)
generation.read()
print(generation.finish_reason, flush=True)
"""
    run = subprocess.run(
        [sys.executable, "-c", program, str(tiny)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60
    )
    child, parent = run.stdout.splitlines()
    assert "load it after forking" in child and parent == "length" and run.stderr == ""


# Ctrl-C is switched off in programs that a shell starts in the background.
PROGRAM = """
import akunu, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
model = akunu.Model.load(sys.argv[1], threads=1)
print("ready", flush=True)
try:
    for piece in model.generate("hello", logit_bias={2: float("-inf")}, context_shift=True):
        pass
except KeyboardInterrupt:
    print("interrupted", flush=True)
print(model.generate("hello", max_tokens=1).finish_reason, flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="signals are another matter on Windows")
def test_ctrl_c_ends_a_generation(tiny: pathlib.Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tiny)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=20)
    finally:
        process.kill()
    assert out == "interrupted\nNone\n"
    assert process.returncode == 0


def test_other_threads_run_while_a_model_works(model: akunu.Model) -> None:
    counted = 0
    done = threading.Event()

    def count() -> None:
        nonlocal counted
        while not done.is_set():
            counted += 1

    counter = threading.Thread(target=count)
    counter.start()
    model.generate("hello", max_tokens=48, logit_bias=ENDLESS).read()
    done.set()
    counter.join()
    assert counted > 0
