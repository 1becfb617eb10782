"""Turn the names of events into subjects of NATS, and back.

`work:done` of the site berlin is `STREAM.berlin.work.done`: the colons part tokens, so that the broker can filter by
`work:*`, and grant rights by it. Bytes that no token may have stand as `%3A`; an empty token is `%`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from collections.abc import Sequence

_SAFE = "!$&'()+,;=@-_~"
_PREFIX = re.compile(r"(.+):\*")


def subject_of(stream: str, site: str, name: str) -> str:
    """Return the subject of an event."""
    return f"{stream}.{site}.{_tokens(name)}"


def parse_subject(subject: str) -> tuple[str, str]:
    """Return the site and the name of an event."""
    _, site, *tokens = subject.split(".")
    return site, ":".join("" if token == "%" else unquote(token, errors="replace") for token in tokens)


def filters_of(stream: str, names: Sequence[str]) -> list[str]:
    """Return subjects that stand for these names of all sites; none of them covers another.

    A prefix that ends within a token has no subject: it stands for all events.
    """
    found = sorted({f"{stream}.*.{_filter(name)}" for name in names})
    return [each for each in found if not any(other != each and _covers(other, each) for other in found)]


def _filter(name: str) -> str:
    if not name.endswith("*"):
        return _tokens(name)
    prefix = _PREFIX.fullmatch(name)
    return f"{_tokens(prefix[1])}.>" if prefix else ">"


def _covers(wide: str, narrow: str) -> bool:
    return wide.endswith(".>") and f"{narrow}.".startswith(wide[:-1]) and narrow != wide[:-2]


def _tokens(name: str) -> str:
    return ".".join(quote(token, safe=_SAFE).replace(".", "%2E") or "%" for token in name.split(":"))
