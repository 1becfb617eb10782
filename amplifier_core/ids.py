"""Check session ids, and make new ones."""

from __future__ import annotations

import re
from functools import lru_cache
from os import urandom

from .errors import InvalidSessionId

_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_MADE_FROM = re.compile(r"(.+)-[0-9a-f]{12}")
_DEVICE = re.compile(r"(?i:con|prn|aux|nul|com[0-9]|lpt[0-9])")


def validate_session_id(session_id: object) -> str:
    """Return `session_id` if it is safe as a file name, in a query and in a log; else raise `InvalidSessionId`.

    Safe is `[A-Za-z0-9][A-Za-z0-9_-]{0,127}`, matched whole, and no reserved device name (CON, NUL, COM1 …).
    The kernel itself takes any non-empty string; stores, servers and the command line call this.
    """
    if not isinstance(session_id, str) or len(session_id) > 128 or not _SESSION_ID.fullmatch(session_id):
        raise InvalidSessionId(session_id)
    if _DEVICE.fullmatch(session_id):
        raise InvalidSessionId(session_id)
    return session_id


def new_session_id(name: str = "") -> str:
    """Return an unused id: 48 random bits in hex, after `name` reduced to the letters of an id.

    >>> new_session_id("code reviewer")  # doctest: +SKIP
    'code-reviewer-3f9a0c1b77de'
    """
    return session_id_of(name, urandom(6).hex())


def name_in_session_id(session_id: str) -> str:
    """Return the name that `new_session_id` made an id from, '' for any other id.

    >>> name_in_session_id("code-reviewer-3f9a0c1b77de")
    'code-reviewer'
    """
    found = _MADE_FROM.fullmatch(session_id)
    return found[1] if found else ""


def session_id_of(name: str, suffix: str) -> str:
    """Return an id of `name`, reduced to the letters of an id (64 at most), and `suffix`."""
    stem = _stem_of(name)
    return f"{stem}-{suffix}" if stem else suffix


@lru_cache(maxsize=256)
def _stem_of(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]+", "-", name).strip("-_")[:64]


BEFORE_HOST = "@"
"""Between the name of a process and that of its host."""


def host_of(process: str) -> str:
    """Return the host in the name of a process, '' for a name without one."""
    return process.rpartition(BEFORE_HOST)[2] if BEFORE_HOST in process else ""
