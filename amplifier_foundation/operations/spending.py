"""Sum the stored usage of sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from amplifier_core.storage import SessionRecord, SessionStore

    from ..sessions.usage import Usage

KEYS = ("bundle", "model", "day", "session")
"""What usage is summed by; days are UTC."""


async def sum_stored(
    store: SessionStore, projects: Collection[str] | None, keys: Sequence[str]
) -> list[tuple[tuple[str, ...], Usage]]:
    """Return what the sessions of these projects (None: all) have used, as `sum_usage` does; it holds the sums alone.

    It counts the answers of killed turns, too.
    """
    from ..sessions.store_views import read_in_steps
    from ..sessions.uncounted import count_all

    sums: dict[tuple[str, ...], Usage] = {}
    for project in [None] if projects is None else set(projects):
        async for page in read_in_steps(store, project):
            _add(sums, await count_all(store, page), keys)
    return sorted(sums.items())


def sum_usage(records: Iterable[SessionRecord], keys: Sequence[str]) -> list[tuple[tuple[str, ...], Usage]]:
    """Return the usage of sessions by the values of `keys` (of `KEYS`), sorted by these.

    Each request counts once, with the session that made it.
    """
    sums: dict[tuple[str, ...], Usage] = {}
    _add(sums, records, keys)
    return sorted(sums.items())


def _add(sums: dict[tuple[str, ...], Usage], records: Iterable[SessionRecord], keys: Sequence[str]) -> None:
    from ..sessions.ledger import Ledger
    from ..sessions.usage import Usage

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
