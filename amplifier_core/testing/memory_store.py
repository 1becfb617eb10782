"""Keep a whole store in memory, for tests: it obeys every rule of the contract except durability."""

from __future__ import annotations

import json
from collections import Counter
from copy import deepcopy
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from ..errors import SessionConflict, SessionExists, SessionNotFound
from ..frozen import slotted
from ..ids import validate_session_id
from ..storage import Finding, SessionRecord, check_changes
from .memory_documents import copy_json, has
from .memory_views import MemoryViews

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from ..events import SessionEvent
    from ..storage import DeliveryState
    from ..transcript import Message

_FOUND = 20
_NEEDED: tuple[DeliveryState, ...] = ("pending", "claimed", "dead")


@slotted
class _History:
    """Hold messages as JSON; the first `shared` ones are the source's. A source outlives its session here."""

    source: _History | None = None
    shared: int = 0
    own: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    """The numbers of its own messages in the order of all that were appended to the store."""

    def count(self) -> int:
        return self.shared + len(self.own)

    def texts(self) -> list[str]:
        return [
            text for history, stop in reversed(self.parts()) for text in history.own[: max(0, stop - history.shared)]
        ]

    def parts(self) -> list[tuple[_History, int]]:
        """Return this history with its end, then its source with the end of the shared messages, and so on."""
        parts, history, stop = [(self, self.count())], self, self.shared
        while history.source is not None:
            history = history.source
            parts.append((history, stop))
            stop = min(stop, history.shared)
        return parts


