"""Implement `amplifier_core.storage.Inbox` with what counts between hosts: a part of `PostgresStore`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from amplifier_core.ids import validate_session_id
from amplifier_core.shared_stores import host_of
from amplifier_core.storage import Purged, check_changes

from . import deliveries, documents
from .deliveries import AFTER, all_of, encode_events, place_of, span
from .part import Part
from .rows import DELIVERIES, EVENTS, number_events
from .values import loads, micros, moment, plain, unplain

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from amplifier_core.documents import DocumentChange
    from amplifier_core.events import SessionEvent
    from amplifier_core.shared_stores import Bounds, Lease
    from amplifier_core.storage import Admission, Delivery, DeliveryCounts, DeliveryState
    from amplifier_core.triggers import TriggerEvent

FOUND = 20
PREFIX = re.compile(r"[A-Za-z0-9_-]{0,128}")

_EVENTS = f"SELECT {EVENTS.columns} FROM @.events WHERE"
_NEXT_DUE = """SELECT min(available_at) FROM @.deliveries WHERE project = %(project)s AND queue = %(queue)s
    AND state = 'pending' AND waits = 0 AND available_at > coalesce(%(now)s, @.clock())"""
_DUE_QUEUES = """
    WITH RECURSIVE moment AS (SELECT coalesce(%(now)s, @.clock()) AS now), open (queue) AS (
        SELECT min(d.queue) FROM @.deliveries d
        WHERE d.project = %(project)s AND d.state IN ('pending', 'claimed') AND d.waits = 0
        UNION ALL
        SELECT (SELECT min(d.queue) FROM @.deliveries d WHERE d.project = %(project)s AND d.queue > open.queue
            AND d.state IN ('pending', 'claimed') AND d.waits = 0)
        FROM open WHERE queue IS NOT NULL
    )
    SELECT queue FROM open, moment WHERE queue IS NOT NULL AND EXISTS (
        SELECT 1 FROM @.deliveries d WHERE d.project = %(project)s AND d.queue = open.queue
            AND d.state IN ('pending', 'claimed') AND d.waits = 0
            AND (d.available_at <= now OR d.updated > now + 1000000) AND d.lease_until <= now
    )"""
"""One step through an index for each queue with an open delivery, however many there are in it."""
_STATE = "SELECT key, value FROM @.trigger_states WHERE project = %(project)s AND trigger = %(trigger)s"


class PostgresInbox(Part):
    """The methods of a store about its log and its deliveries."""

    async def emit(self, event: SessionEvent) -> SessionEvent:
        """Append to the log."""
        given = {"events": encode_events([event], self._runner.projects)}
        return number_events([event], await self._runner.write("emit", self._fenced(given)))[0]

    async def events(
        self, *, since: int = 0, limit: int = 1000, source_session_id: str | None = None
    ) -> list[SessionEvent]:
        """Return logged events, oldest first."""
        values = {"since": since, "limit": max(limit, 0), "session": plain(source_session_id)}
        one = "left(source_session_id, 200) = left(%(session)s, 200) AND source_session_id = %(session)s"
        where = f"sequence > %(since)s AND {'TRUE' if source_session_id is None else one}"
        rows = await self._runner.rows(f"{_EVENTS} {where} ORDER BY sequence LIMIT %(limit)s", values)
        return EVENTS.items(rows, self._runner.projects)

    async def find_events(self, prefix: str) -> list[SessionEvent]:
        """Return logged events with ids beginning with `prefix`; none for an impossible prefix."""
        if not PREFIX.fullmatch(prefix):
            return []
        within = "left(event_id, 200) >= %s AND left(event_id, 200) < %s ORDER BY left(event_id, 200) LIMIT %s"
        return EVENTS.items(
            await self._runner.rows(f"{_EVENTS} {within}", (prefix, prefix + AFTER, FOUND)), self._runner.projects
        )

    async def last_sequence(self) -> int:
        """Return the sequence of the newest event."""
        [(last,)] = await self._runner.rows("SELECT last FROM @.log")
        return int(last)

    async def enqueue(
        self,
        project: str,
        queue: str,
        trigger: str,
        event: TriggerEvent,
        *,
        refused: str | None = None,
        admission: Admission | None = None,
        now: datetime | None = None,
        leader: Lease | None = None,
        only_on: str | None = None,
    ) -> Delivery | None:
        """Accept an event, or record its refusal."""
        delivery = deliveries.new_delivery(project, queue, trigger, event, admission, refused, only_on)
        given = deliveries.encode_delivery(delivery, event, admission, self._runner.projects)
        if now is not None:
            given["row"]["created"] = micros(now)
        if leader is not None:
            given["leader"] = (plain(leader.name), plain(leader.owner), leader.epoch)
        stored = await self._runner.write("enqueue", given)
        return deliveries.as_stored(delivery, stored) if stored else None

    async def trigger_state(self, project: str, trigger: str) -> dict[str, Any]:
        """Return a trigger's state with all changes."""
        rows = await self._runner.rows(_STATE, self._encode({"project": project, "trigger": trigger}))
        return {unplain(key): loads(value) for key, value in rows}

    async def save_trigger_state(
        self, project: str, trigger: str, state: Mapping[str, Any], *, merge: bool = False
    ) -> None:
        """Store a trigger's state without an event, or change some keys of it."""
        given = self._encode({"project": project, "trigger": trigger})
        given["state"] = deliveries.state_of(state, merge=merge)
        await self._runner.write("save_state", self._fenced(given))

    async def claim(
        self,
        project: str,
        queue: str,
        *,
        owner: str,
        lease: float,
        session_id: str,
        now: datetime | None = None,
        bounds: Bounds | None = None,
    ) -> Delivery | None:
        """Take the due delivery with the highest priority that this host may claim, within the bounds."""
        validate_session_id(session_id)
        given = self._encode({"project": project, "queue": queue, "owner": owner, "session_id": session_id})
        given |= {"host": plain(host_of(owner)), "lease": span(lease), "now": None if now is None else micros(now)}
        if bounds is not None:
            given |= {"running": bounds.running, "begun": bounds.begun, "period": span(bounds.period)}
        claimed = await self._runner.write("claim", given)
        return None if claimed is None else deliveries.from_json(claimed, self._runner.projects)

    async def renew(self, delivery: Delivery, *, lease: float, now: datetime | None = None) -> None:
        """Extend the lease, as long as nobody else has claimed the delivery since."""
        given = {"lease": span(lease), "now": None if now is None else micros(now)}
        await self._runner.write("renew", {**place_of(delivery, self._runner.projects), **given})

    async def commit(
        self,
        delivery: Delivery,
        *,
        emits: Sequence[SessionEvent] = (),
        session: Mapping[str, Any] | None = None,
        documents: Sequence[DocumentChange] = (),
    ) -> list[SessionEvent]:
        """Mark the delivery done, with its results; `session` may name another one by `session_id`."""
        return await self._finish(delivery, {"state": "done"}, emits, session, documents)

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
        """Give the delivery back."""
        attempts = delivery.attempts if counted else delivery.attempts - 1
        changes = {"state": "pending", "reason": plain(reason, "reason"), "available_at": micros(available_at)}
        changes |= {"attempts": attempts, "now": None if now is None else micros(now)}
        await self._finish(delivery, changes, (), session)

    async def dead_letter(
        self,
        delivery: Delivery,
        *,
        reason: str,
        emits: Sequence[SessionEvent] = (),
        session: Mapping[str, Any] | None = None,
        documents: Sequence[DocumentChange] = (),
    ) -> list[SessionEvent]:
        """Set the delivery aside."""
        return await self._finish(
            delivery, {"state": "dead", "reason": plain(reason, "reason")}, emits, session, documents
        )

    async def _finish(
        self,
        delivery: Delivery,
        changes: Mapping[str, Any],
        emits: Sequence[SessionEvent],
        session: Mapping[str, Any] | None,
        changed: Sequence[DocumentChange] = (),
    ) -> list[SessionEvent]:
        projects = self._runner.projects
        given = {**place_of(delivery, projects), **changes, "events": encode_events(emits, projects)}
        of_session = dict(session or {})
        session_id = of_session.pop("session_id", delivery.session_id)
        if of_session:
            validate_session_id(session_id)
            check_changes(of_session)
            given |= {"session_id": session_id, "session": self._encode(of_session)}
        if changed:
            given["documents"] = [documents.encode_change(change, projects) for change in changed]
        return number_events(emits, await self._runner.write("finish", given))

    async def release(self, project: str, *, owners: Collection[str] | None = None) -> int:
        """Make the claimed deliveries of `project` due now: all, or those of these processes."""
        given = self._encode({"project": project})
        if owners is not None:
            given["owners"] = [plain(owner) for owner in owners]
        return int(await self._runner.write("release", given))

    async def deliveries(
        self,
        *,
        project: str | None = None,
        queue: str | None = None,
        state: DeliveryState | None = None,
        event_id: str | None = None,
        session_id: str | None = None,
        cause: str | None = None,
        limit: int = 100,
    ) -> list[Delivery]:
        """Return deliveries, newest first."""
        wanted = self._filters({"project": project, "queue": queue, "state": state, "session_id": session_id})
        for name, value in (("source_event", event_id), ("cause", cause)):
            if value is not None:
                wanted[name] = deliveries.indexed(value, name)
        query = f"SELECT {DELIVERIES.columns} FROM @.deliveries WHERE {all_of(wanted)} ORDER BY id DESC LIMIT %(limit)s"
        rows = await self._runner.rows(query, {**wanted, "limit": max(limit, 0)})
        return [*DELIVERIES.items(rows, self._runner.projects)]

    async def find_deliveries(self, prefix: str) -> list[Delivery]:
        """Return deliveries with an id beginning with `prefix`; none for an impossible prefix."""
        if not PREFIX.fullmatch(prefix):
            return []
        return [*await self._runner.read(deliveries.find, self._runner.projects, prefix, FOUND)]

    async def next_due(self, project: str, queue: str, *, now: datetime | None = None) -> datetime | None:
        """Return the next time a pending delivery of a queue comes due."""
        wanted = {**self._encode({"project": project, "queue": queue}), "now": None if now is None else micros(now)}
        [(due,)] = await self._runner.rows(_NEXT_DUE, wanted)
        return None if due is None else moment(due)

    async def due_queues(self, project: str, *, now: datetime | None = None) -> set[str]:
        """Return the queues of a project with a delivery to claim, on whichever host."""
        wanted = {**self._encode({"project": project}), "now": None if now is None else micros(now)}
        return {unplain(queue) for (queue,) in await self._runner.rows(_DUE_QUEUES, wanted)}

    async def delivery_counts(self, *, project: str | None = None, queue: str | None = None) -> list[DeliveryCounts]:
        """Count the deliveries of each trigger by state."""
        wanted = self._filters({"project": project, "queue": queue})
        return await self._runner.read(deliveries.count, self._runner.projects, wanted)

    async def redeliver(self, delivery_id: str, *, now: datetime | None = None) -> Delivery:
        """Make a dead, refused or skipped delivery due again, in its old place among those with its key."""
        given = {"id": plain(delivery_id, "delivery_id"), "now": None if now is None else micros(now)}
        return deliveries.from_json(await self._runner.write("redeliver", given), self._runner.projects)

    async def make_due(self, delivery_id: str, *, now: datetime | None = None) -> bool:
        """Make a pending delivery due now; return whether it was due later."""
        given = {"id": plain(delivery_id, "delivery_id"), "now": None if now is None else micros(now)}
        return bool(await self._runner.write("make_due", given))

    async def drop(self, delivery_id: str, *, reason: str) -> Delivery:
        """Skip a pending or dead delivery."""
        given = {"id": plain(delivery_id, "delivery_id"), "reason": plain(reason, "reason")}
        return deliveries.from_json(await self._runner.write("drop", given), self._runner.projects)

    async def purge(self, *, before: datetime, event_bytes: int = 0) -> Purged:
        """Delete old finished deliveries and the oldest events."""
        given = {"before": micros(before), "event_bytes": event_bytes}
        return Purged(*await self._runner.write("purge", given))
