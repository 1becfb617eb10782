"""Fetch one page: every redirect is checked, and so is the address that is connected to.

A name is resolved once, so a server of names cannot give one address to the check and another one to the connection.
A proxy resolves names itself, and may be internal: then the name alone is checked.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import zlib
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

import httpcore

from amplifier_core.network import (
    CERTIFICATES,
    NetworkMisconfigured,
    check_certificates,
    explain_certificate,
    read_proxies,
)

from .failures import FetchError
from .urls import Url, check_host, check_internal, follow

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from amplifier_core.network import Proxy

    from .config import WebConfig

_HEADERS: list[tuple[bytes | str, bytes | str]] = [
    ("User-Agent", "amplifier"),
    ("Accept", "text/html,application/xhtml+xml,text/*;q=0.9,application/json;q=0.9,image/*;q=0.5,*/*;q=0.1"),
    ("Accept-Encoding", "gzip, deflate"),
]
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class Fetched(NamedTuple):
    """A page as it came: its last URL, the header `Content-Type`, and the unpacked body."""

    url: Url
    content_type: str
    body: bytes


async def fetch(url: Url, config: WebConfig, may_follow: Callable[[Url, Url], None]) -> Fetched:
    """Return the page at `url`. `may_follow` raises for a redirect that nobody permits. Raises `FetchError`."""
    for _ in range(config.max_redirects + 1):
        check_host(url.host, config)
        found = await ask(url, config)
        if isinstance(found, Fetched):
            return found
        target = follow(url, found)
        may_follow(url, target)
        url = target
    raise FetchError("TooManyRedirects", f"more than {config.max_redirects} redirects, the last one to {url.shown}")


async def ask(url: Url, config: WebConfig) -> Fetched | str:
    """Return the page, or where it has moved. Raises `FetchError`."""
    is_answering, proxy = False, await asyncio.to_thread(find_proxy, url)
    target = httpcore.URL(scheme=url.scheme, host=url.host, port=url.port, target=url.target)
    headers = [("Host", url.server), *_HEADERS]
    try:
        async with make_pool(config, proxy) as pool, pool.stream("GET", target, headers=headers) as response:
            is_answering = True
            about = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
            if response.status in _REDIRECTS and "location" in about:
                return about["location"]
            if response.status >= 300:
                phrase = f" {HTTPStatus(response.status).phrase}" if response.status in set(HTTPStatus) else ""
                raise FetchError("HTTPError", f"{url.shown} answers {response.status}{phrase}")
            body = b"".join([chunk async for chunk in unpack(url, about, response.aiter_stream(), config.max_bytes)])
            return Fetched(url, about.get("content-type", ""), body)
    except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.ProxyError, OSError) as error:
        text = str(error).strip() or type(error).__name__
        shown = "".join(each for each in text if each.isprintable())[:200]
        if is_answering:
            raise _broken_off(url, shown) from None
        raise _unreachable(url, shown, proxy, is_refused=isinstance(error, httpcore.ProxyError)) from None


def find_proxy(url: Url) -> Proxy | None:
    """Return the environment's proxy for a host; it may block. Raises `FetchError` for unusable variables."""
    try:
        if url.scheme == "https":
            check_certificates()
        proxy = read_proxies().find(url.scheme, url.host, url.port)
        if proxy is not None:
            proxy.require("http", "https")
    except NetworkMisconfigured as error:
        kind = "ConnectionFailed" if error.variable == CERTIFICATES else "ProxyError"
        raise FetchError(kind, f"{error.problem}; a person has to mend it: {error.remedy}") from None
    return proxy


def make_pool(config: WebConfig, proxy: Proxy | None) -> httpcore.AsyncConnectionPool:
    """Return the connections for one request, through a proxy if there is one."""
    context = ssl.create_default_context()
    if proxy is None:
        return httpcore.AsyncConnectionPool(ssl_context=context, network_backend=_CheckedNetwork(config))
    secret = (proxy.user, proxy.password) if proxy.user else None
    place = httpcore.URL(scheme=proxy.scheme, host=proxy.host, port=proxy.port, target="/")
    return httpcore.AsyncConnectionPool(ssl_context=context, proxy=httpcore.Proxy(place, auth=secret))


