"""Answer requests: views, acts, the live events, and files."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from amplifier_core.errors import AmplifierError
from amplifier_foundation.cli import exits
from amplifier_foundation.cli.advice import with_advice
from amplifier_foundation.operations.bundle_texts import BundleTextChanged

from .guard import HEADERS, LOGIN, LOGOUT, allow_styles, root_of, split_root
from .live import Live, read_facts
from .navigation import Navigation
from .pages import Place, find_acts, find_views
from .rendering import render, use_root

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from .desk import Desk
    from .guard import Guard
    from .pages import Act, View

logger = logging.getLogger(__name__)

_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
LARGEST_FORM = 1024 * 1024
"""Bytes."""


class Application:
    """The page as an ASGI application: it refuses what the guard refuses, and adds its headers to every answer."""

    def __init__(self, desk: Desk, guard: Guard) -> None:
        views = find_views()
        navigation = Navigation(desk, views)
        self._live = Live(desk, views, navigation, guard)
        self._inner = _make_inner(desk, guard, views, navigation, self._live)
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        is_answered = False

        async def send_guarded(message: Message) -> None:
            nonlocal is_answered
            is_answered = True
            if message["type"] == "http.response.start":
                known = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(each for each in _HEADERS if each[0] not in known)]
            await send(message)

        read = 0

        async def receive_some() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > LARGEST_FORM:
                raise HTTPException(413, f"a form has at most {LARGEST_FORM} bytes")
            return message

        scope = split_root(scope)
        request = Request(scope)
        use_root(root_of(request))
        try:
            await (self._guard.refuse(request) or self._inner)(scope, receive_some, send_guarded)
        except ClientDisconnect:
            logger.debug("the browser is gone: %s", scope["path"])
        except Exception as error:
            logger.warning("%s is not answered: %s", scope["path"], _describe(error))
            logger.debug("it failed here", exc_info=True)
            if not is_answered:
                await _error(request, 500, _describe(error))(scope, receive, send_guarded)

    def close(self) -> None:
        """End the live pages: they come back to the next server by themselves."""
        self._live.close()


def _make_inner(desk: Desk, guard: Guard, views: Sequence[View], navigation: Navigation, live: Live) -> ASGIApp:
    async def log_in(request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0] != "application/x-www-form-urlencoded":
            raise HTTPException(415, "send the form of the page")  # a stranger's bad parts would be lines of the log
        async with request.form(max_part_size=LARGEST_FORM) as form:
            return guard.log_in(request, str(form.get("password", "")))

    async def log_out(request: Request) -> Response:
        await _read_form(request, guard)
        return guard.log_out(request)

    routes = [
        Mount("/static", StaticFiles(packages=[(str(__package__), "static")])),
        Route("/live", live.answer, methods=["GET"]),
        Route(LOGIN, log_in, methods=["POST"]),
        Route(LOGOUT, log_out, methods=["POST"]),
        *(Route(view.path, _show(desk, guard, navigation, view), methods=["GET"]) for view in views),
        *(Route(act.path, _do(desk, guard, act), methods=["POST"]) for act in find_acts()),
    ]
    handlers: dict[Any, Callable[[Request, Any], Awaitable[Response]]] = {
        HTTPException: _explain_http,
        AmplifierError: _explain,
        Exception: _explain_failure,
    }
    return Starlette(routes=routes, exception_handlers=handlers)


def place_of(request: Request) -> Place:
    """Return what a request asks for."""
    return Place(request.url.path, dict(request.path_params), dict(request.query_params))


def _show(desk: Desk, guard: Guard, navigation: Navigation, view: View) -> Callable[[Request], Awaitable[Response]]:
    async def show(request: Request) -> Response:
        place = place_of(request)
        page = await view.read(desk, place)
        facts = await read_facts(page)
        shell = {
            "page": page,
            "parts": page.parts,
            **await navigation.read(view.path),
            "form_token": guard.form_token(request),
            "root": root_of(request),
            "read_only": desk.read_only,
            **facts,
            **page.facts,
        }
        return HTMLResponse(render(page.template, **shell), headers=allow_styles(page.nonce) if page.nonce else None)

    return show


def _do(desk: Desk, guard: Guard, act: Act) -> Callable[[Request], Awaitable[Response]]:
    async def do(request: Request) -> Response:
        values = await _read_form(request, guard)
        if desk.read_only and act.changes:
            raise HTTPException(403, "this page is for reading only: it was started with --read-only")
        reply = await act.do(desk, place_of(request), values)
        to = reply.to and f"{root_of(request)}{reply.to}"
        if wants_json(request):
            return JSONResponse({"said": reply.said, "to": to, **reply.facts})
        return RedirectResponse(to or request.headers.get("referer") or f"{root_of(request)}/", 303)

    return do


async def _read_form(request: Request, guard: Guard) -> dict[str, str]:
    """Return the values of a form from a page of its browser. Raises `HTTPException`."""
    async with request.form(max_part_size=LARGEST_FORM) as form:
        values = {name: str(value) for name, value in form.items()}
    if "form_token" not in values:
        raise HTTPException(403, "buttons need the scripts of their page: allow JavaScript for it, and reload it")
    if not guard.is_form(request, values.pop("form_token")):
        raise HTTPException(403, "this form is of another browser, or the server has started anew: reload the page")
    return values


def wants_json(request: Request) -> bool:
    """Return whether a script asks, not a person."""
    return "application/json" in request.headers.get("accept", "")


async def _explain_http(request: Request, error: HTTPException) -> Response:
    return _error(request, error.status_code, str(error.detail))


_STATUS = {exits.NOT_FOUND: 404, exits.CONFLICT: 409, exits.USAGE: 422, exits.WAITING: 403, exits.TRY_AGAIN: 503}
"""The status of an answer, by the exit code of its error."""


async def _explain(request: Request, error: AmplifierError) -> Response:
    if isinstance(error, BundleTextChanged):
        return _error(request, 409, str(error))
    status = _STATUS.get(exits.exit_code(error), 500)
    return _error(request, status, with_advice(error))


async def _explain_failure(request: Request, error: Exception) -> Response:
    return _error(request, 500, _describe(error))


def _describe(error: Exception) -> str:
    from amplifier_core.utils.secrets import redact_text

    return redact_text(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)


def _error(request: Request, status: int, text: str) -> Response:
    from amplifier_core.utils.secrets import redact_text

    text = redact_text(text)
    if wants_json(request):
        return JSONResponse({"error": text}, status)
    return HTMLResponse(render("error.html", status=status, text=text), status)
