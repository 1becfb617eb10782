"""Sign the links that let a browser in, and the cookies that keep it known.

The key lies in the data folder, for its user alone. So links can be made while the server runs, and cookies stay good
when it is started anew; without the key's file, every browser is unknown again.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

from amplifier_foundation.documents.files import locked_folder, write_whole
from amplifier_foundation.paths import make_private

if TYPE_CHECKING:
    from pathlib import Path

LINK_AGE, COOKIE_AGE = 24 * 3600, 30 * 24 * 3600
"""Seconds in which a link may be opened, and in which a browser stays known."""


class Signer:
    """Makes and checks links and cookies with the key in a folder; times are seconds since 1970."""

    def __init__(self, folder: Path) -> None:
        self._folder = make_private(folder)
        self._used = folder / "links"
        with locked_folder(folder):  # what another process is writing is no rest
            self._key = _read_key(folder / "key")

    def make_link(self, now: float) -> str:
        """Return a token that is good once."""
        return self._make("link", now + LINK_AGE)

    def take_link(self, token: str, now: float) -> bool:
        """Return whether a token is good, and have it used."""
        with locked_folder(self._folder):
            used = self._read_used(now)
            if not self._is_good("link", token, now) or token in used:
                return False
            used[token] = now + LINK_AGE
            write_whole(self._used, json.dumps(used))
        return True

    def make_cookie(self, now: float) -> str:
        """Return a cookie for a browser."""
        return self._make("cookie", now + COOKIE_AGE)

    def is_cookie(self, cookie: str, now: float) -> bool:
        """Return whether a cookie is good."""
        return self._is_good("cookie", cookie, now)

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
        return hmac.new(self._key, f"{kind} {content}".encode(), "sha256").hexdigest()

    def _read_used(self, now: float) -> dict[str, float]:
        with suppress(OSError, ValueError):
            used = json.loads(self._used.read_text(encoding="utf-8"))
            return {token: until for token, until in used.items() if until > now}
        return {}


def _read_key(path: Path) -> bytes:
    """Return the key in a file, which is made if there is none; whoever calls this has locked its folder."""
    with suppress(FileExistsError):
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(made, "wb") as file:  # noqa: PTH123 - it is a descriptor
            file.write(secrets.token_bytes(32))
    key = path.read_bytes()
    if len(key) != 32:  # its writer was killed
        path.unlink(missing_ok=True)
        return _read_key(path)
    return key
