"""Sum the ledgers of the stored sessions charged to one account: a tree, a bundle or a background session.

Each record lists its accounts in its metadata: `["tree:ID", "bundle:PLACE", "queue:PROJECT:QUEUE"]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .ledger import BEFORE_FORK, LEDGER, TREE_BEFORE_FORK, Ledger
from .lineage import read_below

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from amplifier_core.storage import SessionRecord, SessionStore

ACCOUNTS = "accounts"
"""The member of a record's metadata with its accounts."""
_PAGE = 16
"""Sessions read first; then eight times as many, until one is known."""


def tree_account(session_id: str) -> str:
    """Return the account of a session with all sessions below it."""
    return f"tree:{session_id}"


def bundle_account(name: str, place: object) -> str:
    """Return the account of all sessions of a bundle: by its file, or by its name when a program made it."""
    return f"bundle:{place or name}"


def queue_account(project: str, queue: str) -> str:
    """Return the account of all sessions of a background session."""
    return f"queue:{project}:{queue}"


def accounts_of(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the accounts in the metadata of a record."""
    listed = metadata.get(ACCOUNTS)
    return tuple(str(each) for each in listed) if isinstance(listed, list | tuple) else ()


class Account:
    """The ledgers of the sessions charged to one account; `refresh` reads the changed ones.

    Invariant: `total` is the sum of the ledgers, so that a look at it takes the same for any number of sessions.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.total = Ledger()
        self._ledgers: dict[str, Ledger] = {}
        self._newest: datetime | None = None
        self._first_day = ""

    def copy(self) -> Account:
        """Return an account that is refreshed by itself from here on."""
        made = Account(self.name)
        made.total, made._ledgers = self.total.copy(), dict(self._ledgers)
        made._newest, made._first_day = self._newest, self._first_day
        return made

    def put(self, session_id: str, ledger: Ledger) -> None:
        """Charge a session with a ledger, in place of an earlier one."""
        if (earlier := self._ledgers.get(session_id)) is not None:
            self.total.take_away(earlier)
        self._ledgers[session_id] = ledger
        self.total.add(ledger)

    def total_without(self, session_ids: Iterable[str]) -> Ledger:
        """Return the sum of the ledgers of the other sessions."""
        whole = self.total.copy()
        for session_id in session_ids:
            if (ledger := self._ledgers.get(session_id)) is not None:
                whole.take_away(ledger)
        return whole

    def begin_day(self, day: str) -> None:
        """Forget the sessions with nothing of this day or later, at the first call of a day."""
        if day != self._first_day:
            self._first_day, ledgers = day, self._ledgers
            self.total, self._ledgers = Ledger(), {}
            for session_id, ledger in ledgers.items():
                if not ledger.ends_before(day):
                    self.put(session_id, ledger)

    async def refresh(self, store: SessionStore, now: datetime, since: datetime | None = None) -> None:
        """Read the sessions changed since the last call; the first call reads those changed since `since`, or all.

        So does a call before the last one: the clock was set back. A session whose time is to come hides no other one.
        """
        is_known = self._newest is not None and self._newest <= now
        bound, limit = self._newest if is_known else since, _PAGE
        while True:
            records = await store.sessions(limit=limit)
            if len(records) < limit or (bound is not None and records[-1].updated < bound):
                break
            limit *= 8
        for record in records:
            if (bound is None or record.updated >= bound) and self.name in accounts_of(record.metadata):
                self.put(record.session_id, self._read(record))
        if records:
            self._newest = min(now, max(record.updated for record in records))

    def _read(self, record: SessionRecord) -> Ledger:
        ledger, tree = Ledger.of(record.metadata), tree_account(record.session_id)
        if tree not in accounts_of(record.metadata):
            ledger.drop_seconds()  # they are part of the turn above
        if tree == self.name:
            ledger.add(Ledger.of(record.metadata, TREE_BEFORE_FORK))
        return ledger


async def fork_metadata(store: SessionStore, source: SessionRecord) -> dict[str, Any]:
    """Return the metadata of a new fork about the spending before it: of its source, alone and with its tree.

    It reads no history, except those of turns that no record counts yet: 10,000 messages take 0.1 s.
    """
    from .uncounted import count_all

    source, *below = await count_all(store, [source, *await read_below(store, source.session_id)])
    if not below and source.metadata.keys().isdisjoint((LEDGER, BEFORE_FORK, TREE_BEFORE_FORK)):
        return {}
    own = Ledger.of(source.metadata, BEFORE_FORK)
    own.add(Ledger.of(source.metadata))
    tree = Ledger.of(source.metadata, TREE_BEFORE_FORK)
    for each in (source, *below):
        tree.add(Ledger.of(each.metadata))
    members = {BEFORE_FORK: own.to_dict(), TREE_BEFORE_FORK: tree.to_dict()}
    return {name: ledger for name, ledger in members.items() if ledger}
