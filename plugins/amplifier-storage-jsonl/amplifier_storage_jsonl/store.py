"""The store: what `amplifier_core.storage.SessionStore` asks for, each method one thing done in a thread."""

from __future__ import annotations

import asyncio
import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from amplifier_core.errors import StoreUnavailable
from amplifier_core.ids import validate_session_id
from amplifier_core.storage import Finding, SessionRecord

from . import mending
from .folder import encoded
from .lines import dumps
from .sessions import Sessions, changed_document, new_document
from .worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from amplifier_core.transcript import Message

T = TypeVar("T")

_FOUND = 20
_PREFIX = re.compile(r"[A-Za-z0-9_-]{0,128}")
_CHANGEABLE = frozenset(field.name for field in fields(SessionRecord)) - {
    "session_id",
    "parent_id",
    "fork_of",
    "fork_at",
    "message_count",
    "updated",
}


class JsonlStore:
    """A `SessionStore` of folders; usable from any thread and any event loop, by several processes at once.

    Open one with `open_jsonl`. After `close`, everything raises `StoreUnavailable`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._sessions = Sessions(path)
        self._writer = Worker(f"writer of {path.name}")
        self._closed = False

    async def create(self, record: SessionRecord) -> SessionRecord:
        """Store a new session; with `fork_of` and without `fork_at`, a fork of all that the source has now."""
        for session_id in (record.session_id, record.parent_id, record.fork_of):
            if session_id is not None:
                validate_session_id(session_id)
        document = new_document(record)
        encoded(document)  # what cannot be stored is said before anything is made
        return await self._write(lambda: self._sessions.create(record, document))

    async def append(self, session_id: str, messages: Sequence[Message], *, at: int) -> int:
        """Add messages after the first `at`. Raises `TypeError`, naming the place, for what is not JSON."""
        validate_session_id(session_id)
        bodies = [_body(message, f"messages[{index}]") for index, message in enumerate(messages)]
        return await self._write(lambda: self._sessions.append(session_id, bodies, at))

    async def update(self, session_id: str, **changes: Any) -> None:
        """Change fields of the record: any but its id, its parent, what it shares, its length and `updated`."""
        validate_session_id(session_id)
        for name in changes:
            if name not in _CHANGEABLE:
                raise TypeError(f"a session record has no field '{name}' that can be changed")
        document = changed_document(changes)
        encoded(document)
        await self._write(lambda: self._sessions.update(session_id, document))

    async def get(self, session_id: str) -> SessionRecord:
        """Return the record."""
        validate_session_id(session_id)
        return await self._read(lambda: self._sessions.get(session_id))

    async def find(self, prefix: str) -> list[SessionRecord]:
        """Return the sessions whose id begins with `prefix`; none for what no id can begin with."""
        if not _PREFIX.fullmatch(prefix):
            return []
        return await self._read(lambda: self._sessions.find(prefix, _FOUND))

    async def sessions(
        self, *, project: str | None = None, parent_id: str | None = None, limit: int | None = None
    ) -> list[SessionRecord]:
        """Return sessions, the last updated first; a damaged one with what is wrong as its `error`."""
        return await self._read(lambda: self._sessions.listed(project, parent_id, limit))

    async def read(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Message]:
        """Return messages. Raises `StoreDamaged` when one of them is missing or not what was written.

        One that had to be counted to find them is as good as one of them.
        """
        self._check_open()
        return await asyncio.to_thread(self.read_sync, session_id, start, stop)

    def read_sync(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Message]:
        """Do what `read` does in the calling thread; the end of a long history costs what a short one does."""
        validate_session_id(session_id)
        self._check_open()
        return self._sessions.read(session_id, max(0, start), None if stop is None else max(0, stop))

    async def delete(self, session_id: str) -> None:
        """Remove a session's folder; its forks get what they share of it into their own."""
        validate_session_id(session_id)
        await self._write(lambda: self._sessions.delete(session_id))

    async def materialize(self, session_id: str) -> None:
        """Put the messages that a fork shares into its own folder, for tools that know nothing of forks.

        It goes on as before, and depends on its source no longer. Raises `StoreDamaged`.
        """
        validate_session_id(session_id)
        await self._write(lambda: self._sessions.materialize(session_id))

    async def examine(self, session_id: str) -> list[Finding]:
        """Return everything that is wrong with the messages and the lineage. Raises `StoreDamaged`."""
        validate_session_id(session_id)
        return await self._read(lambda: mending.examine(self._sessions, session_id))

    async def mend(self, session_id: str) -> list[Finding]:
        """Do what the remedies of `examine` say; what is cut away is in `<file>.cut-<time>`."""
        validate_session_id(session_id)
        return await self._write(lambda: mending.mend(self._sessions, session_id))

    async def close(self) -> None:
        """Finish what was begun; idempotent."""
        self._closed = True
        await asyncio.to_thread(self._writer.close)
        self._sessions.close()

    async def _write(self, work: Callable[[], T]) -> T:
        self._check_open()
        return await self._writer.run(work)

    async def _read(self, work: Callable[[], T]) -> T:
        self._check_open()
        return await asyncio.to_thread(work)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable(self.path, "the store is closed. Open it again to use it")


def _body(message: Message, where: str) -> bytes:
    if not isinstance(message, dict):
        raise TypeError(f"{where}: {type(message).__name__} is not a message")
    return dumps(message, where)
