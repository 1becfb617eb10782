"""Fetch one file from a web server."""

from __future__ import annotations

import ssl
from base64 import b64encode
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from io import BufferedReader, RawIOBase
from typing import TYPE_CHECKING, Any
from urllib import request
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urlsplit

from amplifier_core.network import NetworkMisconfigured, check_certificates, explain_certificate, read_proxies

from .errors import SourceNotFound, SourceRefused, misconfigured, out_of_time

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator
    from email.message import Message
    from pathlib import Path
    from typing import IO

    from amplifier_core.network import Proxy

    from .connecting import Reach
    from .limits import Deadline
    from .uris import ParsedURI

_MAX_REDIRECTS = 5
_CHUNK = 65536
_AS_WRITTEN = "!$%&'()*+,/:;=?@~[]"

_OTHER_WAYS = "Use git+https or git+ssh, which sign in as git does"
_REMEDIES = {
    401: ("asks for a sign-in", _OTHER_WAYS),
    403: ("denies access", _OTHER_WAYS),
    404: ("does not exist", "Check the address"),
    410: ("is gone", "Check the address"),
}
_NO_ANSWER = ("the server cannot answer now", "Try again later")


def download(source: ParsedURI, target: Path, limit: int, deadline: Deadline, reach: Reach) -> None:
    """Write the file at `source` into the new file `target`, at most `limit` bytes.

    Raises `SourceNotFound`, `SourceRefused`, and `OSError` for disk errors.
    """
    with _open(source, deadline, reach) as response, target.open("xb") as file:
        is_page = response.headers.get_content_type() == "text/html"
        if is_page and not source.path.partition("?")[0].endswith((".html", ".htm")):
            remedy = "Use the address of the file itself (a 'raw' link), or git+https"
            raise SourceRefused(source, "is a web page, not a file", remedy)
        for chunk in _read_chunks(source, response, limit, deadline):
            file.write(chunk)


def find_last_url(source: ParsedURI, url: str, inside: str, deadline: Deadline, reach: Reach) -> str:
    """Return the URL that `url` redirects to, found out with the file `inside` of it.

    A server that answers with an error redirects nowhere. Raises `SourceNotFound` and `SourceRefused`.
    """
    try:
        with _open(source, deadline, reach, url + inside) as response:
            return response.url.removesuffix(inside)
    except SourceNotFound as error:
        if isinstance(error.__context__, HTTPError) and error.__context__.code >= 400:
            return url
        raise


def _open(source: ParsedURI, deadline: Deadline, reach: Reach, other_url: str = "") -> HTTPResponse:
    user, at, host = source.host.rpartition("@")
    url = quote(other_url or f"{source.transport}://{host}{source.path}", safe=_AS_WRITTEN)
    asking = request.Request(url, headers={"User-Agent": "amplifier"})
    if at:
        secret = b64encode(unquote(user if ":" in user else f"{user}:").encode()).decode()
        asking.add_unredirected_header("Authorization", f"Basic {secret}")
    opener = request.OpenerDirector()  # for HTTP alone; the standard one reads local files and FTP too
    proxied = _Proxied()
    handlers = (
        proxied,
        request.UnknownHandler(),
        request.HTTPDefaultErrorHandler(),
        request.HTTPErrorProcessor(),
        _Redirects(source),
        _Http(deadline, reach),
        _Https(deadline, reach),
    )
    for handler in handlers:
        opener.add_handler(handler)
    with _network(source, deadline, proxied):
        response = opener.open(asking, timeout=deadline.seconds_left())
    assert isinstance(response, HTTPResponse)
    return response


def _read_chunks(source: ParsedURI, response: HTTPResponse, limit: int, deadline: Deadline) -> Iterator[bytes]:
    expected, received = response.length, 0
    while True:
        if max(received, expected or 0) > limit:
            raise SourceRefused(source, f"is larger than {limit // 1024**2} MiB", "Use a smaller one")
        with _network(source, deadline):
            chunk = response.read1(_CHUNK)
        if not chunk:
            break
        received += len(chunk)
        yield chunk
    if expected is not None and received != expected:
        raise SourceNotFound(source, f"ended after {received} of {expected} bytes", "Try again")


