"""Ask a server over streamable HTTP, within bounds."""

from __future__ import annotations

import math
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import httpx2

from amplifier_core.http_transport import EnvironmentTransport
from amplifier_core.network import certificates_misconfigured

from .errors import ServerError
from .streams import ChangedStream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

LONGEST_BODY = 16 * 1024 * 1024
"""Bytes of an answer, and of one event of a stream."""
CONNECT, READ = 30.0, 300.0
"""Seconds to connect, and between two pieces of an answer."""

statuses: ContextVar[list[int] | None] = ContextVar("statuses", default=None)
"""Takes the statuses of the answers to the requests that are made in its context."""


class BoundedTransport(httpx2.AsyncBaseTransport):
    """Bounds the size of answers, and remembers the last status: the SDK's errors do not tell it.

    It uses the proxies and certificates of the environment. Raises `NetworkMisconfigured`.
    """

    def __init__(self) -> None:
        self.status = 0
        """0 before the first answer, and after one that did not come, or broke off."""
        self.shown_status = ""
        """The last status, and the proxy that may have answered in place of the server."""
        try:
            context = httpx2.create_ssl_context()
        except OSError as error:
            raise certificates_misconfigured(error) from None
        self._inner = EnvironmentTransport(httpx2, context)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request. Raises `httpx2.TransportError`."""
        request.headers["Accept-Encoding"] = "identity"  # a small compressed body can be a huge one
        try:
            response: httpx2.Response = await self._inner.handle_async_request(request)
        except httpx2.TransportError:
            self.status = 0
            raise
        self.status = response.status_code
        proxy = response.extensions["proxy"] if request.url.scheme == "http" and self.status >= 500 else None
        self.shown_status = f"HTTP {self.status}" + (f" through {proxy}" if proxy else "")
        if (own := statuses.get()) is not None:
            own.append(response.status_code)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx2.RemoteProtocolError("the answer is compressed, though that was not asked for")
        is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        response.stream = _BoundedStream(self, response.stream, math.inf if is_stream else LONGEST_BODY)
        return response

    async def aclose(self) -> None:
        """Close all connections."""
        await self._inner.aclose()


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, transport: BoundedTransport, inner: Any, longest: float) -> None:
        self._transport, self._inner, self._longest = transport, inner, longest

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._longest
        try:
            async for piece in self._inner:
                left -= len(piece)
                if left < 0:
                    raise httpx2.RemoteProtocolError(f"the answer has more than {LONGEST_BODY >> 20} MiB")
                yield piece
        except httpx2.TransportError:
            self._transport.status = 0
            raise

    async def aclose(self) -> None:
        await self._inner.aclose()


@asynccontextmanager
async def open_http(
    url: str,
    headers: Mapping[str, str],
    transport: BoundedTransport,
    keeps: Callable[[Any], bool],
    auth: httpx2.Auth | None = None,
) -> AsyncIterator[Any]:
    """Yield the streams of messages to and from the server at an address. Raises `ServerError` for an invalid one.

    A message that `keeps` returns False for is dropped.
    """
    from mcp.client.streamable_http import streamable_http_client

    async def sift(item: Any) -> Any:
        return item if isinstance(item, Exception) or keeps(item.message) else None

    timeout = httpx2.Timeout(CONNECT, read=READ)
    try:
        client = httpx2.AsyncClient(headers=dict(headers), auth=auth, timeout=timeout, transport=transport)
        httpx2.URL(url)
    except (ValueError, TypeError, httpx2.InvalidURL) as error:
        raise ServerError(f"its address or its headers cannot be sent: {error}") from None
    async with client, streamable_http_client(url, http_client=client, max_sse_event_size=LONGEST_BODY) as streams:
        yield ChangedStream(streams[0], sift), streams[1]