class MemoryStore(MemoryViews):
    """Implement `DurableStore`, `DocumentSearch` and `StoreViews` without a file; its content ends with the object."""

    def __init__(self) -> None:
        super().__init__()
        self._records: dict[str, SessionRecord] = {}
        self._histories: dict[str, _History] = {}
        self._received: set[tuple[str, str]] = set()
        self._appended = 0

    async def create(self, record: SessionRecord) -> SessionRecord:
        """Store a new session; with `fork_of` but no `fork_at`, fork the whole source.

        Raises `SessionExists`, and the other errors of `SessionStore.create`.
        """
        for session_id in (record.session_id, record.parent_id, record.fork_of):
            if session_id is not None:
                validate_session_id(session_id)
        history = _History() if record.fork_of is None else self._fork(record.fork_of, record.fork_at)
        if record.session_id in self._records:
            raise SessionExists(record.session_id)
        self._refuse_circle(record)
        config, metadata = copy_json(record.config), copy_json(record.metadata)
        fork_at = None if record.fork_of is None else history.shared
        self._records[record.session_id] = replace(record, fork_at=fork_at, config=config, metadata=metadata)
        self._histories[record.session_id] = history
        self._tell()
        return await self.get(record.session_id)

    async def append(self, session_id: str, messages: Sequence[Message], *, at: int) -> int:
        """Add messages after the first `at`. Raises `SessionConflict`, and `TypeError` or `ValueError` for no JSON."""
        record = self._record(session_id)
        texts = [json.dumps(message, allow_nan=False) for message in messages]
        history = self._histories[session_id]
        if history.count() != at:
            raise SessionConflict(session_id, f"session '{session_id}' has {history.count()} messages, not {at}")
        if texts:
            history.own += texts
            history.numbers += range(self._appended, self._appended + len(texts))
            self._appended += len(texts)
            self._records[session_id] = replace(record, updated=self._now())
            self._tell()
        return history.count()

    async def update(self, session_id: str, **changes: Any) -> None:
        """Change fields of the record."""
        self._update(session_id, changes)

    async def get(self, session_id: str) -> SessionRecord:
        """Return the record."""
        record = self._record(session_id)
        return deepcopy(replace(record, message_count=self._histories[session_id].count()))

    async def find(self, prefix: str) -> list[SessionRecord]:
        """Return sessions with ids beginning with `prefix`."""
        found = [await self.get(session_id) for session_id in self._records if session_id.startswith(prefix)]
        return sorted(found, key=lambda record: record.created, reverse=True)[:_FOUND]

    async def sessions(
        self, *, project: str | None = None, parent_id: str | None = None, limit: int | None = None
    ) -> list[SessionRecord]:
        """Return sessions, the last updated first."""
        records = [await self.get(session_id) for session_id in self._records]
        wanted = [record for record in records if has(record, {"project": project, "parent_id": parent_id})]
        return sorted(wanted, key=lambda record: record.updated, reverse=True)[:limit]

    async def expired_sessions(self, *, before: datetime, keep: int = 0, limit: int = 1000) -> list[str]:
        """Return the ids of finished sessions nobody needs, the oldest first."""
        needed: set[str | None] = set()
        for state in _NEEDED:
            needed |= {each.session_id for each in await self.deliveries(state=state, limit=10**9)}
        spent: list[str] = []
        newer: Counter[tuple[str | None, str]] = Counter()
        for record in await self.sessions():
            if record.event_id is None:
                continue
            newer[record.parent_id, record.name] += 1
            is_old = record.updated < before and record.status != "running"
            if newer[record.parent_id, record.name] > keep and is_old and record.session_id not in needed:
                spent.append(record.session_id)
        return spent[::-1][:limit]

    async def read(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Message]:
        """Return messages; the caller may change them."""
        return self.read_sync(session_id, start, stop)

    def read_sync(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Message]:
        """Do as `read` does."""
        self._record(session_id)
        texts = self._histories[session_id].texts()[max(0, start) : stop if stop is None else max(0, stop)]
        return [json.loads(text) for text in texts]

    async def delete(self, session_id: str) -> None:
        """Forget a session."""
        self._record(session_id)
        del self._records[session_id], self._histories[session_id]
        self._forget_texts(session_id)
        self._tell()

    async def examine(self, session_id: str) -> list[Finding]:
        """Report a deleted parent or source; nothing else goes wrong in memory."""
        record = self._record(session_id)
        found = []
        if record.parent_id and record.parent_id not in self._records:
            found.append(Finding("missing_parent", f"its parent '{record.parent_id}' is gone", "forget the parent"))
        if record.fork_of and record.fork_of not in self._records:
            gone = f"it is a fork of '{record.fork_of}', which is gone"
            found.append(Finding("missing_source", gone, "forget the source", 0))
        return found

    async def repair(self, session_id: str) -> list[Finding]:
        """Forget a deleted parent or source; the messages stay."""
        found = await self.examine(session_id)
        remedies: dict[str, dict[str, Any]] = {
            "missing_parent": {"parent_id": None},
            "missing_source": {"fork_of": None, "fork_at": None},
        }
        for finding in found:
            self._records[session_id] = replace(self._records[session_id], **remedies[finding.kind])
            self._tell()
        return found

    async def receive(self, event: SessionEvent, origin: str) -> SessionEvent | None:
        """Append an event of another site to the log; None if it came before."""
        if (origin, event.event_id) in self._received:
            return None
        self._received.add((origin, event.event_id))
        return await self.emit(event)

    async def close(self) -> None:
        """Do nothing: there is no file."""

    def _stored_messages(self) -> dict[int, tuple[SessionRecord, int, Message]]:
        """Return each message once, by its number, with the session that wrote it, or else the oldest that has it."""
        found: dict[int, tuple[SessionRecord, int, Message]] = {}
        for is_own in (True, False):
            for session_id, record in self._records.items():
                for history, stop in self._histories[session_id].parts()[: 1 if is_own else None]:
                    for position in range(history.shared, stop):
                        at = position - history.shared
                        found.setdefault(history.numbers[at], (record, position, json.loads(history.own[at])))
        return found

    def _fork(self, source: str, at: int | None) -> _History:
        self._record(source)
        history = self._histories[source]
        point = history.count() if at is None else at
        if not 0 <= point <= history.count():
            raise IndexError(f"fork point {point} is not within 0 and {history.count()}")
        return _History(history, point)

    def _refuse_circle(self, record: SessionRecord) -> None:
        above = record.parent_id
        while above is not None and above != record.session_id:
            above = self._records[above].parent_id if above in self._records else None
        if above is not None:
            raise SessionConflict(
                record.session_id,
                f"session '{record.session_id}' cannot have the parent '{record.parent_id}', which is the session "
                f"itself or descends from it. Choose another id",
            )

    def _record(self, session_id: str) -> SessionRecord:
        validate_session_id(session_id)
        if session_id not in self._records:
            raise SessionNotFound(session_id)
        return self._records[session_id]

    def _update(self, session_id: str | None, changes: Mapping[str, Any]) -> None:
        record = self._record(validate_session_id(session_id))
        check_changes(changes)
        self._records[record.session_id] = replace(record, **{**deepcopy(dict(changes)), "updated": self._now()})
        self._tell()
