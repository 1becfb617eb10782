"""Emit the events of one session, by whatever router it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_core.events import SessionEvent


class Emitter(Protocol):
    """The part of a router for the sessions that emit by it."""

    async def emit(
        self,
        event_name: str,
        data: Mapping[str, Any],
        source_session_id: str | None = None,
        *,
        cause: str | None = None,
        depth: int = 0,
        project: str | None = None,
        event_id: str | None = None,
    ) -> SessionEvent:
        """Publish an event, and return it."""
        ...


class SessionEmitter:
    """Emits the events of one session; they continue the chain of the event that woke it."""

    def __init__(
        self, router: Emitter, session_id: str, cause: str | None = None, depth: int = 0, project: str | None = None
    ) -> None:
        self._router = router
        self._chain: dict[str, Any] = {"cause": cause, "depth": depth, "project": project}
        self.session_id = session_id

    async def emit(self, event_name: str, data: Mapping[str, Any], event_id: str | None = None) -> None:
        """Publish an event that names this session as its source; the same one with the same `event_id` once."""
        about = self._chain if event_id is None else {**self._chain, "event_id": event_id}
        await self._router.emit(event_name, data, self.session_id, **about)
