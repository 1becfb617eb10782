"""Implement `amplifier_core.storage.SessionStore`: each method awaits one operation in a thread."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, TypeVar

from amplifier_core.disk_pace import is_short
from amplifier_core.errors import StoreUnavailable
from amplifier_core.ids import validate_session_id
from amplifier_core.storage import Finding, SessionRecord, check_changes

from . import repairing
from .folder import encode_document
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


class JsonlStore:
    """A `SessionStore` of folders; usable from any thread and any event loop, by several processes at once.

    Open one with `open_jsonl`. After `close`, everything raises `StoreUnavailable`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._sessions = Sessions(path)
        self._writer = Worker(path)
        self._closed = False

    async def create(self, record: SessionRecord) -> SessionRecord:
        """Store a new session; with `fork_of` but no `fork_at`, fork the whole source."""
        for session_id in (record.session_id, record.parent_id, record.fork_of):
            if session_id is not None:
                validate_session_id(session_id)
        document = new_document(record)
        encode_document(document)  # a bad value is refused before anything is made
        return await self._write(lambda: self._sessions.create(record, document))

    async def append(self, session_id: str, messages: Sequence[Message], *, at: int) -> int:
        """Add messages after the first `at`. Raises `TypeError`, naming the place, for a value without a JSON form."""
        validate_session_id(session_id)
        for index, message in enumerate(messages):
            if not isinstance(message, dict):
                raise TypeError(f"messages[{index}]: {type(message).__name__} is not a message")
        bodies = [dumps(message, f"messages[{index}]") for index, message in enumerate(messages)]
        if is_short(bodies):
            self._check_open()
            count = await self._writer.run_here(lambda: self._sessions.append_at_once(session_id, bodies, at))
            if count is not None:
                return count
        return await self._write(lambda: self._sessions.append(session_id, bodies, at))

    async def update(self, session_id: str, **changes: Any) -> None:
        """Change fields of the record."""
        validate_session_id(session_id)
        check_changes(changes)
        document = changed_document(changes)
        encode_document(document)
        await self._write(lambda: self._sessions.update(session_id, document))

    async def get(self, session_id: str) -> SessionRecord:
        """Return the record."""
        validate_session_id(session_id)
        return await self._read(lambda: self._sessions.get(session_id))

    async def find(self, prefix: str) -> list[SessionRecord]:
        """Return sessions with ids beginning with `prefix`; none for an impossible prefix."""
        if not _PREFIX.fullmatch(prefix):
            return []
        return await self._read(lambda: self._sessions.find(prefix, _FOUND))

    async def sessions(
        self, *, project: str | None = None, parent_id: str | None = None, limit: int | None = None
    ) -> list[SessionRecord]:
        """Return sessions, the last updated first; a damaged one carries its fault in `error`."""
        return await self._read(lambda: self._sessions.list_sessions(project, parent_id, limit))

    async def read(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Message]:
        """Return messages. Raises `StoreDamaged` if one of them, or a line read on the way, is missing or changed."""
        self._check_open()
        return await asyncio.to_thread(self.read_sync, session_id, start, stop)

    def read_sync(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Message]:
        """Do as `read` does in the calling thread; the end of a long history costs as much as a short one."""
        validate_session_id(session_id)
        self._check_open()
        return self._sessions.read(session_id, max(0, start), None if stop is None else max(0, stop))

    async def delete(self, session_id: str) -> None:
        """Remove a session's folder; its forks get copies of the messages they share."""
        validate_session_id(session_id)
        await self._write(lambda: self._sessions.delete(session_id))

    async def materialize(self, session_id: str) -> None:
        """Copy the shared messages of a fork into its own folder, for tools without forks.

        From then on the fork does not need its source. Raises `StoreDamaged`.
        """
        validate_session_id(session_id)
        await self._write(lambda: self._sessions.materialize(session_id))

    async def examine(self, session_id: str) -> list[Finding]:
        """Return every fault of the messages and the lineage. Raises `StoreDamaged`."""
        validate_session_id(session_id)
        return await self._read(lambda: repairing.examine(self._sessions, session_id))

    async def repair(self, session_id: str) -> list[Finding]:
        """Apply the remedies of `examine`; removed data goes to `<file>.cut-<time>`."""
        validate_session_id(session_id)
        return await self._write(lambda: repairing.repair(self._sessions, session_id))

    async def close(self) -> None:
        """Finish pending work; idempotent."""
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
