"""Encode events and deliveries for the database, and read their rows."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from amplifier_core.shared_stores import SharedDelivery
from amplifier_core.storage import DeliveryCounts

from .rows import DELIVERIES, EVENTS, encode_state
from .values import moment, plain, unplain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from amplifier_core.events import SessionEvent
    from amplifier_core.storage import Admission, Delivery
    from amplifier_core.triggers import TriggerEvent

    from .connections import Pool
    from .projects import Projects

AFTER = "\uffff"
"""Appended to a prefix, this sorts after every id with the prefix: ids are ASCII."""
_LONGEST_INDEXED = 200

_COUNTS = """SELECT project, queue, trigger, state, count(*), max(created),
        min(created) FILTER (WHERE state IN ('pending', 'claimed'))
    FROM @.deliveries WHERE {} GROUP BY project, queue, trigger, state"""
_BEGINNING = "(SELECT id FROM @.deliveries WHERE {0} >= %(first)s AND {0} < %(after)s ORDER BY id DESC LIMIT %(limit)s)"
_FOUND = f"""SELECT {DELIVERIES.columns} FROM @.deliveries WHERE id IN (
    {" UNION ".join(map(_BEGINNING.format, ("delivery_id", "source_event", "session_id")))}) ORDER BY id DESC"""


def shorten(text: str | None) -> str | None:
    """Return text for an index, as long as an index may hold; different texts stay different."""
    if text is None or len(text) <= _LONGEST_INDEXED:
        return text
    return f"{text[: _LONGEST_INDEXED // 2]}#{blake2b(text.encode(), digest_size=16).hexdigest()}"


def span(seconds: float) -> int:
    """Return microseconds."""
    return timedelta(seconds=seconds) // timedelta(microseconds=1)


def indexed(value: object, where: str) -> str | None:
    """Return a text in the form of a column to find rows by. Raises `TypeError`."""
    column = plain(value, where)
    return shorten(column if column is None else str(column))


def encode_events(events: Sequence[SessionEvent], projects: Projects) -> list[dict[str, Any]]:
    """Return events for the log. Raises `TypeError`."""
    return [EVENTS.row(event, projects) for event in events]


def encode_states(event: TriggerEvent) -> dict[str, Any]:
    """Return what an event changes in the state of its trigger."""
    changed: dict[str, Any] = {}
    if event.state is not None:
        changed["state"] = state_of(event.state, merge=False)
    if event.state_changes is not None:
        changed["state_changes"] = state_of(event.state_changes, merge=True)
    return changed


def state_digest(key: object) -> str:
    """Return the digest that stands for a key of a state."""
    return blake2b(str(key).encode(), digest_size=16).hexdigest()


def state_of(state: Mapping[str, Any], *, merge: bool) -> dict[str, Any]:
    """Return a state, or changes of it, for the database. Raises `TypeError`."""
    rows = encode_state(state, merge=merge)
    encoded: dict[str, Any] = {"rows": [(state_digest(key), key, value) for key, value in rows]}
    return encoded if merge else {**encoded, "whole": True}


def new_delivery(
    project: str,
    queue: str,
    trigger: str,
    event: TriggerEvent,
    admission: Admission | None,
    refused: str | None,
    only_on: str | None,
) -> SharedDelivery:
    """Return the delivery of an event, as far as it is known before it is stored."""
    bare = replace(event, state=None, state_changes=None)
    delivery = SharedDelivery(uuid4().hex, project, queue, trigger, bare, only_on=only_on)
    if admission is not None:
        delivery = replace(delivery, key=admission.key, priority=admission.priority)
    return delivery if refused is None else replace(delivery, state="refused", reason=refused)


def encode_delivery(
    delivery: SharedDelivery, event: TriggerEvent, admission: Admission | None, projects: Projects
) -> dict[str, Any]:
    """Return the new delivery of an event for the database, which sets its times. Raises `TypeError`."""
    row = DELIVERIES.row(delivery, projects)
    for name in ("created", "updated", "available_at"):
        row.pop(name)
    row |= {"line": indexed(delivery.key, "key"), "dedupe_key": indexed(event.dedupe_key, "dedupe_key")}
    row |= {"source_event": indexed(event.event_id, "event_id"), "cause": indexed(event.cause, "cause")}
    encoded: dict[str, Any] = {"row": row, "event_id": plain(event.event_id), **encode_states(event)}
    if admission is not None:
        within = admission.settle_within
        row["settle_key"] = indexed(admission.settle_key, "settle_key")
        encoded |= {"overlap": admission.overlap, "settle": span(admission.settle)}
        encoded["settle_within"] = None if within is None else span(within)
    return encoded


def as_stored(delivery: SharedDelivery, stored: Mapping[str, Any]) -> SharedDelivery:
    """Return a new delivery with what the database decided."""
    created = moment(stored["created"])
    return replace(
        delivery,
        state=stored["state"],
        reason=unplain(stored["reason"]),
        available_at=moment(stored["available_at"]),
        created=created,
        updated=created,
    )


def from_json(stored: Mapping[str, Any], projects: Projects) -> SharedDelivery:
    """Return a delivery of a row in JSON."""
    return DELIVERIES.item([stored[name] for name in DELIVERIES.names], projects)


def place_of(delivery: Delivery, projects: Projects) -> dict[str, Any]:
    """Return what the database needs to change a claimed delivery."""
    return {
        "id": plain(delivery.delivery_id),
        "epoch": delivery.epoch,
        "project": plain(projects.to_stored(delivery.project)),
        "queue": plain(delivery.queue),
        "line": indexed(delivery.key, "key"),
    }


def find(pool: Pool, projects: Projects, prefix: str, limit: int) -> list[SharedDelivery]:
    """Return deliveries with an id beginning with `prefix`, newest first, at most `limit` for each kind of id."""
    values = {"first": prefix, "after": prefix + AFTER, "limit": limit}
    return DELIVERIES.items(pool.read(_FOUND, values), projects)


def count(pool: Pool, projects: Projects, wanted: Mapping[str, Any]) -> list[DeliveryCounts]:
    """Count the deliveries of each trigger by state, among those with these column values."""
    found: dict[tuple[str, str, str], list[Sequence[Any]]] = {}
    for project, queue, trigger, *counted in pool.read(_COUNTS.format(all_of(wanted)), wanted):
        group = projects.to_local(unplain(project)), unplain(queue), unplain(trigger)
        found.setdefault(group, []).append(counted)
    counts = []
    for group, states in sorted(found.items()):
        oldest = min((since for *_, since in states if since is not None), default=None)
        newest = moment(max(newest for _, _, newest, _ in states))
        by_state = {state: number for state, number, _, _ in states}
        counts.append(DeliveryCounts(*group, by_state, newest, None if oldest is None else moment(oldest)))
    return counts


def all_of(names: Mapping[str, Any]) -> str:
    """Return the condition that columns have the values of these names."""
    return " AND ".join(f'"{name}" = %({name})s' for name in names) or "TRUE"
