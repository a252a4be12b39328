from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypedDict, overload

import numpy as np
from numpy.typing import NDArray
from typing_extensions import NotRequired, Self, Unpack

_Finish = Literal["stop", "stop_string", "length", "cancelled"]

class _Settings(TypedDict, total=False):
    max_tokens: int | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repeat_penalty: float | None
    frequency_penalty: float | None
    presence_penalty: float | None
    repeat_last_n: int | None
    seed: int | None
    logit_bias: Mapping[int, float] | None
    stop: str | Sequence[str] | None
    constraint: Constraint | None
    speculate: bool | None
    context_shift: bool | None

class _Message(TypedDict):
    role: str
    content: NotRequired[Any]
    reasoning_content: NotRequired[str]

class Constraint:
    @staticmethod
    def json_object() -> Constraint: ...
    @staticmethod
    def json_schema(schema: Mapping[str, Any] | bool | str) -> Constraint: ...
    @staticmethod
    def regex(pattern: str) -> Constraint: ...
    @staticmethod
    def grammar(source: str) -> Constraint: ...
    @staticmethod
    def choice(texts: Sequence[str]) -> Constraint: ...

class Statistics:
    @property
    def prompt_tokens(self) -> int: ...
    @property
    def cached_tokens(self) -> int: ...
    @property
    def generated_tokens(self) -> int: ...
    @property
    def prefill_seconds(self) -> float: ...
    @property
    def decode_seconds(self) -> float: ...
    @property
    def prefill_rate(self) -> float: ...
    @property
    def decode_rate(self) -> float: ...

class _Pieces(Iterator[str]):
    def __next__(self) -> str: ...
    def __aiter__(self) -> AsyncIterator[str]: ...
    def read(self) -> str: ...
    def stop(self) -> None: ...
    @property
    def text(self) -> str: ...
    @property
    def finish_reason(self) -> _Finish | None: ...
    @property
    def statistics(self) -> Statistics | None: ...

class Generation(_Pieces):
    @property
    def tokens(self) -> list[int]: ...

class Answer(_Pieces):
    @property
    def thoughts(self) -> str: ...

class Chat:
    def ask(self, text: str) -> Answer: ...
    def reset(self) -> None: ...
    @property
    def messages(self) -> list[_Message]: ...
    @messages.setter
    def messages(self, messages: Sequence[_Message]) -> None: ...

class Embedder:
    @staticmethod
    def load(
        path: str | PathLike[str],
        *,
        context: int | None = None,
        threads: int | None = None,
        backend: str = "auto",
        pooling: Literal["cls", "mean", "last"] | None = None,
    ) -> Embedder: ...
    @property
    def dimensions(self) -> int: ...
    @property
    def context(self) -> int: ...
    def embed(
        self, texts: Sequence[str], *, normalize: bool = True, dimensions: int | None = None, cut: bool = False
    ) -> NDArray[np.float32]: ...

class Model:
    @staticmethod
    def load(
        path: str | PathLike[str],
        *,
        context: int | None = None,
        threads: int | None = None,
        sequences: int = 1,
        batch: int = 512,
        backend: str = "auto",
        kv: Literal["f16", "q8_0"] = "f16",
    ) -> Model: ...
    @property
    def path(self) -> Path: ...
    @property
    def architecture(self) -> str: ...
    @property
    def backend(self) -> str: ...
    @property
    def context(self) -> int: ...
    @property
    def sequences(self) -> int: ...
    @property
    def vocabulary(self) -> int: ...
    def tokenize(self, text: str, *, special: bool = False, add_special: bool = False) -> list[int]: ...
    def detokenize(self, tokens: Sequence[int]) -> str: ...
    def generate(self, prompt: str | Sequence[int], **settings: Unpack[_Settings]) -> Generation: ...
    @overload
    def generate_many(
        self, prompts: Sequence[str | Sequence[int]], *, return_exceptions: Literal[False] = False, **settings: Unpack[_Settings]
    ) -> list[str]: ...
    @overload
    def generate_many(
        self, prompts: Sequence[str | Sequence[int]], *, return_exceptions: Literal[True], **settings: Unpack[_Settings]
    ) -> list[str | Exception]: ...
    def chat(self, *, system: str | None = None, **settings: Unpack[_Settings]) -> Chat: ...
    def embed(
        self, texts: Sequence[str], *, normalize: bool = True, dimensions: int | None = None, cut: bool = False
    ) -> NDArray[np.float32]: ...

class Server:
    def __init__(
        self,
        model: Model,
        *,
        name: str,
        host: str = "127.0.0.1",
        port: int = 0,
        queue: int = 64,
        api_key: str | None = None,
        allow_public: bool = False,
    ) -> None: ...
    @property
    def url(self) -> str: ...
    def stop(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

class Transcription:
    @property
    def text(self) -> str: ...
    @property
    def language(self) -> str: ...
    @property
    def duration(self) -> float: ...
    @property
    def segments(self) -> list[dict[str, Any]]: ...
    @property
    def damage(self) -> str | None: ...
    def write(self, format: Literal["txt", "srt", "vtt", "json"]) -> str: ...

class Transcriber:
    @staticmethod
    def load(
        path: str | PathLike[str], *, threads: int | None = None, backend: str = "auto", beams: int = 5
    ) -> Transcriber: ...
    @property
    def multilingual(self) -> bool: ...
    def transcribe(
        self,
        audio: str | PathLike[str] | NDArray[np.float32],
        *,
        language: str | None = None,
        translate: bool = False,
        prompt: str | None = None,
        carry_prompt: bool = False,
        condition_on_previous_text: bool = True,
        timestamps: bool = True,
        words: bool = False,
        beams: int | None = None,
        patience: float = 1.0,
        best_of: int | None = None,
        temperatures: Sequence[float] | None = None,
        seed: int = 0,
        on_segment: Callable[[dict[str, Any]], object] | None = None,
    ) -> Transcription: ...

def pull(name: str) -> Path: ...
