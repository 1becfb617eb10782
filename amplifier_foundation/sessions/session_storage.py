"""Adapt the small contract of storage to the full one."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterable
from dataclasses import fields, replace
from datetime import UTC, datetime
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from amplifier_core.cancellation import own_failure
from amplifier_core.errors import (
    AmplifierError,
    InvalidSessionId,
    SessionConflict,
    SessionExists,
    SessionNotFound,
    StoreError,
    StoreUnavailable,
)
from amplifier_core.ids import validate_session_id
from amplifier_core.raised import describe_raised
from amplifier_core.storage import Finding, SessionRecord, SessionStorage, SessionStore, check_changes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from amplifier_core.transcript import Message

T = TypeVar("T")

logger = logging.getLogger(__name__)

_WARNED_OF: WeakSet[type] = WeakSet()
"""The classes of storages of which a warning has said that they list no sessions: a program adapts one often."""
_FOUND = 20
_TIMES = ("created", "updated")
_FIELDS = tuple(field.name for field in fields(SessionRecord))
_BUNDLE_NAME = "bundle_name"
"""The member that programs read the name of the bundle from; the record's own is `bundle`."""
_DELETED = "deleted"
_PARENT, _SOURCE = "missing_parent", "missing_source"


def as_session_store(storage: SessionStore | SessionStorage) -> SessionStore:
    """Return `storage` itself, or an adapter for a small one. Raises `TypeError` for what is neither."""
    name = type(storage).__name__
    if not hasattr(storage, "create") and not isinstance(storage, SessionStorage):
        raise TypeError(f"{name} is no storage: it needs the methods save, load and exists, or those of SessionStore")
    if not isinstance(storage, SessionStorage) or isinstance(storage, SessionStore):
        return storage
    for method in ("save", "load", "exists"):
        if iscoroutinefunction(getattr(storage, method)):
            raise TypeError(f"{name}.{method} must not be async: it is called in a thread")
    return SessionStorageAdapter(storage)


