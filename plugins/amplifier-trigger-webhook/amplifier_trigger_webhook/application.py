"""Pass requests to the webhooks by path, as an ASGI application."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from .connections import start_server
from .receiving import Answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.types import Receive, Scope, Send

    Respond = Callable[[Request], Awaitable[Answer]]

__all__ = ["Application", "start_server"]

UNKNOWN = Answer({"error": "no webhook has this path"}, 404)


class Application:
    """Answers the requests of one server; `paths` may change while it runs."""

    def __init__(self, paths: Mapping[str, Respond]) -> None:
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        respond = self._paths.get(scope["path"])
        try:
            answer = await respond(request) if respond else UNKNOWN
        except ClientDisconnect:
            return
        await JSONResponse(*answer)(scope, receive, send)
