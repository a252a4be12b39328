"""Generations for `async for`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from ._akunu import Answer, Generation


async def pieces(generation: Generation | Answer) -> AsyncIterator[str]:
    """The pieces, waited for on a thread of the event loop's own. Leaving the loop ends the generation."""
    loop = asyncio.get_running_loop()
    try:
        while (piece := await loop.run_in_executor(None, next, generation, None)) is not None:
            yield piece
    finally:
        generation.stop()
