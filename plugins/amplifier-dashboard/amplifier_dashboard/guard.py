"""Let only the person in who started the server.

The address that the command prints has a token, good for one browser: it is exchanged for a cookie. Every request names
a known host, requests of other sites are refused, and what changes something also carries a token of its own that only
the page knows.
"""

from __future__ import annotations

import hmac
import secrets
from hashlib import sha256
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.responses import PlainTextResponse, RedirectResponse

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""What every answer says to the browser."""
AGE = 30 * 24 * 3600
"""Seconds that a browser stays known."""


class Guard:
    """Decides about each request; `port` is part of the cookie's name: browsers share cookies among ports."""

    def __init__(self, port: int, hosts: tuple[str, ...] = LOOPBACK) -> None:
        self._hosts = {host if port in (80, 443) else f"{host}:{port}" for host in hosts}
        self._cookie = f"amplifier-{port}"
        self._token: str | None = secrets.token_urlsafe(32)
        self._known: set[str] = set()
        """Digests of the cookies of known browsers."""
        self._key = secrets.token_bytes(32)

    @property
    def token(self) -> str | None:
        """The token of the address; None once it was used."""
        return self._token

    def refuse(self, request: Request) -> Response | None:
        """Return the answer for a request that may not go on; None: it may."""
        if request.headers.get("host", "").lower() not in self._hosts:
            return PlainTextResponse("this server has another name", 421)
        if not self._is_own(request):
            return PlainTextResponse("requests of other sites are refused", 403)
        if (given := request.query_params.get("token")) is not None and request.method == "GET":
            return self._exchange(request, given)
        if not self.is_known(request):
            return PlainTextResponse(
                "This page is for the person who started it. Open the address that `amplifier dashboard` printed; "
                "it works once. For a new one: amplifier dashboard --link",
                401,
            )
        return None

    def is_known(self, request: Request) -> bool:
        """Return whether the request has the cookie of a known browser."""
        return _digest(request.cookies.get(self._cookie, "")) in self._known

    def form_token(self, request: Request) -> str:
        """Return the token for forms of this browser."""
        return hmac.new(self._key, request.cookies.get(self._cookie, "").encode(), "sha256").hexdigest()

    def is_form(self, request: Request, given: str) -> bool:
        """Return whether a form comes from a page of this browser."""
        return hmac.compare_digest(self.form_token(request).encode(), given.encode())

    def _is_own(self, request: Request) -> bool:
        """Return whether a request comes from a page of this server, or from the person."""
        site = request.headers.get("sec-fetch-site", "none")
        if request.method in ("GET", "HEAD"):
            navigates = request.headers.get("sec-fetch-mode", "navigate") == "navigate"
            return site in ("none", "same-origin") or (navigates and site in ("same-site", "cross-site"))
        origin = request.headers.get("origin")
        return site in ("none", "same-origin") and (origin is None or urlsplit(origin).netloc.lower() in self._hosts)

    def _exchange(self, request: Request, given: str) -> Response:
        """Exchange the token of the address for a cookie."""
        target = request.url.path
        if self._token is None or not hmac.compare_digest(given.encode(), self._token.encode()):
            if self.is_known(request):
                return RedirectResponse(target, 303)
            return PlainTextResponse("this address was used already. For a new one: amplifier dashboard --link", 401)
        self._token = None
        cookie = secrets.token_urlsafe(32)
        self._known.add(_digest(cookie))
        answer = RedirectResponse(target, 303)
        answer.set_cookie(self._cookie, cookie, max_age=AGE, httponly=True, samesite="strict", path="/")
        return answer


def _digest(cookie: str) -> str:
    return sha256(cookie.encode()).hexdigest()
