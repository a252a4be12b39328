"""What can go wrong, by kind."""

from __future__ import annotations


class AkunuError(Exception):
    """Something went wrong. `hint` says what can be done about it, where that is not plain from the message."""

    __module__ = "akunu"

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint

    def __reduce__(self) -> tuple[type[AkunuError], tuple[str, str | None]]:
        return type(self), (str(self), self.hint)


class UsageError(AkunuError, ValueError):
    """What was asked for makes no sense."""

    __module__ = "akunu"


class NotFoundError(AkunuError, LookupError):
    """There is no such model, file or tensor."""

    __module__ = "akunu"


class BadDataError(AkunuError, ValueError):
    """A file does not follow its format, or is not the one that was promised."""

    __module__ = "akunu"


class UnsupportedError(AkunuError):
    """Well formed, but nothing akunu can do."""

    __module__ = "akunu"


class DeniedError(AkunuError):
    """The system or a server said no."""

    __module__ = "akunu"


class UnavailableError(AkunuError):
    """Something is full or busy, or a network failed; trying again may help."""

    __module__ = "akunu"


class SystemFailure(AkunuError):
    """The operating system failed."""

    __module__ = "akunu"


class StoppedError(AkunuError):
    """Somebody asked to stop."""

    __module__ = "akunu"
