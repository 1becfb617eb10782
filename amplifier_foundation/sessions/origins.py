"""Tell a session where it comes from: the first cause of its chain, the delivery above it, and its fork.

The capability `session.origin` is a mapping of plain data, so it crosses to other processes:

    root          the id of the first event, or of the first session without one; the same for all that follows
    delivery      the id of the nearest delivery: of this session's own event, or of a session above
    attempt       the number of the claim on its own delivery
    traceparent   the span in which it was made, if its maker traces
    fork_of, fork_at, turn_of   the source of a fork, the shared messages, and the session with the last turn in them
    cut           the times (ISO 8601) of the begin and the last sign of an attempt that a killed process left open

Every other member may be missing. A new session of a person has no origin: its own id is the root.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from amplifier_core.correlation import traceparent
from amplifier_core.errors import InvalidSessionId, SessionNotFound

from .lineage import above_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import Delivery, SessionRecord, SessionStore
    from amplifier_core.triggers import TriggerEvent

ORIGIN = "session.origin"
LONGEST = 200
"""Links followed upwards."""


class Cause(NamedTuple):
    """The first cause of an event, and the nearest one: a delivery, or a session that none woke; None for neither."""

    root: str
    delivery_id: str | None = None
    session_id: str | None = None


async def find_cause(store: Any, event: TriggerEvent) -> Cause:
    """Return the causes of an event; the chain ends where the store knows no more."""
    nearest: str | None = None
    for _ in range(LONGEST):
        delivery, session_id = await _find_above(store, event)
        if delivery is None:
            root = session_id or event.cause or event.event_id
            return Cause(root, nearest, None if nearest else session_id)
        nearest, event = nearest or delivery.delivery_id, delivery.event
    return Cause(event.event_id, nearest)


async def _find_above(store: Any, event: TriggerEvent) -> tuple[Delivery | None, str | None]:
    """Return the delivery that an event comes from, or else the session."""
    if event.source_session_id is not None:
        return await _climb(store, event.source_session_id)
    found = await store.deliveries(event_id=event.cause, limit=1) if event.cause else ()
    return (found[0] if found else None), None


async def _climb(store: Any, session_id: str) -> tuple[Delivery | None, str]:
    """Return the delivery that woke a session, or one above it; else None, and the session at the top."""
    keeps_deliveries = hasattr(store, "deliveries")
    for _ in range(LONGEST):
        if keeps_deliveries and (found := await store.deliveries(session_id=session_id, limit=1)):
            return found[0], session_id
        try:
            record = await store.get(session_id)
        except (SessionNotFound, InvalidSessionId):
            break
        above = above_id(record)
        if above is None or record.event_id is not None:  # its delivery is purged
            break
        session_id = above
    return None, session_id


async def origin_of_delivery(store: Any, delivery: Delivery) -> dict[str, Any]:
    """Return the origin of the session of a claimed delivery."""
    root = (await find_cause(store, delivery.event)).root
    return {"root": root, "delivery": delivery.delivery_id, "attempt": delivery.epoch}


def origin_below(parent: AmplifierSession) -> dict[str, Any]:
    """Return the origin of a session that `parent` makes now."""
    above = parent.coordinator.get_capability(ORIGIN) or {}
    origin = {"root": above.get("root") or parent.session_id}
    if delivery := above.get("delivery"):
        origin["delivery"] = delivery
    if span := traceparent.get():
        origin["traceparent"] = span
    return origin


async def origin_of_fork(
    store: SessionStore | None, origin: Mapping[str, Any], source_id: str, at: int
) -> dict[str, Any]:
    """Return `origin` with the facts of a fork."""
    owner = source_id
    for _ in range(LONGEST if store is not None else 0):
        assert store is not None
        try:
            record = await store.get(owner)
        except (SessionNotFound, InvalidSessionId):
            break
        if record.fork_of is None or at > (record.fork_at or 0):
            break
        owner = record.fork_of
    return {**origin, "fork_of": source_id, "fork_at": at, "turn_of": owner}


async def origin_of_resumed(store: SessionStore, record: SessionRecord, origin: Mapping[str, Any]) -> dict[str, Any]:
    """Return `origin` with what the record of a session tells before it is resumed."""
    facts = dict(origin)
    if record.status == "running":
        begin = record.updated if record.turn_count else record.created
        facts["cut"] = [begin.isoformat(), record.updated.isoformat()]
    if record.fork_of is None:
        return facts
    return await origin_of_fork(store, facts, record.fork_of, record.fork_at or 0)


async def origin_of_stored(store: SessionStore, record: SessionRecord) -> dict[str, Any]:
    """Return the origin of a stored session that a person resumes."""
    delivery, top = await _climb(store, record.session_id)
    if delivery is None:
        return await origin_of_resumed(store, record, {"root": top})
    root = (await find_cause(store, delivery.event)).root
    return await origin_of_resumed(store, record, {"root": root, "delivery": delivery.delivery_id})


async def origin_capability(store: SessionStore, record: SessionRecord | None) -> dict[str, Any]:
    """Return the capability of a session that a person talks in; nothing for a new one."""
    return {ORIGIN: await origin_of_stored(store, record)} if record is not None else {}