class _CheckedNetwork(httpcore.AsyncNetworkBackend):
    """Connects to the addresses that a host has, and that are within reach."""

    def __init__(self, config: WebConfig) -> None:
        self._config = config
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the library's own signature
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Return a connection. Raises `FetchError` for a host whose addresses are all internal ones, and `OSError`."""
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        failures: list[Exception] = []
        for address in dict.fromkeys(str(each[4][0]) for each in found):
            try:
                check_internal(host, address, self._config)
                return await self._network.connect_tcp(address, port, timeout, local_address, socket_options)
            except (FetchError, httpcore.NetworkError, OSError) as error:
                failures.append(error)
        raise next((each for each in failures if not isinstance(each, FetchError)), failures[0])


async def unpack(url: Url, headers: dict[str, str], body: AsyncIterator[bytes], limit: int) -> AsyncIterator[bytes]:
    """Yield the body as it was before it was packed, up to `limit` bytes. Raises `FetchError`."""
    packing = headers.get("content-encoding", "identity").strip().lower() or "identity"
    if packing not in ("identity", "gzip", "x-gzip", "deflate"):
        raise FetchError("UnsupportedEncoding", f"{url.shown} is packed as {packing[:50]!r}, which nobody asked for")
    unpacker = None if packing == "identity" else _Unpacker(packing)
    size = 0
    if headers.get("content-length", "").isdecimal() and int(headers["content-length"]) > limit:
        raise _too_large(url, limit)
    try:
        async for chunk in body:
            piece = chunk if unpacker is None else unpacker.unpack(chunk, limit - size + 1)
            size += len(piece)
            if size > limit:
                raise _too_large(url, limit)
            yield piece
    except zlib.error as error:
        raise FetchError("UnsupportedEncoding", f"{url.shown} is no valid {packing}: {error}") from None
    if unpacker is not None and not unpacker.is_whole:
        raise _broken_off(url, f"its {packing} has no end")


class _Unpacker:
    """Unpacks a body in chunks: gzip of one or more members, or deflate with or without its header."""

    def __init__(self, packing: str) -> None:
        self._stream = zlib.decompressobj(zlib.MAX_WBITS | 32)
        self._may_lack_header = packing == "deflate"
        self.is_whole = True
        """Whether the end has come, or nothing at all."""

    def unpack(self, chunk: bytes, most: int) -> bytes:
        """Return what a chunk unpacks to, at most `most` bytes. Raises `zlib.error`."""
        found = b""
        while chunk and len(found) < most:
            if self._stream.eof:
                if not chunk.startswith(b"\x1f"):  # padding
                    break
                self._stream = zlib.decompressobj(zlib.MAX_WBITS | 32)
            try:
                found += self._stream.decompress(chunk, most - len(found))
            except zlib.error:
                if not self._may_lack_header:
                    raise
                self._stream = zlib.decompressobj(-zlib.MAX_WBITS)  # some servers leave it out
                found += self._stream.decompress(chunk, most - len(found))
            self._may_lack_header = False
            self.is_whole, chunk = self._stream.eof, self._stream.unused_data
        return found


def _broken_off(url: Url, why: str) -> FetchError:
    return FetchError("ConnectionFailed", f"{url.shown} broke off before its end ({why}); try again")


def _unreachable(url: Url, why: str, proxy: Proxy | None, *, is_refused: bool) -> FetchError:
    """Return the error of a missing connection; a proxy may have refused it."""
    if (found := explain_certificate(why)) is not None:
        return FetchError("ConnectionFailed", f"{url.server} cannot be reached: {found[0]}. {found[1]}")
    if proxy is not None and is_refused:
        remedy = (
            f"it asks for the user and password that {proxy.variable} names"
            if why.startswith("407")
            else "ask who runs it"
        )
        return FetchError("ProxyError", f"{proxy} answers {why}; {remedy}")
    way, remedy = (
        (f" through {proxy}", f"check {proxy.variable} and the address") if proxy else ("", "check the address")
    )
    return FetchError("ConnectionFailed", f"{url.server} cannot be reached{way} ({why}); {remedy}")


def _too_large(url: Url, limit: int) -> FetchError:
    return FetchError("TooLarge", f"{url.shown} is larger than {limit} bytes; fetch a smaller page")
