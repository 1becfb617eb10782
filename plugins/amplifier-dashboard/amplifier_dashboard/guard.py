"""Let only the person in who started the server.

A link of the command has a token, good for one browser, or there is a password: either is exchanged for a cookie. A
browser sends its cookies to every port of a host. So the cookie is for one path alone, the root of all pages of this
browser: other servers get neither. Every request names a host of this server, requests of other sites are refused, and
what changes something also carries a token that only the pages of this browser know.
"""

from __future__ import annotations

import hmac
import re
import time
from collections import deque
from typing import TYPE_CHECKING

from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse

from .rendering import render
from .signing import COOKIE_AGE, ROOT_LENGTH

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import Scope

    from .config import PageConfig
    from .signing import Signer

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""What every answer says to the browser."""
GUESSES, WINDOW = 5, 60.0
"""Wrong passwords within so many seconds, after which each further one is refused unread."""
LOGIN, LOGOUT = "/login", "/logout"
OF_THIS_MACHINE = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?")
"""Hosts of this machine, or of one with a tunnel to here: it may begin at another port; browsers name no port 80."""

_ROOTED = re.compile(rf"(/~[0-9a-f]{{{ROOT_LENGTH}}})(/.*)", re.DOTALL)


def split_root(scope: Scope) -> Scope:
    """Return a request with the root of its path apart: '' where it names none."""
    found = _ROOTED.fullmatch(scope["path"])
    root, path = found.groups() if found else ("", scope["path"])
    return {**scope, "path": path, "root": root}


def root_of(request: Request) -> str:
    """Return the root in the path of a request; without `Guard.is_known` it may be made up."""
    return str(request.scope["root"])


def allow_styles(nonce: str) -> dict[str, str]:
    """Return the headers of an answer whose style elements have this nonce."""
    name = "Content-Security-Policy"
    return {name: HEADERS[name].replace("style-src 'self'", f"style-src 'self' 'nonce-{nonce}'")}


class Guard:
    """Decides about each request; `port` is part of the cookie's name: browsers share cookies among ports."""

    def __init__(self, config: PageConfig, port: int, signer: Signer) -> None:
        self._config = config
        self._addresses = config.addresses(port)
        self._cookie = f"amplifier-{port}"
        self._is_loopback = config.is_loopback
        self._signer = signer
        self._wrong: deque[float] = deque(maxlen=GUESSES)

    def refuse(self, request: Request) -> Response | None:
        """Return the answer for a request that may not go on; None: it may."""
        host = request.headers.get("host", "").lower()
        if host not in self._addresses and not (self._is_loopback and OF_THIS_MACHINE.fullmatch(host)):
            return PlainTextResponse("This server has another name. Allow this one with --name", 421)
        if not self._is_own(request):
            return PlainTextResponse("Requests of other sites are refused.", 403)
        if request.url.path.startswith("/static/") and request.method in ("GET", "HEAD"):
            return None
        if (given := request.query_params.get("token")) is not None and request.method == "GET":
            return self._take_link(request, given)
        if request.url.path == LOGIN:
            return None
        return None if self.is_known(request) else self._ask_to_come_in(request)

    def log_in(self, request: Request, password: str) -> Response:
        """Exchange the password for a cookie."""
        now = time.monotonic()
        if len(self._wrong) == GUESSES and now - self._wrong[0] < WINDOW:
            return _show_login("Too many wrong passwords. Try again in a minute.", 429)
        if not self._config.password or not hmac.compare_digest(
            password.encode(errors="replace"), self._config.password.encode()
        ):
            self._wrong.append(now)
            return _show_login("This is not the password.", 401)
        return self._let_in("/")

    def log_out(self, request: Request) -> Response:
        """End the login of this browser, also for a copy of its cookie."""
        self._signer.end_cookie(self._cookie_of(request), time.time())
        answer = _refuse("This browser is logged out.", 200, "Logged out")
        answer.delete_cookie(self._cookie, path=root_of(request))
        return answer

    def is_known(self, request: Request) -> bool:
        """Return whether a request comes from a browser with a login."""
        return bool(self._cookie_of(request))

    def form_token(self, request: Request) -> str:
        """Return the token for forms of this browser."""
        return self._signer.form_token(self._cookie_of(request))

    def is_form(self, request: Request, given: str) -> bool:
        """Return whether a form comes from a page of this browser."""
        return hmac.compare_digest(self.form_token(request).encode(), given.encode(errors="replace"))

    def _cookie_of(self, request: Request) -> str:
        """Return the good cookie whose root is in the path; '' for none. Servers at other ports may have set more."""
        for each in request.headers.get("cookie", "").split(";"):
            name, _, cookie = each.strip().partition("=")
            if name == self._cookie and hmac.compare_digest(self._signer.root_of(cookie), root_of(request)):
                return cookie if self._signer.is_cookie(cookie, time.time()) else ""
        return ""

    def _is_own(self, request: Request) -> bool:
        """Return whether a request comes from a page of this server, or from the person: a link may stand anywhere."""
        site = request.headers.get("sec-fetch-site", "none")
        if request.method in ("GET", "HEAD"):
            navigates = request.headers.get("sec-fetch-mode") == "navigate"
            top = request.headers.get("sec-fetch-dest", "document") == "document"
            return site in ("none", "same-origin") or (navigates and top)
        origin = request.headers.get("origin")
        return site in ("none", "same-origin") and (
            origin is None or origin.partition("://")[2].lower() in {*self._addresses, request.headers["host"].lower()}
        )

    def _take_link(self, request: Request, token: str) -> Response:
        """Exchange the token of a link for a cookie."""
        target = f"/{request.url.path.lstrip('/')}"  # two slashes would begin the name of another site
        if self._signer.take_link(token, time.time()):
            return self._let_in(target)
        if self.is_known(request):
            return RedirectResponse(f"{root_of(request)}{target}", 303)
        return _refuse("This link was used already, or is too old.", 401)

    def _let_in(self, target: str) -> Response:
        cookie = self._signer.make_cookie(time.time())
        root = self._signer.root_of(cookie)
        answer = RedirectResponse(f"{root}{target}", 303)
        answer.set_cookie(
            self._cookie,
            cookie,
            max_age=COOKIE_AGE,
            httponly=True,
            samesite="strict",
            secure=self._config.scheme == "https",
            path=root,
        )
        return answer

    def _ask_to_come_in(self, request: Request) -> Response:
        """Ask for a cookie. A browser that comes from another site sends none: the page asks it to come again."""
        if request.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return HTMLResponse(render("again.html"))
        if self._config.password and request.method == "GET":
            return _show_login("", 401)
        return _refuse("This page is for the person who runs it.", 401)


def _refuse(text: str, status: int, title: str = "") -> Response:
    shown = f"{text} For a link: amplifier dashboard --link"
    return HTMLResponse(render("refused.html", title=title or status, text=shown), status)


def _show_login(problem: str, status: int) -> Response:
    return HTMLResponse(render("login.html", problem=problem), status)
