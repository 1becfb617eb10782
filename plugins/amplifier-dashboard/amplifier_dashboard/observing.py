"""Ask what runs, and sum what is spent, once for all pages that show it at the same time."""

from __future__ import annotations

import asyncio
from dataclasses import field
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from amplifier_core.errors import SessionNotFound
from amplifier_core.frozen import slotted
from amplifier_core.store_views import StoreViews
from amplifier_foundation.operations.overview import Processes, ask_processes
from amplifier_foundation.sessions.accounts import accounts_of
from amplifier_foundation.sessions.ledger import Ledger
from amplifier_foundation.sessions.store_views import MOST, views_of
from amplifier_foundation.sessions.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from amplifier_core.storage import SessionRecord

    from .desk import Desk

T = TypeVar("T")

SLOW = 0.5
"""Seconds for the answer of the processes, from which on they are asked seldom: one of them hangs."""
PATIENCE = 10
"""How many times as long as it took a slow answer is good."""
FIRST_PAGE, PAGE, NEWS = 100, 250, 20
"""Sessions read at once: of all in the first round, which is short, in later ones, and of those changed last."""
FIRST_ROUND, ROUND = 0.006, 0.12
"""Seconds of a round of reading the costs: the first one, for which a person waits, and the later ones."""
REREAD = 300.0
"""Seconds after which all costs are read anew, without those of sessions deleted meanwhile."""


async def read_processes(desk: Desk) -> Processes:
    """Return what the processes of this data folder run, as of the last change; after a slow answer, as it was then."""
    kept = desk.kept.setdefault("processes", _Asked())
    assert isinstance(kept, _Asked)
    async with kept.lock:
        begun = monotonic()
        if kept.answer is None or (kept.seen != desk.changes.count and begun > kept.good_until):
            kept.seen = desk.changes.count
            kept.answer = await asyncio.to_thread(ask_processes)
            if (took := monotonic() - begun) > SLOW:
                kept.good_until = monotonic() + PATIENCE * took
                asyncio.get_running_loop().call_later(PATIENCE * took, desk.changes.note)
        return kept.answer


@slotted
class _Asked:
    """The last answer of the processes, and the number of changes before it."""

    answer: Processes | None = None
    seen: int = -1
    good_until: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Key(NamedTuple):
    """What usage is summed by; `account` is that of a background session, '' without one."""

    day: str
    model: str
    bundle: str
    project: str
    account: str


class Spending:
    """The usage of all sessions by `Key`, as `amplifier cost` sums it; only changed sessions are read again."""

    def __init__(self) -> None:
        self.is_complete = False
        """Whether every session is in the sums: many are read round by round."""
        self._read_at = monotonic()
        self._changed: dict[str, datetime] = {}
        self._keys: dict[str, list[Key]] = {}
        self._usage: dict[Key, dict[str, Usage]] = {}
        self._sums: dict[Key, Usage] = {}
        self._last: str | None = None
        """The last session of the first reading so far."""

    async def refresh(self, desk: Desk) -> None:
        """Read the sessions that have changed, then more of the first reading: as many as fit into a round."""
        views, begun = views_of(desk.store), monotonic()
        before = None
        while self._last is not None or self.is_complete:
            page = await views.session_page(before=before, limit=NEWS)
            if not self._take(page) or len(page) < NEWS:
                break
            before = page[-1].session_id
        limit, seconds = (FIRST_PAGE, FIRST_ROUND) if self._last is None else (PAGE, ROUND)
        if not isinstance(desk.store, StoreViews):  # it is read from its begin for each page
            limit = MOST
        end = begun + seconds
        while not self.is_complete and monotonic() < end:
            page = await views.session_page(before=self._last, limit=limit)
            self._take(page)
            self.is_complete = len(page) < limit
            self._last = page[-1].session_id if page else self._last
        if not self.is_complete:
            desk.changes.note()  # the next round

    def _take(self, page: Sequence[SessionRecord]) -> int:
        """Add sessions to the sums; return how many of them have changed."""
        fresh = [each for each in page if self._changed.get(each.session_id) != each.updated]
        for record in fresh:
            for key in self._keys.pop(record.session_id, ()):
                self._usage[key].pop(record.session_id, None)
                self._sums.pop(key, None)
            self._changed[record.session_id] = record.updated
            self._add(record)
        return len(fresh)

    def _add(self, record: SessionRecord) -> None:
        if "ledger" not in record.metadata:
            return
        account = next((each for each in accounts_of(record.metadata) if each.startswith("queue:")), "")
        for entry in Ledger.of(record.metadata).entries():
            key = Key(entry.day, entry.model, record.bundle, record.project, account)
            self._usage.setdefault(key, {})[record.session_id] = entry.usage
            self._keys.setdefault(record.session_id, []).append(key)
            self._sums.pop(key, None)

    def _sum(self, key: Key) -> Usage:
        if key not in self._sums:
            self._sums[key] = sum(self._usage[key].values(), Usage())
        return self._sums[key]

    def by(self, part: Callable[[Key], T | None]) -> dict[T, Usage]:
        """Return the usage by a part of the keys; None leaves a key out."""
        sums: dict[T, Usage] = {}
        for key in [key for key, each in self._usage.items() if each]:
            if (name := part(key)) is not None:
                sums[name] = sums.get(name, Usage()) + self._sum(key)
        return sums

    @property
    def is_old(self) -> bool:
        """Whether all sessions are to be read anew."""
        return self.is_complete and monotonic() - self._read_at > REREAD


async def read_spending(desk: Desk) -> Spending:
    """Return what all sessions have spent so far."""
    kept = desk.kept.setdefault("spending", _Kept())
    assert isinstance(kept, _Kept)
    async with kept.lock:
        if kept.seen != desk.changes.count or not kept.spending.is_complete:
            kept.seen = desk.changes.count
            if kept.spending.is_old and kept.next is None:
                kept.next = Spending()
            try:
                for each in kept.both():
                    await each.refresh(desk)
            except SessionNotFound:  # the last session of a page was deleted
                kept.spending, kept.next = Spending(), None
                desk.changes.note()
            if kept.next is not None and kept.next.is_complete:
                kept.spending, kept.next = kept.next, None
        return kept.spending


@slotted
class _Kept:
    """The sums that are shown, and those that will take their place once they are complete."""

    spending: Spending = field(default_factory=Spending)
    next: Spending | None = None
    seen: int = -1
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def both(self) -> Iterator[Spending]:
        """Yield the sums that are kept up to date."""
        yield self.spending
        if self.next is not None:
            yield self.next


def today() -> str:
    """Return the day of costs, in UTC."""
    return datetime.now(UTC).date().isoformat()
