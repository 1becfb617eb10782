"""Hear the bytes of an answer, also those without a piece for anybody: a service that thinks says that it is there."""

from __future__ import annotations

from contextlib import aclosing
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

heard: ContextVar[Callable[[], None] | None] = ContextVar("amplifier_heard", default=None)
"""The function to call for the bytes of the answers in this context."""


async def hear_bytes(response: Any) -> None:
    """Call `heard` for each piece of the body: a hook for answers of `httpx` and `httpx2`."""
    if (hear := heard.get()) is not None:
        response.aiter_bytes = partial(_listen, hear, response.aiter_bytes)


async def _listen(hear: Callable[[], None], read: Any, chunk_size: int | None = None) -> AsyncGenerator[bytes]:
    async with aclosing(read(chunk_size)) as pieces:
        async for piece in pieces:
            hear()
            yield piece