class SessionStorageAdapter:
    """A `SessionStore` over a small storage; each step loads and saves a whole session, in a thread.

    The storage's metadata holds the record beside its own members. A storage may offer `list_sessions()` too, with the
    ids of all sessions. Limits of the small contract: a fork copies the messages; without `list_sessions`, only the
    sessions of this process and whole ids are found; a deleted session leaves an empty one with a mark; two processes
    on one session are not kept apart.
    """

    def __init__(self, storage: SessionStorage) -> None:
        self.storage = storage
        """The adapted storage."""
        self._lock = threading.Lock()
        self._known: dict[str, None] = {}
        self._lists = hasattr(storage, "list_sessions")

    async def create(self, record: SessionRecord) -> SessionRecord:
        """Store a new session; with `fork_of` and without `fork_at`, a fork of all messages of the source."""
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
        check_changes(changes)
        await self._run(lambda: self._update(session_id, changes))

    async def get(self, session_id: str) -> SessionRecord:
        """Return the record."""
        validate_session_id(session_id)
        return await self._run(lambda: self._load(session_id)[1])

    async def find(self, prefix: str) -> list[SessionRecord]:
        """Return the known sessions by the beginning of their id; the storage itself is asked for a whole id."""
        records = await self._run(lambda: self._all(prefix))
        found = [record for record in records if record.session_id.startswith(prefix)]
        return sorted(found, key=lambda record: record.created, reverse=True)[:_FOUND]

    async def sessions(
        self, *, project: str | None = None, parent_id: str | None = None, limit: int | None = None
    ) -> list[SessionRecord]:
        """Return the known sessions, the last updated first; a warning says when there may be others."""
        if not self._lists and type(self.storage) not in _WARNED_OF:
            _WARNED_OF.add(type(self.storage))
            logger.warning(
                "%s cannot list its sessions: others than those of this process are found by their whole id alone",
                type(self.storage).__name__,
            )
        records = [record for record in await self._run(self._all) if project is None or record.project == project]
        records = [record for record in records if parent_id is None or record.parent_id == parent_id]
        return sorted(records, key=lambda record: record.updated, reverse=True)[:limit]

    async def read(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Message]:
        """Return messages."""
        return await asyncio.to_thread(self.read_sync, session_id, start, stop)

    def read_sync(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Message]:
        """Read messages, as `read` does."""
        validate_session_id(session_id)
        with self._lock:
            return self._load(session_id)[0][max(0, start) : stop if stop is None else max(0, stop)]

    async def delete(self, session_id: str) -> None:
        """Empty a session and mark it as deleted; its forks keep their own copies."""
        validate_session_id(session_id)
        await self._run(lambda: self._delete(session_id))

    async def examine(self, session_id: str) -> list[Finding]:
        """Return whether the parent and the source are gone; losses of the storage itself stay unknown."""
        validate_session_id(session_id)
        return await self._run(lambda: self._examine(session_id))

    async def repair(self, session_id: str) -> list[Finding]:
        """Forget a missing parent and a missing source."""
        validate_session_id(session_id)
        return await self._run(lambda: self._repair(session_id))

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
            messages = self._load(record.fork_of)[0]
            point = len(messages) if record.fork_at is None else record.fork_at
            if not 0 <= point <= len(messages):
                raise IndexError(f"fork point {point} is not within 0 and {len(messages)}")
            messages, record = messages[:point], replace(record, fork_at=point)
        if self._is_there(record.session_id):
            raise SessionExists(record.session_id)
        self._refuse_a_circle(record)
        self._save(messages, record, {})
        return self._load(record.session_id)[1]

    def _refuse_a_circle(self, record: SessionRecord) -> None:
        above, seen = record.parent_id, set[str]()  # another program may have saved a circle
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
            self._save([*stored, *_copy(list(messages))], replace(record, updated=_now()), besides)
        return at + len(messages)

    def _update(self, session_id: str, changes: Mapping[str, Any]) -> None:
        messages, record, besides = self._load(session_id)
        self._save(messages, replace(record, **{**changes, "updated": _now()}), besides)

    def _delete(self, session_id: str) -> None:
        self._load(session_id)
        self._call("save", session_id, [], {"session_id": session_id, _DELETED: True})
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

    def _repair(self, session_id: str) -> list[Finding]:
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

    def _all(self, asked: str = "") -> list[SessionRecord]:
        """Return the records of the known and the listed sessions, and of the one `asked` for."""
        listed = self._call("list_sessions") if self._lists else []
        if not isinstance(listed, Iterable):
            raise StoreError(self._name, f"its list_sessions must return ids, not {type(listed).__name__}")
        ids = dict.fromkeys([*self._known, *listed, asked])
        return [self._load(session_id)[1] for session_id in ids if self._is_there(session_id)]

    def _is_there(self, session_id: str) -> bool:
        try:
            self._load(validate_session_id(session_id))
        except (InvalidSessionId, SessionNotFound):
            return False
        return True

    def _load(self, session_id: str) -> tuple[list[Message], SessionRecord, dict[str, Any]]:
        """Return the messages, the record, and the storage's own members of the metadata."""
        try:
            loaded = self._call("load", session_id, absent=(LookupError, FileNotFoundError))
        except (LookupError, FileNotFoundError):
            raise SessionNotFound(session_id) from None
        messages, metadata = self._check_loaded(session_id, _copy(loaded))
        if metadata.get(_DELETED):
            raise SessionNotFound(session_id)
        self._known[session_id] = None
        besides = {name: value for name, value in metadata.items() if name not in _FIELDS}
        known = {name: metadata[name] for name in _FIELDS if name in metadata}  # another program may leave some out
        known |= {name: datetime.fromisoformat(known[name]) for name in _TIMES if isinstance(known.get(name), str)}
        known.setdefault("bundle", metadata.get(_BUNDLE_NAME) or "")
        record = SessionRecord(**{"status": "idle", **known, "session_id": session_id, "message_count": len(messages)})
        return messages, record, besides

    def _save(self, messages: list[Message], record: SessionRecord, besides: Mapping[str, Any]) -> None:
        metadata = {**besides, **{name: getattr(record, name) for name in _FIELDS}, "message_count": len(messages)}
        metadata |= {name: metadata[name].astimezone(UTC).isoformat() for name in _TIMES}
        metadata[_BUNDLE_NAME] = record.bundle
        self._call("save", record.session_id, _copy(messages), _copy(metadata))

    def _check_loaded(self, session_id: str, loaded: Any) -> tuple[list[Message], dict[str, Any]]:
        """Return what the storage has loaded. Raises `StoreError` for what is no history with its metadata."""
        if isinstance(loaded, list) and [type(part) for part in loaded] == [list, dict]:
            messages, metadata = loaded
            if all(isinstance(message, dict) for message in messages):
                return messages, metadata
        wanted = "a list of messages, all of them dicts, and a dict of metadata"
        raise StoreError(self._name, f"its load must return {wanted}; for session '{session_id}' it has not")

    def _call(self, method: str, *given: Any, absent: tuple[type[Exception], ...] = ()) -> Any:
        """Call the storage; what is `absent` is raised as it is.

        Raises `StoreUnavailable` for its `OSError`, which may be over soon, and `StoreError` for another failure.
        """
        try:
            return getattr(self.storage, method)(*given)
        except BaseException as raised:
            error = own_failure(raised)
            if isinstance(error, (AmplifierError, *absent)) and error is raised:
                raise
            kind = StoreUnavailable if isinstance(error, OSError) else StoreError
            raise kind(self._name, f"its {method} failed: {describe_raised(error, self.storage)}") from error

    @property
    def _name(self) -> str:
        return f"{type(self.storage).__module__}.{type(self.storage).__qualname__}"


def _copy(value: Any) -> Any:
    """Return a copy by way of JSON. Raises `TypeError`, `ValueError` for other values."""
    import json

    return json.loads(json.dumps(value, allow_nan=False))


def _now() -> datetime:
    return datetime.now(UTC)
