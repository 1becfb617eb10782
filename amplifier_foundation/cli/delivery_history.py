"""Read the history of background sessions from the store: of their deliveries, and of their own status."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from amplifier_core.errors import SessionNotFound
from amplifier_core.frozen import frozen
from amplifier_core.ids import host_of

from ..background.approvals import WAITS
from ..background.log_events import BACKGROUND_RELOADED, BACKGROUND_STALLED, BACKGROUND_STATE, TRIGGER_ERROR
from ..documents.safe_text import one_line, plain
from ..sessions.exporting import call_line
from ..sessions.history import describe_fallback, text_of
from ..sessions.records import describe_worktree
from .output import timestamp
from .view import describe, first_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from amplifier_core.events import SessionEvent
    from amplifier_core.storage import Delivery, DurableStore, SessionRecord


@frozen
class HistoryEntry:
    """One step of a delivery, or of a background session itself (`delivery` is None).

    `kind` is `accepted`, `refused`, `skipped`, `started`, `retried`, `held`, `completed`, `dead` or `tool`; without
    a delivery `running`, `trigger_failed`, `failed`, `stalled` or `reloaded`.
    """

    at: datetime
    kind: str
    text: str
    queue: str
    project: str
    delivery: Delivery | None = None
    event_id: str = ""
    number: int = 0
    """Which of its session's tool calls it is, from 1; 0: none."""

    @property
    def bundle(self) -> str:
        """The name of the bundle with the background session."""
        return self.queue.rpartition("/")[0]

    @property
    def background_session(self) -> str:
        """The name of the background session; '' for the whole bundle."""
        return self.queue.rpartition("/")[2]

    @property
    def identity(self) -> tuple[str, str, datetime]:
        """The key of this step, different for every other step."""
        if self.number and self.delivery:  # its time is that of the last known change
            return self.delivery.delivery_id, f"{self.kind} {self.number}", self.delivery.created
        return self.delivery.delivery_id if self.delivery else self.event_id, self.kind, self.at


def read_change(event: SessionEvent) -> HistoryEntry | None:
    """Return the entry of an event about a background session itself, None for other events."""
    data = event.data
    queue, project = str(data.get("queue", "")), str(data.get("project", ""))
    if event.name == BACKGROUND_STATE:
        status, reason = str(data["status"]), str(data["reason"]) and first_line(str(data["reason"]))
        kind = "failed" if status in ("degraded", "failed") else "running"
        at = datetime.fromisoformat(str(data["at"]))
        text = f"{status}: {reason}" if reason else status
        return HistoryEntry(at, kind, text, queue, project, event_id=event.event_id)
    if event.name == BACKGROUND_STALLED:
        at = datetime.fromisoformat(str(data["at"]))
        return HistoryEntry(at, "stalled", plain(str(data["text"])), queue, project, event_id=event.event_id)
    if event.name == TRIGGER_ERROR:
        text = first_line(str(data["error"]))
        return HistoryEntry(event.timestamp, "trigger_failed", text, queue, project, event_id=event.event_id)
    if event.name == BACKGROUND_RELOADED:
        place = f"{data['bundle']}/"
        return HistoryEntry(event.timestamp, "running", str(data["text"]), place, project, event_id=event.event_id)
    return None


async def read_history(store: DurableStore, delivery: Delivery, *, tools: bool = False) -> list[HistoryEntry]:
    """Return the known steps of a delivery, in order of time; with `tools`, also the tool calls of its session.

    For several attempts, the store keeps the first start, the number of attempts, and the last reason.
    """
    record, answer = None, ""
    if delivery.session_id is not None:
        try:
            record = await store.get(delivery.session_id)
        except SessionNotFound:  # it was deleted, or has not begun
            record = None
    if delivery.state == "done" and record is not None:
        last = record.message_count - 1
        messages = await store.read(record.session_id, max(0, last), record.message_count)
        if messages:
            fallback = describe_fallback(messages[-1])
            answer = first_line(text_of(messages[-1])) + (plain(f" ({fallback})") if fallback else "")
    entries = [
        HistoryEntry(at, kind, text, delivery.queue, delivery.project, delivery)
        for at, kind, text in _steps(delivery, record, answer)
    ]
    if tools and record is not None:
        entries = [*await _read_tool_calls(store, delivery, record), *entries]
    return sorted(entries, key=lambda each: each.at)


async def _read_tool_calls(store: DurableStore, delivery: Delivery, record: SessionRecord) -> list[HistoryEntry]:
    """Return the tool calls of a session, without those of the session that it is a fork of.

    The store has no time of a call: the time is that of the session's last change.
    """
    messages = await store.read(record.session_id, record.fork_at or 0)
    calls = [call for message in messages for call in message.get("tool_calls") or ()]
    at = min(record.updated, delivery.updated) if delivery.state != "claimed" else record.updated
    return [
        HistoryEntry(
            at, "tool", one_line(call_line(call), 200), delivery.queue, delivery.project, delivery, number=number
        )
        for number, call in enumerate(calls, 1)
    ]


def _place(delivery: Delivery, claim: int) -> str:
    """Return in words on which host a claim was, on a shared store; '' for a store of one host."""
    owners: Sequence[str] = getattr(delivery, "owners", ())
    return f" on {host_of(owners[claim])}" if owners else ""


def _steps(delivery: Delivery, record: SessionRecord | None, answer: str) -> Iterator[tuple[datetime, str, str]]:
    """Yield the time, the kind and the text of each step."""
    summary, reason = describe(delivery.event), first_line(delivery.reason or "")
    attempt = f" (attempt {delivery.attempts})" if delivery.attempts > 1 else ""
    told = describe_worktree(record.metadata) if record is not None else ""
    worktree = f"; {first_line(told)}" if told else ""
    if delivery.state in ("refused", "skipped"):
        if delivery.updated > delivery.created:
            yield delivery.created, "accepted", summary
        yield delivery.updated, delivery.state, f"{summary}: {reason}"
        return
    yield delivery.created, "accepted", summary
    if record is not None:
        yield record.created, "started", f"session {record.session_id}{_place(delivery, 0)}"
    if delivery.state == "claimed" and attempt:
        yield delivery.updated, "started", f"session {delivery.session_id} continues{attempt}{_place(delivery, -1)}"
    if delivery.state == "pending" and reason.startswith(WAITS):
        yield delivery.updated, "held", f"{reason}; until {timestamp(delivery.available_at)}"
    elif delivery.state == "pending" and delivery.attempts:
        cause = reason if delivery.reason else "interrupted"
        yield delivery.updated, "retried", f"{cause}; next attempt at {timestamp(delivery.available_at)}"
    if delivery.state == "done":
        text = answer if record is not None else "(its session is deleted)"
        yield delivery.updated, "completed", text + attempt + worktree
    elif delivery.state == "dead":
        yield delivery.updated, "dead", f"given up: {reason}{attempt}{worktree}"
