"""Sum the ledgers of the stored sessions charged to one account: a tree, a bundle or a background session.

Each record lists its accounts in its metadata: `["tree:ID", "bundle:PLACE", "queue:PROJECT:QUEUE"]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .ledger import BEFORE_FORK, LEDGER, TREE_BEFORE_FORK, Ledger
from .lineage import read_below

if TYPE_CHECKING:
    from collections.abc import Mapping
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
    """The ledgers of the sessions charged to one account, by session; `refresh` reads the changed ones."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ledgers: dict[str, Ledger] = {}
        self._newest: datetime | None = None

    def copy(self) -> Account:
        """Return an account that is refreshed by itself from here on."""
        made = Account(self.name)
        made.ledgers, made._newest = dict(self.ledgers), self._newest
        return made

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
                self.ledgers[record.session_id] = self._read(record)
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
    """Return the metadata of a new fork about the spending before it: of its source, alone and with its tree."""
    below = await read_below(store, source.session_id)
    if not below and source.metadata.keys().isdisjoint((LEDGER, BEFORE_FORK, TREE_BEFORE_FORK)):
        return {}
    own = Ledger.of(source.metadata, BEFORE_FORK)
    own.add(Ledger.of(source.metadata))
    tree = Ledger.of(source.metadata, TREE_BEFORE_FORK)
    for each in (source, *below):
        tree.add(Ledger.of(each.metadata))
    members = {BEFORE_FORK: own.to_dict(), TREE_BEFORE_FORK: tree.to_dict()}
    return {name: ledger for name, ledger in members.items() if ledger}
