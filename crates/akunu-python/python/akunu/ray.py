"""akunu on a Ray cluster: batches of texts with Ray Data, and OpenAI's routes with Ray Serve.

    dataset = ray.data.read_parquet("prompts/")
    akunu.ray.generate(dataset, "/models/model.gguf", workers=8, max_tokens=128).write_parquet("completions/")

    serve.run(akunu.ray.openai("/models/model.gguf", name="model", replicas=(1, 8)))

A model is a path or a name that every machine of the cluster has. Each worker loads it once and holds one engine. Needs
`pip install "akunu[ray]"`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import numpy as np
import ray.data
from ray import serve

import akunu

_Batch = dict[str, Any]


class Generate:
    """Adds a column of completions to batches; for `Dataset.map_batches`. `generate` below sets it up."""

    def __init__(
        self,
        model: str,
        column: str,
        output: str,
        errors: str | None,
        load: Mapping[str, Any],
        settings: Mapping[str, Any],
    ) -> None:
        self.model = akunu.Model.load(model, **load)
        self.column, self.output, self.errors, self.settings = column, output, errors, settings

    def __call__(self, batch: _Batch) -> _Batch:
        prompts = list(batch[self.column])
        if self.errors is None:
            texts = self.model.generate_many(prompts, **self.settings)
            return {**batch, self.output: np.array(texts, dtype=object)}
        outcomes = self.model.generate_many(prompts, return_exceptions=True, **self.settings)
        # No text and no error are empty texts: a column of nothing at all would have no type.
        texts = [outcome if isinstance(outcome, str) else "" for outcome in outcomes]
        errors = ["" if isinstance(outcome, str) else str(outcome) for outcome in outcomes]
        return {**batch, self.output: np.array(texts, dtype=object), self.errors: np.array(errors, dtype=object)}


class Embed:
    """Adds a column of vectors to batches; for `Dataset.map_batches`. `embed` below sets it up."""

    def __init__(self, model: str, column: str, output: str, cut: bool, load: Mapping[str, Any]) -> None:
        self.embedder = akunu.Embedder.load(model, **load)
        self.column, self.output, self.cut = column, output, cut

    def __call__(self, batch: _Batch) -> _Batch:
        return {**batch, self.output: self.embedder.embed(list(batch[self.column]), cut=self.cut)}


def generate(
    dataset: ray.data.Dataset,
    model: str,
    *,
    workers: int = 1,
    cpus: float = 1,
    batch_size: int = 64,
    column: str = "prompt",
    output: str = "completion",
    errors: str | None = None,
    load: Mapping[str, Any] | None = None,
    **settings: Any,
) -> ray.data.Dataset:
    """Completions of a column's texts, in a column of their own; all others stay.

    `workers` engines run at the same time, each on `cpus` cores, and take batches as they finish them: no more are read
    ahead than Ray's memory has room for. A worker that dies is replaced and its batch begins anew. A prompt that cannot be
    continued (empty, too long) ends the job, unless `errors` names a column: it then says what was wrong, and is empty where
    nothing was. `load` is for `akunu.Model.load`, `settings` for `akunu.Model.generate_many`.
    """
    options = {"threads": max(1, int(cpus)), "sequences": 8, **(load or {})}
    arguments = {
        "model": model, "column": column, "output": output, "errors": errors, "load": options, "settings": settings
    }
    return dataset.map_batches(
        Generate,
        fn_constructor_kwargs=arguments,
        batch_size=batch_size,
        compute=ray.data.ActorPoolStrategy(size=workers),
        num_cpus=cpus,
    )


def embed(
    dataset: ray.data.Dataset,
    model: str,
    *,
    workers: int = 1,
    cpus: float = 1,
    batch_size: int = 256,
    column: str = "text",
    output: str = "embedding",
    cut: bool = False,
    load: Mapping[str, Any] | None = None,
) -> ray.data.Dataset:
    """Vectors of a column's texts, in a column of their own; all others stay. A text that is too long ends the job, unless
    such texts are to be `cut`."""
    options = {"threads": max(1, int(cpus)), **(load or {})}
    return dataset.map_batches(
        Embed,
        fn_constructor_kwargs={"model": model, "column": column, "output": output, "cut": cut, "load": options},
        batch_size=batch_size,
        compute=ray.data.ActorPoolStrategy(size=workers),
        num_cpus=cpus,
    )


def openai(
    model: str,
    *,
    name: str,
    replicas: tuple[int, int] = (1, 1),
    cpus: float = 1,
    sequences: int = 8,
    load: Mapping[str, Any] | None = None,
) -> serve.Application:
    """The routes of `akunu serve` as a Ray Serve application, for `serve.run`.

    There are between `replicas[0]` and `replicas[1]` engines, as many as requests under way ask for; each takes
    `sequences` at the same time. Answers stream, and a client that goes away ends its answer.
    """
    options = {"threads": max(1, int(cpus)), "sequences": sequences, **(load or {})}
    deployment = serve.deployment(
        _Replica,
        name=f"akunu-{name}",
        max_ongoing_requests=2 * sequences,
        ray_actor_options={"num_cpus": cpus},
        autoscaling_config={
            "min_replicas": replicas[0],
            "max_replicas": replicas[1],
            "target_ongoing_requests": sequences,
        },
    )
    return deployment.bind(model, name, options)


class _Replica:
    """One engine behind akunu's own server; requests are handed to it as they are."""

    # What belongs to one connection and not to the message.
    HOP = frozenset({"connection", "host", "keep-alive", "transfer-encoding", "content-length", "upgrade"})

    def __init__(self, model: str, name: str, load: Mapping[str, Any]) -> None:
        self.server = akunu.Server(akunu.Model.load(model, **load), name=name)
        self.session: Any = None

    async def __call__(self, request: Any) -> Any:
        import aiohttp
        from starlette.responses import StreamingResponse

        if self.session is None:
            self.session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None), auto_decompress=False)
        url = self.server.url + request.url.path + (f"?{request.url.query}" if request.url.query else "")
        headers = {key: value for key, value in request.headers.items() if key.lower() not in self.HOP}
        # The engine's server would take its own page for another's: it is asked by another address here.
        if headers.get("origin", "").partition("://")[2] == request.headers.get("host"):
            headers.pop("origin", None)
        response = await self.session.request(
            request.method, url, headers=headers, data=await request.body(), allow_redirects=False
        )

        async def body() -> AsyncIterator[bytes]:
            try:
                async for chunk in response.content.iter_any():
                    yield chunk
            finally:
                response.close()

        kept = {key: value for key, value in response.headers.items() if key.lower() not in self.HOP}
        return StreamingResponse(body(), status_code=response.status, headers=kept)

    async def check_health(self) -> None:
        import urllib.request

        # Raises what Ray takes as a reason to replace the replica.
        urllib.request.urlopen(self.server.url + "/health", timeout=10).close()
