"""A Ray cluster with two workers, one of which is killed in the middle of its work; and OpenAI's routes with Ray Serve.

    python ray_cluster.py MODEL    a small GGUF file with a vocabulary

Every row has an id: in the end none is missing and none is there twice.
"""

from __future__ import annotations

import collections
import json
import os
import pathlib
import signal
import sys
import tempfile
import threading
import time
import urllib.request

import akunu.ray
import numpy as np
import ray
import ray.data
from ray import serve

ROWS = 240


class Witness(akunu.ray.Generate):
    """Says which process works on a batch, and takes its time."""

    def __init__(self, folder: str, **arguments: object) -> None:
        super().__init__(**arguments)  # type: ignore[arg-type]
        self.folder = pathlib.Path(folder)

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        (self.folder / f"{os.getpid()}-{time.monotonic_ns()}").touch()
        time.sleep(0.2)
        return super().__call__(batch)


def workers(folder: pathlib.Path) -> collections.Counter[int]:
    return collections.Counter(int(path.name.split("-")[0]) for path in folder.iterdir())


def a_killed_worker_loses_no_row(model: str, folder: pathlib.Path) -> None:
    seen, out = folder / "seen", folder / "out"
    seen.mkdir()
    killed: list[int] = []

    def kill_one() -> None:
        # In the middle: both have done something, and most is still to do.
        while len(counts := workers(seen)) < 2 or min(counts.values()) < 2:
            time.sleep(0.02)
        killed.append(min(counts))
        os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill_one, daemon=True)
    killer.start()
    rows = [{"id": i, "prompt": f"row {i}"} for i in range(ROWS)]
    dataset = ray.data.from_items(rows, override_num_blocks=24).map_batches(
        Witness,
        fn_constructor_kwargs={
            "folder": str(seen), "model": model, "column": "prompt", "output": "completion", "errors": None,
            "load": {"threads": 1, "sequences": 4}, "settings": {"max_tokens": 4},
        },
        batch_size=10,
        compute=ray.data.ActorPoolStrategy(size=2),
        num_cpus=1,
    )
    dataset.write_parquet(str(out))
    killer.join(timeout=5)
    assert killed, "nobody was killed"
    written = ray.data.read_parquet(str(out)).take_all()
    ids = collections.Counter(row["id"] for row in written)
    assert set(ids) == set(range(ROWS)), f"missing: {set(range(ROWS)) - set(ids)}"
    assert set(ids.values()) == {1}, f"twice: {[row for row, count in ids.items() if count > 1]}"
    engine = akunu.Model.load(model, threads=1)
    for row in written[::40]:
        assert row["completion"] == engine.generate(row["prompt"], max_tokens=4).read(), row
    print(f"ray data: {ROWS} rows, each once, with worker {killed[0]} killed", flush=True)


def a_bad_row_is_named_and_no_other_lost(model: str, folder: pathlib.Path) -> None:
    prompts = ["", "long " * 5000, "good"]
    ray.data.from_items([{"id": i, "prompt": prompts[i % 3]} for i in range(30)]).write_parquet(str(folder / "in"))
    dataset = akunu.ray.generate(
        ray.data.read_parquet(str(folder / "in")), model, workers=2, batch_size=4, errors="error", max_tokens=4,
        load={"sequences": 2},
    )
    dataset.write_parquet(str(folder / "out"))
    rows = ray.data.read_parquet(str(folder / "out")).take_all()
    assert sorted(row["id"] for row in rows) == list(range(30))
    expected = akunu.Model.load(model, threads=1).generate("good", max_tokens=4).read()
    for row in rows:
        good = row["id"] % 3 == 2
        assert (row["error"] == "") == good and row["completion"] == (expected if good else ""), row
    print("ray data: bad rows are named, the others done", flush=True)


def texts_become_vectors(model: str) -> None:
    dataset = ray.data.from_items([{"id": i, "text": f"text {i % 3}"} for i in range(12)])
    rows = akunu.ray.embed(dataset, model, load={"threads": 1}).take_all()
    try:
        akunu.ray.embed(ray.data.from_items([{"text": "long " * 5000}]), model, load={"threads": 1}).take_all()
        raise AssertionError("a text that is too long was taken")
    except ray.exceptions.RayTaskError as error:
        assert "cut" in str(error) or "tokens" in str(error), error
    long = akunu.ray.embed(ray.data.from_items([{"text": "long " * 5000}]), model, cut=True, load={"threads": 1})
    assert len(long.take_all()) == 1
    first = {row["id"]: np.asarray(row["embedding"]) for row in rows}
    assert len(first) == 12 and np.array_equal(first[0], first[3]) and not np.array_equal(first[0], first[1])
    print("ray data: vectors", flush=True)


def openai_routes_answer(model: str) -> None:
    serve.start(http_options={"port": 8642, "host": "127.0.0.1"})
    serve.run(akunu.ray.openai(model, name="tiny", replicas=(1, 2), sequences=2), route_prefix="/")
    body = {"model": "tiny", "prompt": "hello", "max_tokens": 4}
    for stream in (False, True):
        request = urllib.request.Request(
            "http://127.0.0.1:8642/v1/completions",
            json.dumps({**body, "stream": stream}).encode(),
            {"Content-Type": "application/json"},
        )
        answer = urllib.request.urlopen(request, timeout=60).read().decode()
        if stream:
            assert answer.rstrip().endswith("data: [DONE]"), answer
        else:
            assert json.loads(answer)["choices"][0]["finish_reason"] in ("stop", "length"), answer
    print("ray serve: answers, whole and streamed", flush=True)
    a_second_replica_comes_when_it_is_needed(body)
    serve.shutdown()


def a_second_replica_comes_when_it_is_needed(body: dict[str, object]) -> None:
    ended = threading.Event()

    def ask() -> None:
        while not ended.is_set():
            request = urllib.request.Request(
                "http://127.0.0.1:8642/v1/completions",
                json.dumps({**body, "max_tokens": 200}).encode(),
                {"Content-Type": "application/json"},
            )
            urllib.request.urlopen(request, timeout=60).read()

    clients = [threading.Thread(target=ask) for _ in range(8)]
    for client in clients:
        client.start()
    began = time.monotonic()
    running = 1
    # Serve waits half a minute before it believes that there is more to do.
    while running < 2 and time.monotonic() - began < 120:
        time.sleep(1)
        running = serve.status().applications["default"].deployments["akunu-tiny"].replica_states.get("RUNNING", 0)
    ended.set()
    for client in clients:
        client.join()
    assert running == 2, running
    print(f"ray serve: a second replica after {time.monotonic() - began:.0f} s of load", flush=True)


def main() -> None:
    model = str(pathlib.Path(sys.argv[1]).resolve())
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as folder:
        a_killed_worker_loses_no_row(model, pathlib.Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        a_bad_row_is_named_and_no_other_lost(model, pathlib.Path(folder))
    texts_become_vectors(model)
    openai_routes_answer(model)
    ray.shutdown()


if __name__ == "__main__":
    main()
