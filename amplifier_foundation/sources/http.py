"""Fetches one file from a web server."""

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

from .errors import SourceNotFound, SourceRefused, out_of_time

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator
    from email.message import Message
    from pathlib import Path
    from typing import IO

    from .limits import Deadline
    from .uris import ParsedURI

_MAX_REDIRECTS = 5
_CHUNK = 65536
_AS_WRITTEN = "!$%&'()*+,/:;=?@~[]"

_OTHER_WAYS = "Use git+https or git+ssh, which sign in as git does"
_REMEDIES = {
    401: ("asks for a sign-in", _OTHER_WAYS),
    403: ("does not let us in", _OTHER_WAYS),
    404: ("does not exist", "Check the address"),
    410: ("is gone", "Check the address"),
}


def download(source: ParsedURI, target: Path, limit: int, deadline: Deadline) -> None:
    """Write what is at `source` into the new file `target`, at most `limit` bytes.

    Raises `SourceNotFound` and `SourceRefused`; `OSError` is about the disk.
    """
    with _answer(source, deadline) as response, target.open("xb") as file:
        _refuse_web_page(source, response)
        for chunk in _chunks(source, response, limit, deadline):
            file.write(chunk)


def _answer(source: ParsedURI, deadline: Deadline) -> HTTPResponse:
    asking = request.Request(quote(_public_url(source), safe=_AS_WRITTEN), headers={"User-Agent": "amplifier"})
    user, at, _ = source.host.rpartition("@")
    if at:
        secret = b64encode(unquote(user if ":" in user else f"{user}:").encode()).decode()
        asking.add_unredirected_header("Authorization", f"Basic {secret}")
    with _network(source, deadline):
        response = _opener(source, deadline).open(asking, timeout=deadline.left())
    assert isinstance(response, HTTPResponse)
    return response


def _public_url(source: ParsedURI) -> str:
    return f"{source.transport}://{source.host.rpartition('@')[2]}{source.path}"


def _refuse_web_page(source: ParsedURI, response: HTTPResponse) -> None:
    named_so = source.path.partition("?")[0].endswith((".html", ".htm"))
    if response.headers.get_content_type() == "text/html" and not named_so:
        remedy = "Use the address of the file itself (a 'raw' link), or git+https"
        raise SourceRefused(source, "is a web page, not a file", remedy)


def _chunks(source: ParsedURI, response: HTTPResponse, limit: int, deadline: Deadline) -> Iterator[bytes]:
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
def _network(source: ParsedURI, deadline: Deadline) -> Iterator[None]:
    """Turn what goes wrong on the way into errors of the source."""
    try:
        yield
    except HTTPError as error:
        error.close()
        what, remedy = _REMEDIES.get(error.code) or _other_answer(error.code)
        raise SourceNotFound(source, f"{what} (HTTP {error.code})", remedy) from None
    except (OSError, HTTPException) as error:
        cause: object = error.reason if isinstance(error, URLError) else error
        if isinstance(cause, TimeoutError):
            raise out_of_time(source, deadline) from None
        told = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
        raise SourceNotFound(
            source, f"cannot be reached ({told[:200].strip()})", "Check the address and the network"
        ) from None
    except ValueError as error:  # how the standard library says that a URL or an answer makes no sense
        if isinstance(error, SourceRefused):
            raise
        raise SourceRefused(source, f"cannot be asked for ({error})", "Check the address") from None


def _other_answer(code: int) -> tuple[str, str]:
    if 300 <= code < 400:
        return "leads on too often, or to nowhere", "Check the address"
    return "the server cannot answer now", "Try again later"


def _opener(source: ParsedURI, deadline: Deadline) -> request.OpenerDirector:
    """Return what speaks HTTP and nothing else; the standard one reads local files and FTP too."""
    opener = request.OpenerDirector()
    handlers = (
        request.ProxyHandler(),
        request.UnknownHandler(),
        request.HTTPDefaultErrorHandler(),
        request.HTTPErrorProcessor(),
        _Redirects(source),
        _Http(deadline),
        _Https(deadline),
    )
    for handler in handlers:
        opener.add_handler(handler)
    return opener


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
            raise SourceRefused(self._source, f"leads on to what is not {' or '.join(allowed)}", "Use another address")
        return super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]


class _Http(request.HTTPHandler):
    def __init__(self, deadline: Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, req: request.Request) -> HTTPResponse:
        return self.do_open(_punctual(HTTPConnection, self._deadline), req)


class _Https(request.HTTPSHandler):
    def __init__(self, deadline: Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def https_open(self, req: request.Request) -> HTTPResponse:
        return self.do_open(_punctual(HTTPSConnection, self._deadline), req, context=ssl.create_default_context())


def _punctual(kind: type[HTTPConnection], deadline: Deadline) -> Callable[..., HTTPConnection]:
    """Return a maker of connections whose answers end at `deadline`, however slowly they drip in."""

    def respond(sock: socket.socket, *args: Any, **options: Any) -> HTTPResponse:
        response = HTTPResponse(sock, *args, **options)
        response.fp.close()
        response.fp = BufferedReader(_Incoming(sock, deadline))
        return response

    def connect(host: str, **options: Any) -> HTTPConnection:
        connection = kind(host, **options)
        connection.response_class = respond  # type: ignore[assignment]
        return connection

    return connect


class _Incoming(RawIOBase):
    """What comes in by a socket, until a deadline."""

    def __init__(self, sock: socket.socket, deadline: Deadline) -> None:
        self._socket, self._deadline = sock, deadline
        self._hold = sock.makefile("rb", buffering=0)  # keeps the socket open when its connection lets go of it

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
