"""Keep an inbox in memory beside a store of sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.testing import MemoryStore

from ..sessions.store_views import search_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from amplifier_core.documents import DocumentChange
    from amplifier_core.events import SessionEvent
    from amplifier_core.storage import Delivery, SessionStore


class MemoryInboxStore(MemoryStore):
    """An inbox in memory beside a `SessionStore`: every method about sessions is the store's own."""

    def __init__(self, sessions: SessionStore) -> None:
        super().__init__()
        self._delete = sessions.delete
        for name in ("create", "append", "update", "get", "find", "sessions", "read", "read_sync"):
            setattr(self, name, getattr(sessions, name))
        for name in ("examine", "repair", "close"):
            setattr(self, name, getattr(sessions, name))
        for name in ("search_messages", "index_messages"):
            setattr(self, name, getattr(search_of(sessions), name))

    async def delete(self, session_id: str) -> None:
        """Delete a session of the store, and the texts of its events and finished deliveries."""
        await self._delete(session_id)
        self._forget_texts(session_id)

    # The epoch is checked before the record is written; with one process there is no other writer in between.

    async def commit(
        self,
        delivery: Delivery,
        *,
        emits: Sequence[SessionEvent] = (),
        session: Mapping[str, Any] | None = None,
        documents: Sequence[DocumentChange] = (),
    ) -> list[SessionEvent]:
        """Mark the delivery done, then change its session's record in the store."""
        stored = await super().commit(delivery, emits=emits, documents=documents)
        await self._change_record(delivery, session)
        return stored

    async def nack(
        self,
        delivery: Delivery,
        *,
        reason: str,
        available_at: datetime,
        counted: bool = True,
        session: Mapping[str, Any] | None = None,
        now: datetime | None = None,
    ) -> None:
        """Give the delivery back, then change its session's record in the store."""
        await super().nack(delivery, reason=reason, available_at=available_at, counted=counted, now=now)
        await self._change_record(delivery, session)

    async def dead_letter(
        self,
        delivery: Delivery,
        *,
        reason: str,
        emits: Sequence[SessionEvent] = (),
        session: Mapping[str, Any] | None = None,
        documents: Sequence[DocumentChange] = (),
    ) -> list[SessionEvent]:
        """Set the delivery aside, then change its session's record in the store."""
        stored = await super().dead_letter(delivery, reason=reason, emits=emits, documents=documents)
        await self._change_record(delivery, session)
        return stored

    async def expired_sessions(self, *, before: datetime, keep: int = 0, limit: int = 1000) -> list[str]:
        """Return none: the storage does not tell the sessions of events from others."""
        return []

    async def _change_record(self, delivery: Delivery, session: Mapping[str, Any] | None) -> None:
        changes = dict(session or {})
        session_id = changes.pop("session_id", delivery.session_id)
        if changes and session_id is not None:
            await self.update(session_id, **changes)
