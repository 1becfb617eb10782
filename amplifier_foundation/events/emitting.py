"""Emit the events of one session, by whatever router it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_core.events import SessionEvent


async def find_event(store: object, event_id: str) -> SessionEvent | None:
    """Return the event with this id in the log of a store; None without one, and for a store without a log."""
    find = getattr(store, "find_events", None)
    found = await find(event_id) if find is not None else []
    return next((each for each in found if each.event_id == event_id), None)


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
        """Publish an event that names this session as its source, under `event_id` unless an earlier one has it."""
        about = self._chain if event_id is None else {**self._chain, "event_id": event_id}
        await self._router.emit(event_name, data, self.session_id, **about)