@contextmanager
def _network(source: ParsedURI, deadline: Deadline, proxied: _Proxied | None = None) -> Iterator[None]:
    """Turn network errors into errors of the source."""
    try:
        yield
    except HTTPError as error:
        error.close()
        if error.code == 407 and proxied is not None and proxied.proxy is not None:
            raise _explain_proxy(source, proxied.proxy, "407 Proxy Authentication Required") from None
        redirected = 300 <= error.code < 400
        other = ("redirects too often, or to nowhere", "Check the address")
        cause, remedy = _REMEDIES.get(error.code) or (other if redirected else _NO_ANSWER)
        raise SourceNotFound(source, f"{cause} (HTTP {error.code})", remedy) from None
    except (OSError, HTTPException) as error:
        reason: object = error.reason if isinstance(error, URLError) else error
        if isinstance(reason, TimeoutError):
            raise out_of_time(source, deadline) from None
        text = str(getattr(reason, "strerror", None) or str(reason) or type(reason).__name__)[:200].strip()
        if (found := explain_certificate(text)) is not None:
            raise SourceNotFound(source, f"cannot be reached: {found[0]}", found[1]) from None
        if proxied is not None and proxied.proxy is not None:
            raise _explain_proxy(source, proxied.proxy, text.removeprefix("Tunnel connection failed: ")) from None
        raise SourceNotFound(source, f"cannot be reached ({text})", "Check the address and the network") from None
    except NetworkMisconfigured as error:
        raise misconfigured(source, error) from None
    except ValueError as error:  # the standard library's error for invalid URLs and answers
        if isinstance(error, SourceRefused):
            raise
        raise SourceRefused(source, f"cannot be requested ({error})", "Check the address") from None


def _explain_proxy(source: ParsedURI, proxy: Proxy, text: str) -> SourceNotFound:
    remedy = proxy.sign_in_remedy if text.startswith("407") else proxy.remedy
    return SourceNotFound(source, f"cannot be reached through {proxy} ({text})", remedy)


class _Proxied(request.BaseHandler):
    """Sends requests through the proxies of the environment; `proxy` is the last request's."""

    handler_order = 100  # before those that open connections

    def __init__(self) -> None:
        self.proxy: Proxy | None = None

    def http_open(self, req: request.Request) -> Any:
        """Choose the way of a request. Raises `NetworkMisconfigured`."""
        if req.has_proxy():
            return None
        scheme, parts = req.type, urlsplit(req.full_url)
        if scheme == "https":
            check_certificates()
        self.proxy = proxy = read_proxies().find(scheme, parts.hostname or "", parts.port)
        if proxy is None:
            return None
        proxy.require("http", "https")
        if proxy.user:
            secret = b64encode(f"{proxy.user}:{proxy.password}".encode()).decode()
            req.add_unredirected_header("Proxy-authorization", f"Basic {secret}")
        req.set_proxy(proxy.server, proxy.scheme)
        return None if scheme in (proxy.scheme, "https") else self.parent.open(req, timeout=req.timeout)

    https_open = http_open


class _Redirects(request.HTTPRedirectHandler):
    max_redirections = _MAX_REDIRECTS

    def __init__(self, source: ParsedURI) -> None:
        self._source = source

    def redirect_request(
        self, req: request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> request.Request | None:
        allowed = ("https",) if req.type == "https" else ("http", "https")
        if urlsplit(newurl).scheme not in allowed:
            fp.close()
            schemes = " or ".join(allowed)
            raise SourceRefused(self._source, f"redirects to another scheme than {schemes}", "Use another address")
        return super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]


class _Http(request.HTTPHandler):
    def __init__(self, deadline: Deadline, reach: Reach) -> None:
        super().__init__()
        self._deadline, self._reach = deadline, reach

    def http_open(self, req: request.Request) -> HTTPResponse:
        return self.do_open(_make_factory(HTTPConnection, req, self._deadline, self._reach), req)


class _Https(request.HTTPSHandler):
    def __init__(self, deadline: Deadline, reach: Reach) -> None:
        super().__init__()
        self._deadline, self._reach = deadline, reach

    def https_open(self, req: request.Request) -> HTTPResponse:
        factory = _make_factory(HTTPSConnection, req, self._deadline, self._reach)
        return self.do_open(factory, req, context=ssl.create_default_context())


def _make_factory(
    kind: type[HTTPConnection], req: request.Request, deadline: Deadline, reach: Reach
) -> Callable[..., HTTPConnection]:
    """Return a factory of connections within `reach`; reading an answer ends at `deadline`, however slow it is.

    A proxy resolves names itself, and may be internal: then the URL alone is checked.
    """
    is_proxied = req.has_proxy() or getattr(req, "_tunnel_host", None) is not None
    reach.check_url(req.full_url, is_proxied=is_proxied)

    def respond(sock: socket.socket, *args: Any, **options: Any) -> HTTPResponse:
        response = HTTPResponse(sock, *args, **options)
        response.fp.close()
        response.fp = BufferedReader(_Incoming(sock, deadline))
        return response

    def connect(host: str, **options: Any) -> HTTPConnection:
        connection = kind(host, **options)
        connection.response_class = respond  # type: ignore[assignment]
        if not is_proxied:
            connection._create_connection = reach.connect  # type: ignore[attr-defined]
        return connection

    return connect


class _Incoming(RawIOBase):
    """The input of a socket, until a deadline."""

    def __init__(self, sock: socket.socket, deadline: Deadline) -> None:
        self._socket, self._deadline = sock, deadline
        self._hold = sock.makefile("rb", buffering=0)  # keeps the socket open after its connection drops it

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while wait := self._deadline.step():
            self._socket.settimeout(wait)
            try:
                return self._socket.recv_into(buffer)
            except TimeoutError:
                continue
        raise TimeoutError

    def close(self) -> None:
        self._hold.close()
        super().close()
