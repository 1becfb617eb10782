"""Pass requests to the webhooks by path, as an ASGI application."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from .connections import start_server
from .receiving import Answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.types import Receive, Scope, Send

    Respond = Callable[[Request], Awaitable[Answer]]

__all__ = ["Application", "start_server"]

logger = logging.getLogger(__name__)

NO_PATH = (
    "a request was refused with 404: it is for none of the paths of webhooks here (%s); let the proxy pass one of "
    "them, without a prefix. Further ones are not told"
)
UNKNOWN = Answer({"error": "no webhook has this path"}, 404)


class Application:
    """Answers the requests of one server; `paths` may change while it runs."""

    def __init__(self, paths: Mapping[str, Respond]) -> None:
        self._paths = paths
        self._has_told = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        scope = to_origin_form(scope)
        request = Request(scope, receive)
        respond = self._paths.get(scope["path"])
        if respond is None and not self._has_told:  # without a word of a stranger
            self._has_told = True
            logger.warning(NO_PATH, " and ".join(sorted(self._paths)))
        try:
            answer = await respond(request) if respond else UNKNOWN
        except ClientDisconnect:
            return
        await JSONResponse(*answer)(scope, receive, send)


def to_origin_form(scope: Scope) -> Scope:
    """Return a request with the path alone in place of a whole address, as proxies send it.

    The host of the address counts, and not the header `Host` (RFC 9112, 3.2.2).
    """
    if scope["path"].startswith("/"):
        return scope
    try:
        target = urlsplit(scope["path"])
    except ValueError:
        return scope
    if target.scheme not in ("http", "https") or not target.netloc:
        return scope
    others = [(name, value) for name, value in scope["headers"] if name != b"host"]
    headers = [(b"host", target.netloc.encode("latin-1", "replace")), *others]
    return {**scope, "path": target.path or "/", "raw_path": target.path.encode(), "headers": headers}
