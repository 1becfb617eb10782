"""Between the small contract of storage and the full one: either can be used where the other is wanted."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from amplifier_core.errors import SessionConflict, SessionExists, SessionNotFound
from amplifier_core.ids import validate_session_id
from amplifier_core.storage import Finding, SessionRecord, SessionStorage, SessionStore

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from amplifier_core.transcript import Message

T = TypeVar("T")

_FOUND = 20
_TIMES = ("created", "updated")
_FIXED = ("session_id", "parent_id", "fork_of", "fork_at", "message_count", "updated")
_FIELDS = tuple(field.name for field in fields(SessionRecord))
_DELETED = "deleted"
_PARENT, _SOURCE = "missing_parent", "missing_source"


def as_session_store(storage: SessionStore | SessionStorage) -> SessionStore:
    """Return `storage` itself, or what makes a full store of a small one."""
    if isinstance(storage, SessionStorage) and not isinstance(storage, SessionStore):
        return SessionStorageAdapter(storage)
    return storage


def as_session_storage(store: SessionStore) -> SessionStorage:
    """Return a small storage whose sessions are those of `store`, which must be usable from any event loop."""
    return _StoreAsStorage(store)


class SessionStorageAdapter:
    """A `SessionStore` over a small storage, which is loaded and saved whole, in a thread, at every step.

    The record is the storage's metadata, beside the members that it has of its own. What the small contract cannot do
    costs: a fork copies the messages, `sessions` and `find` know only what the adapter was asked for, a deleted session
    leaves an empty one that says so, and two processes on one session are not kept apart.
    """

    def __init__(self, storage: SessionStorage) -> None:
        self._storage = storage
        self._lock = threading.Lock()
        self._known: dict[str, None] = {}

    async def create(self, record: SessionRecord) -> SessionRecord:
        """Store a new session; with `fork_of` and without `fork_at`, a fork of all that the source has now."""
        for session_id in (record.session_id, record.parent_id, record.fork_of):
            if session_id is not None:
                validate_session_id(session_id)
        return await self._run(lambda: self._create(record))

    async def append(self, session_id: str, messages: Sequence[Message], *, at: int) -> int:
        """Add messages after the first `at`."""
        validate_session_id(session_id)
        return await self._run(lambda: self._append(session_id, messages, at))

    async def update(self, session_id: str, **changes: Any) -> None:
        """Change fields of the record."""
        validate_session_id(session_id)
        for name in changes:
            if name not in _FIELDS or name in _FIXED:
                raise TypeError(f"a session record has no field '{name}' that can be changed")
        await self._run(lambda: self._update(session_id, changes))

    async def get(self, session_id: str) -> SessionRecord:
        """Return the record."""
        validate_session_id(session_id)
        return await self._run(lambda: self._load(session_id)[1])

    async def find(self, prefix: str) -> list[SessionRecord]:
        """Return the sessions, of those that were asked for, whose id begins with `prefix`."""
        found = [record for record in await self._run(self._all) if record.session_id.startswith(prefix)]
        return sorted(found, key=lambda record: record.created, reverse=True)[:_FOUND]

    async def sessions(
        self, *, project: str | None = None, parent_id: str | None = None, limit: int | None = None
    ) -> list[SessionRecord]:
        """Return those sessions that were asked for, the last updated first."""
        records = [record for record in await self._run(self._all) if project is None or record.project == project]
        records = [record for record in records if parent_id is None or record.parent_id == parent_id]
        return sorted(records, key=lambda record: record.updated, reverse=True)[:limit]

    async def read(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Message]:
        """Return messages."""
        validate_session_id(session_id)
        return (await self._run(lambda: self._load(session_id)[0]))[start:stop]

    def read_sync(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Message]:
        """Do what `read` does."""
        validate_session_id(session_id)
        with self._lock:
            return self._load(session_id)[0][start:stop]

    async def delete(self, session_id: str) -> None:
        """Empty a session and mark it as deleted; its forks have their own messages."""
        validate_session_id(session_id)
        await self._run(lambda: self._delete(session_id))

    async def examine(self, session_id: str) -> list[Finding]:
        """Return which sessions that this one came from are gone; what the storage itself lost it alone knows."""
        validate_session_id(session_id)
        return await self._run(lambda: self._examine(session_id))

    async def mend(self, session_id: str) -> list[Finding]:
        """Forget what is gone."""
        validate_session_id(session_id)
        return await self._run(lambda: self._mend(session_id))

    async def close(self) -> None:
        """Do nothing: a small storage has no end."""

    async def _run(self, work: Callable[[], T]) -> T:
        def alone() -> T:
            with self._lock:
                return work()

        return await asyncio.to_thread(alone)

    def _create(self, record: SessionRecord) -> SessionRecord:
        messages: list[Message] = []
        if record.fork_of is not None:
            messages = _shared(self._load(record.fork_of)[0], record.fork_at)
            record = replace(record, fork_at=len(messages))
        if self._is_there(record.session_id):
            raise SessionExists(record.session_id)
        self._refuse_a_circle(record)
        self._save(messages, record, {})
        return self._load(record.session_id)[1]

    def _refuse_a_circle(self, record: SessionRecord) -> None:
        above, seen = record.parent_id, set[str]()  # what another program saved may be a circle already
        while above is not None and above != record.session_id and above not in seen:
            seen.add(above)
            above = self._load(above)[1].parent_id if self._is_there(above) else None
        if above == record.session_id:
            raise SessionConflict(
                record.session_id,
                f"session '{record.session_id}' cannot have the parent '{record.parent_id}', which is the session "
                f"itself or descends from it. Choose another id",
            )

    def _append(self, session_id: str, messages: Sequence[Message], at: int) -> int:
        stored, record, besides = self._load(session_id)
        if len(stored) != at:
            raise SessionConflict(
                session_id, f"session '{session_id}' has {len(stored)} messages, not {at}: somebody else wrote it"
            )
        if messages:
            self._save([*stored, *_copied(list(messages))], replace(record, updated=_now()), besides)
        return at + len(messages)

    def _update(self, session_id: str, changes: Mapping[str, Any]) -> None:
        messages, record, besides = self._load(session_id)
        self._save(messages, replace(record, **{**changes, "updated": _now()}), besides)

    def _delete(self, session_id: str) -> None:
        self._load(session_id)
        self._storage.save(session_id, [], {"session_id": session_id, _DELETED: True})
        self._known.pop(session_id, None)

    def _examine(self, session_id: str) -> list[Finding]:
        record = self._load(session_id)[1]
        found = []
        if record.parent_id and not self._is_there(record.parent_id):
            found.append(Finding(_PARENT, f"its parent '{record.parent_id}' is gone", "forget the parent"))
        if record.fork_of and not self._is_there(record.fork_of):
            gone = f"it is a fork of '{record.fork_of}', which is gone"
            found.append(Finding(_SOURCE, gone, "forget the source", 0))
        return found

    def _mend(self, session_id: str) -> list[Finding]:
        found = self._examine(session_id)
        kinds = {finding.kind for finding in found}
        messages, record, besides = self._load(session_id)
        if _PARENT in kinds:
            record = replace(record, parent_id=None)
        if _SOURCE in kinds:
            record = replace(record, fork_of=None, fork_at=None)
        if kinds:
            self._save(messages, record, besides)
        return found

    def _all(self) -> list[SessionRecord]:
        return [self._load(session_id)[1] for session_id in list(self._known) if self._is_there(session_id)]

    def _is_there(self, session_id: str) -> bool:
        try:
            self._load(session_id)
        except SessionNotFound:
            return False
        return True

    def _load(self, session_id: str) -> tuple[list[Message], SessionRecord, dict[str, Any]]:
        """Return (messages, record, the members of the metadata that are the storage's own)."""
        try:
            messages, metadata = _copied(self._storage.load(session_id))
        except (LookupError, FileNotFoundError):
            raise SessionNotFound(session_id) from None
        if metadata.get(_DELETED):
            raise SessionNotFound(session_id)
        self._known[session_id] = None
        besides = {name: value for name, value in metadata.items() if name not in _FIELDS}
        return messages, _record(session_id, metadata, len(messages)), besides

    def _save(self, messages: list[Message], record: SessionRecord, besides: Mapping[str, Any]) -> None:
        metadata = {**besides, **{name: getattr(record, name) for name in _FIELDS}, "message_count": len(messages)}
        metadata |= {name: metadata[name].astimezone(UTC).isoformat() for name in _TIMES}
        self._storage.save(record.session_id, _copied(messages), _copied(metadata))


class _StoreAsStorage:
    """Saves what is new of a session; one whose history was changed is deleted and stored anew."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    def save(self, session_id: str, transcript: list[dict[str, Any]], metadata: dict[str, Any]) -> None:
        """Keep this session, replacing what was kept under its id."""
        _wait_for(self._save(session_id, transcript, metadata))

    def load(self, session_id: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Return (transcript, metadata). Raises `SessionNotFound`, which is a `LookupError`."""
        return _wait_for(self._load(session_id))

    def exists(self, session_id: str) -> bool:
        """Return whether `load` would succeed."""
        return _wait_for(self._exists(session_id))

    async def _save(self, session_id: str, transcript: list[Message], metadata: dict[str, Any]) -> None:
        stored = await self._store.read(session_id) if await self._exists(session_id) else None
        if stored is not None and stored != transcript[: len(stored)]:
            await self._store.delete(session_id)
            stored = None
        if stored is None:
            await self._store.create(SessionRecord(session_id, status="idle", metadata=metadata))
        else:
            await self._store.update(session_id, metadata=metadata)
        kept = len(stored or ())
        await self._store.append(session_id, transcript[kept:], at=kept)

    async def _load(self, session_id: str) -> tuple[list[Message], dict[str, Any]]:
        return await self._store.read(session_id), dict((await self._store.get(session_id)).metadata)

    async def _exists(self, session_id: str) -> bool:
        try:
            await self._store.get(session_id)
        except SessionNotFound:
            return False
        return True


def _wait_for(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` in a thread of its own: the caller may be within an event loop, which cannot run another."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def _record(session_id: str, metadata: Mapping[str, Any], count: int) -> SessionRecord:
    """Return the record that metadata holds; what another program left out is as in a new one."""
    known = {name: metadata[name] for name in _FIELDS if name in metadata}
    known |= {name: datetime.fromisoformat(known[name]) for name in _TIMES if isinstance(known.get(name), str)}
    return SessionRecord(**{"status": "idle", **known, "session_id": session_id, "message_count": count})


def _shared(messages: list[Message], at: int | None) -> list[Message]:
    point = len(messages) if at is None else at
    if not 0 <= point <= len(messages):
        raise IndexError(f"fork point {point} is not within 0 and {len(messages)}")
    return messages[:point]


def _copied(value: Any) -> Any:
    """Return a copy by way of JSON. Raises `TypeError`, `ValueError` for what is none."""
    import json

    return json.loads(json.dumps(value, allow_nan=False))


def _now() -> datetime:
    return datetime.now(UTC)
