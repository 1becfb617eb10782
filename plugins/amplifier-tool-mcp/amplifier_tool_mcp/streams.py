"""Change messages between a transport of the SDK and the SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anyio import EndOfStream
from anyio.abc import ObjectReceiveStream

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class ChangedStream(ObjectReceiveStream[Any]):
    """The items of a stream, messages and errors, as `change` returns them; None drops one.

    Its end waits for `end`.
    """

    def __init__(
        self, inner: Any, change: Callable[[Any], Awaitable[Any]], end: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self._inner, self._change, self._end = inner, change, end

    @property
    def last_context(self) -> Any:
        """The context of the last message's sender, as streams of the SDK have it."""
        return self._inner.last_context

    async def receive(self) -> Any:
        """Return the next item. Raises `anyio.EndOfStream`."""
        while True:
            try:
                item = await self._inner.receive()
            except EndOfStream:
                if self._end is not None:
                    await self._end()
                raise
            if (item := await self._change(item)) is not None:
                return item

    async def aclose(self) -> None:
        """Close the stream."""
        await self._inner.aclose()
