"""Announce what a run has done, for the triggers of others: each step once, also over kills."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

from amplifier_core.events import SessionEvent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from amplifier_core.clock import Clock
    from amplifier_core.storage import DurableStore, SessionRecord
    from amplifier_core.triggers import TriggerEvent

    from .journal import Entry


class Publisher(Protocol):
    """The part of a router that hands on what is logged already."""

    def publish(self, event: SessionEvent) -> None:
        """Hand a stored event to the subscribers, and wait for none."""
        ...


ANNOUNCED = frozenset({"completed", "failed", "skipped"})


class RunEvents:
    """The events of one run: `flow:task:…` for its tasks, `flow:run:…` for its end.

    They come from the run's session, and continue the chain of the event that woke it.
    """

    def __init__(
        self,
        store: DurableStore,
        record: SessionRecord,
        workflow: str,
        cause: TriggerEvent,
        clock: Clock,
        router: Publisher | None = None,
    ) -> None:
        self._store = store
        self._record = record
        self._workflow = workflow
        self._cause = cause
        self._clock = clock
        self._router = router

    async def announce(self, entry: Entry) -> None:
        """Log the event of a durable entry."""
        if entry.status not in ANNOUNCED:
            return
        facts = {"task": entry.task, "key": entry.key, "output": entry.output, "session": entry.session}
        if entry.error is not None:
            facts["error"] = entry.error
        await self.publish(self._make(f"flow:task:{entry.status}", facts, self._id_of(entry)))

    async def catch_up(self, entries: Iterable[Entry]) -> None:
        """Log the events of those entries that have none: a kill came between."""
        wanted = [entry for entry in entries if entry.status in ANNOUNCED]
        if not wanted:
            return
        most = await self._store.last_sequence()
        logged = await self._store.events(limit=most, source_session_id=self._record.session_id)
        known = {event.event_id for event in logged}
        for entry in wanted:
            if self._id_of(entry) not in known:
                await self.announce(entry)

    def end(self, status: str, facts: Mapping[str, Any]) -> SessionEvent:
        """Return the event for the end of the run."""
        return self._make(f"flow:run:{status}", facts, None)

    async def publish(self, event: SessionEvent) -> None:
        """Log an event, and hand it to the subscribers of this process."""
        self.hand_on([await self._store.emit(event)])

    def hand_on(self, stored: Iterable[SessionEvent]) -> None:
        """Hand logged events to the subscribers of this process."""
        for event in stored:
            if self._router is not None:
                self._router.publish(event)

    def _id_of(self, entry: Entry) -> str:
        whole = f"{self._record.session_id}:{entry.key}:{entry.status}:{entry.attempts}"
        return sha256(whole.encode()).hexdigest()[:32]

    def _make(self, name: str, facts: Mapping[str, Any], event_id: str | None) -> SessionEvent:
        return SessionEvent(
            name,
            {"run": self._record.session_id, "workflow": self._workflow, **facts},
            self._record.session_id,
            timestamp=self._clock.now(),
            cause=self._cause.event_id,
            depth=self._cause.depth,
            project=self._record.project,
            event_id=event_id or uuid4().hex,
        )
