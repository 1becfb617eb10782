"""Know the requests of a caller without an answer: a caller may close its stdin and still read."""

from __future__ import annotations

from typing import Any

import anyio
import mcp_types as types
from anyio.abc import ObjectSendStream

CANCELLED = "notifications/cancelled"


class OpenRequests(ObjectSendStream[Any]):
    """The stream of answers to a caller; it also hears the caller's messages."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._open: set[int | str] = set()
        self._answered = anyio.Event()

    def hear(self, message: Any) -> None:
        """Note a request, or its cancellation: that one gets no answer."""
        if isinstance(message, types.JSONRPCRequest):
            self._open.add(message.id)
        elif isinstance(message, types.JSONRPCNotification) and message.method == CANCELLED:
            self._close((message.params or {}).get("requestId"))

    async def send(self, item: Any) -> None:
        """Send an answer, or a message of the server's own."""
        await self._inner.send(item)
        if isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError):
            self._close(item.message.id)

    async def aclose(self) -> None:
        """Close the stream."""
        await self._inner.aclose()

    async def wait(self) -> None:
        """Return when every request has its answer."""
        while self._open:
            await self._answered.wait()

    def _close(self, number: Any) -> None:
        self._open.discard(number)
        self._answered.set()
        self._answered = anyio.Event()
