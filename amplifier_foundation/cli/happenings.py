"""What happened to the events of background sessions, told from the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from amplifier_core.errors import SessionNotFound

from ..runners import text_of
from .output import timestamp
from .view import describe, first_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from amplifier_core.storage import Delivery, DurableStore, SessionRecord


@dataclass(frozen=True, slots=True)
class Happening:
    """One thing that happened to a delivery.

    `kind` is `accepted`, `refused`, `skipped`, `started`, `retried`, `completed` or `dead`.
    """

    at: datetime
    kind: str
    text: str
    delivery: Delivery

    @property
    def bundle(self) -> str:
        """The name of the bundle that declares the background session."""
        return self.delivery.lane.rpartition("/")[0]

    @property
    def name(self) -> str:
        """The name of the background session."""
        return self.delivery.lane.rpartition("/")[2]

    @property
    def identity(self) -> tuple[str, str, datetime]:
        """What no other one has."""
        return self.delivery.delivery_id, self.kind, self.at


async def happenings(store: DurableStore, delivery: Delivery) -> list[Happening]:
    """Return what is known to have happened to a delivery, in order of time.

    Of what was tried several times, the store keeps the first start, how often it was tried, and the last reason.
    """
    record = None
    if delivery.session_id is not None:
        try:
            record = await store.get(delivery.session_id)
        except SessionNotFound:  # it was deleted, or has not begun
            record = None
    answer = await _answer(store, record) if delivery.state == "done" and record is not None else ""
    told = [Happening(at, kind, text, delivery) for at, kind, text in _told(delivery, record, answer)]
    return sorted(told, key=lambda each: each.at)


async def _answer(store: DurableStore, record: SessionRecord) -> str:
    last = record.message_count - 1
    messages = await store.read(record.session_id, max(0, last), record.message_count)
    return text_of(dict(messages[-1])) if messages else ""


def _told(delivery: Delivery, record: SessionRecord | None, answer: str) -> Iterator[tuple[datetime, str, str]]:
    what, reason = describe(delivery.event), first_line(delivery.reason or "")
    if delivery.state in ("refused", "skipped"):
        if delivery.updated > delivery.created:
            yield delivery.created, "accepted", what
        yield delivery.updated, delivery.state, f"{what}: {reason}"
        return
    yield delivery.created, "accepted", what
    yield from _tried(delivery, record)
    if delivery.state == "done":
        what = first_line(answer) if record is not None else "(its session is deleted)"
        yield delivery.updated, "completed", what + _tries(delivery)
    elif delivery.state == "dead":
        yield delivery.updated, "dead", f"given up: {reason}{_tries(delivery)}"


def _tried(delivery: Delivery, record: SessionRecord | None) -> Iterator[tuple[datetime, str, str]]:
    if record is not None:
        yield record.created, "started", f"session {record.session_id}"
    if delivery.state == "claimed" and delivery.attempts > 1:
        yield delivery.updated, "started", f"session {delivery.session_id} goes on{_tries(delivery)}"
    if delivery.state == "pending" and delivery.attempts:
        due = timestamp(delivery.available_at)
        why = first_line(delivery.reason) if delivery.reason else "cut"
        yield delivery.updated, "retried", f"{why}; tried again at {due}"


def _tries(delivery: Delivery) -> str:
    return f" (try {delivery.attempts})" if delivery.attempts > 1 else ""
