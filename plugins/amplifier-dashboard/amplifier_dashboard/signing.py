"""Sign the links that let a browser in, and the cookies that keep it known.

The key lies in the data folder, for its user alone. So links can be made while the server runs, and cookies stay good
when it is started anew. A new key ends them all at once, also for servers that run: they read it each time.
"""

from __future__ import annotations

import hmac
import json
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

from amplifier_foundation.documents.files import locked_folder, replace_file, write_whole
from amplifier_foundation.paths import make_private

if TYPE_CHECKING:
    from pathlib import Path

LINK_AGE, COOKIE_AGE = 24 * 3600, 30 * 24 * 3600
"""Seconds in which a link may be opened, and in which a browser stays known."""
KEY_LENGTH = 32
"""Bytes."""
ROOT_LENGTH = 16
"""Hexadecimal digits in the path of a cookie."""


class Signer:
    """Makes and checks links and cookies with the key in a folder; times are seconds since 1970."""

    def __init__(self, folder: Path) -> None:
        self._folder = make_private(folder)
        self._used = folder / "links"
        self._key = folder / "key"
        self._read_key()

    def make_link(self, now: float) -> str:
        """Return a token that is good once."""
        return self._make("link", now + LINK_AGE)

    def take_link(self, token: str, now: float) -> bool:
        """Return whether a token is good, and have it used."""
        return self._is_good("link", token, now) and self._use(token, now)

    def make_cookie(self, now: float) -> str:
        """Return a cookie for a browser."""
        return self._make("cookie", now + COOKIE_AGE)

    def is_cookie(self, cookie: str, now: float) -> bool:
        """Return whether a cookie is good."""
        return self._is_good("cookie", cookie, now) and cookie not in self._read_used(now)

    def end_cookie(self, cookie: str, now: float) -> None:
        """End a good cookie."""
        self._use(cookie, now)

    def end_all(self) -> None:
        """End all links and cookies."""
        with locked_folder(self._folder):
            self._write_key()

    def root_of(self, cookie: str) -> str:
        """Return the path of a cookie; nobody can guess it, even with the cookie."""
        return f"/~{self._sign('root', cookie)[:ROOT_LENGTH]}"

    def form_token(self, cookie: str) -> str:
        """Return the token for the forms of the browser with a cookie."""
        return self._sign("form", cookie)

    def _make(self, kind: str, until: float) -> str:
        content = f"{secrets.token_urlsafe(18)}.{int(until)}"
        return f"{content}.{self._sign(kind, content)}"

    def _is_good(self, kind: str, text: str, now: float) -> bool:
        content, _, signature = text.rpartition(".")
        until = content.rpartition(".")[2]
        is_signed = hmac.compare_digest(signature.encode(), self._sign(kind, content).encode())
        return is_signed and now < int(until)

    def _sign(self, kind: str, content: str) -> str:
        return hmac.new(self._read_key(), f"{kind} {content}".encode(), "sha256").hexdigest()

    def _use(self, signed: str, now: float) -> bool:
        """Note the end of a link or a cookie; return whether it was good before."""
        with locked_folder(self._folder):
            used = self._read_used(now)
            if signed in used:
                return False
            used[signed] = float(signed.split(".")[1])
            write_whole(self._used, json.dumps(used))
        return True

    def _read_used(self, now: float) -> dict[str, float]:
        with suppress(OSError, ValueError):
            used = json.loads(self._used.read_text(encoding="utf-8"))
            return {signed: until for signed, until in used.items() if until > now}
        return {}

    def _read_key(self) -> bytes:
        """Return the key; make one if there is none, or half of one."""
        with suppress(FileNotFoundError):
            key = self._key.read_bytes()
            if len(key) == KEY_LENGTH:
                return key
        with locked_folder(make_private(self._folder)):  # somebody may have removed it
            if not self._key.exists() or self._key.stat().st_size != KEY_LENGTH:  # else another process has made it
                self._write_key()
        return self._read_key()

    def _write_key(self) -> None:
        replace_file(self._key, secrets.token_bytes(KEY_LENGTH), 0o600)
