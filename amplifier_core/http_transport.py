"""Send the requests of `httpx` or `httpx2` by the network of the environment.

The libraries read `NO_PROXY` in their own ways, name no proxy in their errors, and wait for one as long as for a
service.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

from .network import NetworkMisconfigured, Proxies, explain_certificate, read_proxies

if TYPE_CHECKING:
    from ssl import SSLContext

    from .network import Proxy

_KEEPALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 60), ("TCP_KEEPCNT", 5))
        if hasattr(socket, name)
    ),
]
"""Find out within minutes about a server without a sign of life."""
_CONNECTIONS = {"max_connections": 1000, "max_keepalive_connections": 100}
_CHECK = "Check the address, the network and the proxy"
TUNNEL = 30.0
"""Seconds that a proxy may take for a tunnel, unless the limit to connect is longer."""


class EnvironmentTransport:
    """A transport for the asynchronous client of `library`, `httpx` or `httpx2`, with the proxies of the environment.

    The limit to connect, or `TUNNEL` if that is longer, covers the wait for a tunnel. An error before the connection
    is there names the proxy, or the variable that cannot be used, and has a `remedy`; `is_of_environment` means: only
    a person can mend it, and `is_lasting`: not while the process runs. An answer has its proxy as the extension
    `proxy`.
    """

    def __init__(self, library: Any, context: SSLContext, *, uses_proxies: bool = True) -> None:
        self._library = library
        self._proxies = read_proxies() if uses_proxies else Proxies({}, None)
        self._options = {
            "verify": context,
            "trust_env": False,
            "limits": library.Limits(**_CONNECTIONS),
            "socket_options": _KEEPALIVE,
        }
        self._ways: dict[Proxy | None, Any] = {}

    async def __aenter__(self) -> EnvironmentTransport:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections."""
        for way in self._ways.values():
            await way.aclose()

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request. Raises a `TransportError` of the library."""
        url = request.url
        try:
            asked = (url.scheme, url.host, url.port)
            find, blocks = self._proxies.find, self._proxies.exceptions is None
            proxy = await asyncio.to_thread(find, *asked) if blocks else find(*asked)
            way = self._find_way(proxy)
        except NetworkMisconfigured as error:
            told = self._library.ProxyError(error.problem, request=request)
            raise _advise(told, error.remedy, is_of_environment=True, is_lasting=True) from None
        seconds = request.extensions.get("timeout", {}).get("connect")
        seconds = None if seconds is None else max(seconds, TUNNEL)
        limit = asyncio.timeout(None)
        progress = _Progress(limit, seconds)
        request.extensions["trace"] = progress.note
        try:
            async with limit:
                response = await way.handle_async_request(request)
            if response.status_code == 407 and proxy is not None and url.scheme == "http":  # no tunnel: it is its own
                await response.aclose()
                raise self._library.ProxyError(f"407 {response.reason_phrase}", request=request)
            response.extensions["proxy"] = proxy
            return response
        except TimeoutError:
            if not limit.expired() or proxy is None:
                raise
            late = self._library.ConnectTimeout(f"{proxy} has not answered within {seconds:g} s", request=request)
            raise _advise(late, f"{proxy.remedy}; a provider waits longer with connect_timeout") from None
        except self._library.TransportError as error:
            told = self._explain(error, proxy, url.host, progress)
            if told is None:
                raise
            text, remedy, is_of_environment = told
            explained = type(error)(text, request=request)
            raise _advise(explained, remedy, is_of_environment=is_of_environment) from error

    def _find_way(self, proxy: Proxy | None) -> Any:
        """Return the library's transport through a proxy. Raises `NetworkMisconfigured` for one it cannot use."""
        if proxy in self._ways:
            return self._ways[proxy]
        if proxy is not None:
            proxy.require("http", "https", "socks", "socks5", "socks5h")
        try:
            way = self._library.AsyncHTTPTransport(proxy=proxy and proxy.url, **self._options)
        except ImportError:
            variable = proxy.variable if proxy else ""
            problem = f"a SOCKS proxy ({variable}) needs a package"
            remedy = f"Run: pip install 'httpx[socks]', or unset {variable}"
            raise NetworkMisconfigured(variable, problem, remedy) from None
        return self._ways.setdefault(proxy, way)

    def _explain(self, error: Any, proxy: Proxy | None, host: str, progress: _Progress) -> tuple[str, str, bool] | None:
        """Return the problem, its remedy, and whether only a person can mend it; None: it was made."""
        text = str(error).strip()
        if (certificate := explain_certificate(text)) is not None:
            way = f" through {proxy}" if proxy else ""
            return f"{host}{way}: {certificate[0]}", certificate[1], True
        if proxy is not None and isinstance(error, self._library.ProxyError):
            if text.startswith("407"):
                return f"{proxy} answers {text}", proxy.sign_in_remedy, True
            return f"{proxy} answers {text}", f"Ask who runs it, or have {host} in NO_PROXY", False
        said = text or type(error).__name__
        if proxy is not None and progress.waits:
            return f"{proxy} broke the connection off ({said})", proxy.remedy, False
        if not isinstance(error, self._library.ConnectError | self._library.ConnectTimeout):
            return None
        if proxy is not None and not progress.is_connected:
            return f"{proxy} cannot be reached ({said})", proxy.remedy, False
        if proxy is not None:
            return f"{host} cannot be reached through {proxy} ({said})", _CHECK, False
        return None if text else (f"{host} broke the connection off ({said})", _CHECK, False)


class _Progress:
    """Follows one request, as the `trace` of the libraries tells it, and limits the wait for a tunnel."""

    def __init__(self, limit: asyncio.Timeout, seconds: float | None) -> None:
        self._limit, self._seconds = limit, seconds
        self._stream: Any = None
        self.is_connected = False
        self.waits = False
        """Whether a proxy was asked for a tunnel, and has not answered."""

    async def note(self, event: str, facts: dict[str, Any]) -> None:
        """Note an event."""
        if event.endswith(".connect_tcp.complete"):
            self.is_connected = True
        elif event == "socks.setup_socks5_connection.started" or (
            event == "http11.send_request_headers.started" and facts["request"].method == b"CONNECT"
        ):
            self.waits, self._stream = True, facts.get("stream")
            if self._seconds is not None:
                self._limit.reschedule(asyncio.get_running_loop().time() + self._seconds)
        elif self.waits and event in (
            "socks.setup_socks5_connection.complete",
            "http11.receive_response_headers.complete",
        ):
            self.waits = False
            self._limit.reschedule(None)
        elif event == "socks.setup_socks5_connection.failed":
            await self._stream.aclose()  # the libraries leave it open


def _advise(error: Any, remedy: str, *, is_of_environment: bool = False, is_lasting: bool = False) -> Any:
    vars(error).update(remedy=f"{remedy}.", is_of_environment=is_of_environment, is_lasting=is_lasting)
    return error
