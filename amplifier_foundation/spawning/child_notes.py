"""Let a session list the sessions that it made, and note facts of them in their records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.errors import SessionConflict

if TYPE_CHECKING:
    from amplifier_core.storage import SessionStore

NOTES = "notes"
"""The member of a record's metadata with the noted facts."""


class ChildNotes:
    """The children of one session in the store: its capabilities `session.children` and `session.annotate`."""

    def __init__(self, store: SessionStore, session_id: str) -> None:
        self._store = store
        self._session_id = session_id

    async def children(self) -> list[dict[str, Any]]:
        """Return the sessions that this one made, the last changed first: `session_id`, `status` and `metadata`."""
        names = ("session_id", "status", "metadata")
        records = await self._store.sessions(parent_id=self._session_id)
        return [{name: getattr(record, name) for name in names} for record in records]

    async def annotate(self, child_id: str, name: str, value: Any) -> None:
        """Note a fact of a session that this one made.

        Raises `SessionNotFound`, and `SessionConflict` for a session of another parent.
        """
        record = await self._store.get(child_id)
        if record.parent_id != self._session_id:
            raise SessionConflict(child_id, f"session '{child_id}' was not made by this one")
        notes = {**(record.metadata.get(NOTES) or {}), name: value}
        await self._store.update(child_id, metadata={**record.metadata, NOTES: notes})
