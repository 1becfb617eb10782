"""Read the pieces of an answer to its end, and emit them as they come.

For each block of an attempt, in order: `llm:stream_block_start`, a `llm:stream_block_delta` for each piece of text, and
`llm:stream_block_end`. A failed attempt ends with `llm:stream_aborted`: its blocks are void.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .texts import well_formed

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable

    from amplifier_core import HookRegistry
    from amplifier_core.message_models import Usage

START, DELTA, END, ABORTED = (
    "llm:stream_block_start",
    "llm:stream_block_delta",
    "llm:stream_block_end",
    "llm:stream_aborted",
)
LAST_WAIT = 1.0
"""Seconds of silence behind the end of an answer, after which its connection is left."""
T = TypeVar("T")


class UntilEnd(Generic[T]):
    """The pieces of an answer. Once its reader sets `is_whole`, an error or a silence behind it ends them as well.

    The end of the connection is waited for: it can be used again, then. It is for a protocol with a piece that nothing
    of the answer can follow.
    """

    def __init__(self, pieces: AsyncIterable[T]) -> None:
        self._pieces = aiter(pieces)
        self.is_whole = False

    def __aiter__(self) -> UntilEnd[T]:
        return self

    async def __anext__(self) -> T:
        if not self.is_whole:
            return await anext(self._pieces)
        try:
            async with asyncio.timeout(LAST_WAIT):
                return await anext(self._pieces)
        except Exception:
            raise StopAsyncIteration from None


class BlockStream:
    """The stream of one request, attempt by attempt; silent without `hooks`. `request_id` is in each of its events."""

    def __init__(self, hooks: HookRegistry | None, request_id: str) -> None:
        self._hooks = hooks
        self._place: dict[str, Any] = {"request_id": request_id, "block_index": -1}
        self._sequence = 0
        self._is_shown = False
        self._half = ""
        """The first half of a surrogate pair at the end of the last piece."""
        self.usage: Usage | None = None
        """What the running attempt has used, as far as the service has told it: it is paid, however it ends.

        It is the usage of the response, too, unless that has one.
        """
        task = asyncio.current_task()
        self._task = task
        self._cancelling = task.cancelling() if task else 0

    @property
    def has_begun(self) -> bool:
        """Whether the running attempt has a block."""
        return int(self._place["block_index"]) >= 0

    def note_usage(self, read: Callable[[], Usage | None]) -> None:
        """Keep what the running attempt has used so far; what is told in other values than counts changes nothing."""
        with suppress(AttributeError, TypeError, ValueError, ArithmeticError):
            self.usage = read() or self.usage

    async def start(self, kind: str | None, **more: str) -> None:
        """Begin the next block: `text`, `thinking`, or `tool_use` with its `name`; None is one that nobody shows."""
        self._is_shown = kind is not None
        if kind is None:
            return
        index = self._place["block_index"] + 1
        self._place = {**self._place, "block_index": index, "block_type": kind}
        self._sequence, self._half = 0, ""
        await self._emit(START, {**self._place, **more})

    async def delta(self, text: str) -> None:
        """Pass on a piece of the block's text; an empty one is none, and a half of a character waits for the other."""
        text, self._half = self._half + text, ""
        if "\ud800" <= text[-1:] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        if text and self._is_shown:
            sequence, self._sequence = self._sequence, self._sequence + 1
            await self._emit(DELTA, {**self._place, "sequence": sequence, "text": well_formed(text)})

    async def end(self) -> None:
        """End the block."""
        if self._is_shown:
            await self._emit(END, self._place)

    async def abort(self, error: Exception) -> None:
        """Void the blocks of an attempt that failed, if there are any."""
        if self.has_begun:
            problem = {"type": type(error).__name__, "msg": str(error)}
            self._place["block_index"] = -1
            await self._emit(ABORTED, {"request_id": self._place["request_id"], "error": problem})

    async def _emit(self, event: str, data: dict[str, Any]) -> None:
        if self._hooks is None:
            return
        await self._hooks.emit(event, dict(data))
        # A handler may keep a cancellation that is meant for this task; hooks of other kernels lose every one.
        if self._task is not None and self._task.cancelling() > self._cancelling:
            raise asyncio.CancelledError
