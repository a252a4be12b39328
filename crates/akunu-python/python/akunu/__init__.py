"""Run language models in your own program.

>>> model = akunu.Model.load(tiny)
>>> for piece in model.generate("Once upon a time", max_tokens=3):
...     assert isinstance(piece, str)

`Model.generate` continues texts, `Model.chat` holds conversations, `Embedder` turns texts into vectors, `Transcriber` writes down
what is said, `Server` answers OpenAI's clients, `Constraint` says what a text must be like, `pull` fetches models by name. Work leaves the interpreter's lock
alone, and Ctrl-C ends it.
"""

import importlib.metadata

from ._akunu import (
    Answer,
    Chat,
    Constraint,
    Embedder,
    Generation,
    Model,
    Server,
    Statistics,
    Transcriber,
    Transcription,
    pull,
)
from ._errors import (
    AkunuError,
    BadDataError,
    DeniedError,
    NotFoundError,
    StoppedError,
    SystemFailure,
    UnavailableError,
    UnsupportedError,
    UsageError,
)

__version__ = importlib.metadata.version("akunu")

__all__ = [
    "AkunuError",
    "Answer",
    "BadDataError",
    "Chat",
    "Constraint",
    "DeniedError",
    "Embedder",
    "Generation",
    "Model",
    "NotFoundError",
    "Server",
    "Statistics",
    "StoppedError",
    "SystemFailure",
    "Transcriber",
    "Transcription",
    "UnavailableError",
    "UnsupportedError",
    "UsageError",
    "__version__",
    "pull",
]
