"""Which stored sessions are old enough to forget."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Iterable
    from datetime import datetime

    from amplifier_core.storage import SessionRecord

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def age(text: str) -> timedelta:
    """Return the time that `90s`, `90m`, `36h`, `30d` or `8w` says. Raises `ValueError`."""
    found = re.fullmatch(r"([0-9]{1,6})([smhdw])", text.strip())
    if found is None:
        raise ValueError(f"'{text}' is no time; write a number and s, m, h, d or w, such as 30d")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def disposable(
    records: Iterable[SessionRecord], *, before: datetime | None, keep: int = 0, needed: Container[str] = ()
) -> list[SessionRecord]:
    """Return the sessions that may go, the oldest first: last changed before `before`, and not among the newest `keep`.

    One that runs, and one in `needed`, stays.
    """
    newest_first = sorted(records, key=lambda record: (record.updated, record.session_id), reverse=True)
    return [
        record
        for record in reversed(newest_first[keep:])
        if record.status != "running"
        and record.session_id not in needed
        and (before is None or record.updated < before)
    ]
