"""Sum the stored usage of sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from amplifier_core.storage import SessionRecord

    from ..sessions.usage import Usage

KEYS = ("bundle", "model", "day", "session")
"""What usage is summed by; days are UTC."""


def sum_usage(records: Iterable[SessionRecord], keys: Sequence[str]) -> list[tuple[tuple[str, ...], Usage]]:
    """Return the usage of sessions by the values of `keys` (of `KEYS`), sorted by these.

    Each request counts once, with the session that made it.
    """
    from ..sessions.ledger import Ledger
    from ..sessions.usage import Usage

    sums: dict[tuple[str, ...], Usage] = {}
    for record in records:
        for entry in Ledger.of(record.metadata).entries():
            facts = {
                "bundle": record.bundle,
                "model": entry.model,
                "day": entry.day,
                "session": record.session_id,
            }
            values = tuple(facts[key] for key in keys)
            sums[values] = sums.get(values, Usage()) + entry.usage
    return sorted(sums.items())
