"""Where sessions, events and deliveries live: what a storage package can implement.

`SessionStorage` is the small contract (save, load, exists) that any dictionary can satisfy. `SessionStore` keeps
histories that grow by appending and fork without copying. A store that is an `Inbox` too keeps the log of events
between sessions and the deliveries of background sessions; that is what `amplifier up` needs. Every coroutine below
returns when its effect is durable.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .events import SessionEvent
    from .transcript import Message
    from .triggers import TriggerEvent

Status = Literal["running", "completed", "failed", "cancelled", "interrupted", "idle"]
DeliveryState = Literal["pending", "claimed", "done", "dead", "refused", "skipped"]
Overlap = Literal["queue", "skip", "replace"]


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """What is known of one session besides its messages.

    `parent_id` says who made it, and is for good; `fork_of` says whose first `fork_at` messages it shares. `project` is
    the absolute path of its working folder, `config` its mount plan with secrets redacted, `event_id` the delivery that
    woke it. `message_count` counts the shared messages too.
    """

    session_id: str
    parent_id: str | None = None
    fork_of: str | None = None
    fork_at: int | None = None
    name: str = ""
    bundle: str = ""
    bundle_source: str = ""
    bundle_digest: str = ""
    project: str = ""
    status: Status = "running"
    event_id: str | None = None
    created: datetime = field(default_factory=_utc_now)
    updated: datetime = field(default_factory=_utc_now)
    message_count: int = 0
    turn_count: int = 0
    error: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Admission:
    """How an accepted event waits in its lane.

    Deliveries of one `key` are handled one at a time, in the order in which they came; those without one, apart from
    each other. What comes while an earlier one of its key is pending or claimed waits (`queue`), is not delivered
    (`skip`), or is delivered in its place (`replace`: the earlier ones are skipped, a claim on one is over).

    With a `settle_key` it is due `settle` seconds after it came. One of the same `settle_key` that comes before it is
    due takes its place (it is skipped, and in nobody's way), for at most `settle_within` seconds after the first of
    them (None: for as long as they come). What was claimed once, or is delivered again, settles no more. Among what is
    due, the higher `priority` goes first, then what has been due the longest.
    """

    key: str | None = None
    overlap: Overlap = "queue"
    priority: int = 0
    settle_key: str | None = None
    settle: float = 0.0
    settle_within: float | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event on its way to one background session (its `lane`).

    `epoch` grows with every claim: a commit that carries an older one is refused. `session_id` is set by the first
    claim and kept, so that a turn cut by a crash is resumed and not begun again.
    """

    delivery_id: str
    project: str
    lane: str
    trigger: str
    event: TriggerEvent
    state: DeliveryState = "pending"
    attempts: int = 0
    epoch: int = 0
    session_id: str | None = None
    available_at: datetime = field(default_factory=_utc_now)
    created: datetime = field(default_factory=_utc_now)
    updated: datetime = field(default_factory=_utc_now)
    reason: str | None = None
    """Why it is dead, refused or skipped, or why the last attempt failed."""
    key: str | None = None
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Tally:
    """How the deliveries of one trigger fare: how many are in each state, when the newest came, and the oldest of those
    that are not over (None: there is none)."""

    project: str
    lane: str
    trigger: str
    counts: Mapping[DeliveryState, int]
    newest: datetime
    waiting_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a stored session, and what `SessionStore.mend` would do about it.

    `kind` is one of `torn_tail` (the last write was cut), `bad_message` (one that is not what was written),
    `missing_source` (it is a fork of a session that is gone), `missing_parent`, and `unpaired_call` (a tool call
    without its result). `position` is the message's, from 0, where there is one; texts call the first message m1.
    """

    kind: str
    message: str
    remedy: str
    position: int | None = None


@dataclass(frozen=True, slots=True)
class Trimmed:
    """How much `Inbox.trim` forgot."""

    deliveries: int = 0
    events: int = 0


@runtime_checkable
class SessionStorage(Protocol):
    """The small contract: whole sessions in, whole sessions out; synchronous."""

    def save(self, session_id: str, transcript: list[dict[str, Any]], metadata: dict[str, Any]) -> None:
        """Keep this session, replacing what was kept under its id."""
        ...

    def load(self, session_id: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Return (transcript, metadata); raise `LookupError` or `FileNotFoundError` for an unknown id."""
        ...

    def exists(self, session_id: str) -> bool:
        """Return whether `load` would succeed."""
        ...


@runtime_checkable
class SessionStore(Protocol):
    """Sessions and their histories."""

    async def create(self, record: SessionRecord) -> SessionRecord:
        """Store a new session; with `fork_of`, one whose history begins with the source's first `fork_at` messages.

        Copies nothing. Raises `SessionExists`, `SessionNotFound` (the source), `IndexError` (`fork_at`),
        `SessionConflict` (`parent_id` is the session itself, or one that descends from it).
        """
        ...

    async def append(self, session_id: str, messages: Sequence[Message], *, at: int) -> int:
        """Add messages after the first `at`, all or none; return the new count.

        Raises `SessionConflict` when the history is not `at` messages long: somebody else wrote it.
        """
        ...

    async def update(self, session_id: str, **changes: Any) -> None:
        """Change fields of the record, `updated` to now.

        Raises `SessionNotFound`, and `TypeError` for what is no field or stays as it was created: `session_id`,
        `parent_id`, `fork_of`, `fork_at`, `message_count`, `updated`.
        """
        ...

    async def get(self, session_id: str) -> SessionRecord:
        """Return the record. Raises `SessionNotFound`."""
        ...

    async def find(self, prefix: str) -> list[SessionRecord]:
        """Return the sessions whose id begins with `prefix`, at most 20, newest first."""
        ...

    async def sessions(
        self, *, project: str | None = None, parent_id: str | None = None, limit: int | None = None
    ) -> list[SessionRecord]:
        """Return sessions, the last updated first; of one project, or made by one session, or all."""
        ...

    async def read(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Message]:
        """Return the messages from `start` up to `stop` (None: the end), shared ones included."""
        ...

    def read_sync(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Message]:
        """Do what `read` does in the calling thread, within an event loop or without one: a page of a long history."""
        ...

    async def delete(self, session_id: str) -> None:
        """Forget a session; its forks keep what they share of it. Raises `SessionNotFound`."""
        ...

    async def examine(self, session_id: str) -> list[Finding]:
        """Return everything that is wrong with a session, in the order of its history; changes nothing."""
        ...

    async def mend(self, session_id: str) -> list[Finding]:
        """Do what the remedies of `examine` say, and return what was found; what is cut away is kept beside."""
        ...

    async def close(self) -> None:
        """Finish what was begun and close the files; idempotent."""
        ...


@runtime_checkable
class Inbox(Protocol):
    """Events between sessions, and their deliveries: accepted once, handled once, whatever is killed when."""

    async def emit(self, event: SessionEvent) -> SessionEvent:
        """Append to the log; return the event with its `sequence`."""
        ...

    async def events(
        self, *, since: int = 0, limit: int = 1000, source_session_id: str | None = None
    ) -> list[SessionEvent]:
        """Return logged events with a sequence above `since`, oldest first; of one session, or of all."""
        ...

    async def find_events(self, prefix: str) -> list[SessionEvent]:
        """Return the logged events whose id begins with `prefix`, at most 20, in the order of their ids."""
        ...

    async def last_sequence(self) -> int:
        """Return the sequence of the newest event, 0 when there is none."""
        ...

    async def offer(
        self,
        project: str,
        lane: str,
        trigger: str,
        event: TriggerEvent,
        *,
        refused: str | None = None,
        admission: Admission | None = None,
        now: datetime | None = None,
    ) -> Delivery | None:
        """Accept an event: store it and its trigger's `state` in one transaction; `admission` says when it is due.

        An event without `state` leaves the stored one as it is. None when the lane knows its `dedupe_key` already; the
        state is stored all the same. With `refused`, record it in state `refused` with that reason instead of
        delivering it: it takes no other's place. A delivery that the `admission` skips is returned as it is stored,
        `skipped` with the reason; it takes no other's place either.
        """
        ...

    async def trigger_state(self, project: str, trigger: str) -> dict[str, Any]:
        """Return the state stored with the trigger's last event, {} before the first."""
        ...

    async def save_trigger_state(self, project: str, trigger: str, state: Mapping[str, Any]) -> None:
        """Store a trigger's state without an event."""
        ...

    async def claim(
        self, project: str, lane: str, *, owner: str, lease: float, session_id: str, now: datetime | None = None
    ) -> Delivery | None:
        """Take a delivery that is due, or whose lease (seconds) has run out, for `owner`: the first of those with the
        highest priority. One whose key an earlier one has that is not over, or a claimed one, is not due.

        `session_id` is used unless an earlier claim set one. None when nothing is due.
        """
        ...

    async def renew(self, delivery: Delivery, *, lease: float, now: datetime | None = None) -> None:
        """Extend the lease. Raises `StaleEpoch`."""
        ...

    async def commit(
        self,
        delivery: Delivery,
        *,
        emits: Sequence[SessionEvent] = (),
        session: Mapping[str, Any] | None = None,
    ) -> list[SessionEvent]:
        """In one transaction: mark the delivery done, change its session's record, append `emits` to the log.

        Returns the events with their sequences. Raises `StaleEpoch`, and then nothing of it happened.
        """
        ...

    async def retry(
        self,
        delivery: Delivery,
        *,
        reason: str,
        available_at: datetime,
        counted: bool = True,
        session: Mapping[str, Any] | None = None,
    ) -> None:
        """In one transaction: give the delivery back, due at `available_at`, and change its session's record.

        When it is not `counted`, the claim was no attempt. Raises `StaleEpoch`, and then nothing of it happened.
        """
        ...

    async def bury(
        self,
        delivery: Delivery,
        *,
        reason: str,
        emits: Sequence[SessionEvent] = (),
        session: Mapping[str, Any] | None = None,
    ) -> list[SessionEvent]:
        """Do as `commit` does, and set the delivery aside as a dead letter. Raises `StaleEpoch`."""
        ...

    async def release(self, project: str) -> int:
        """Make every claimed delivery of `project` due now: its owner is known to be dead. Return how many."""
        ...

    async def deliveries(
        self,
        *,
        project: str | None = None,
        lane: str | None = None,
        state: DeliveryState | None = None,
        event_id: str | None = None,
        session_id: str | None = None,
        cause: str | None = None,
        limit: int = 100,
    ) -> list[Delivery]:
        """Return deliveries, newest first: all that have these values; `event_id` and `cause` are the event's."""
        ...

    async def find_deliveries(self, prefix: str) -> list[Delivery]:
        """Return the deliveries whose own id, or whose event's or session's, begins with `prefix`, newest first: at
        most 20 of each kind.
        """
        ...

    async def next_due(self, project: str, lane: str, *, now: datetime | None = None) -> datetime | None:
        """Return when the next one of a lane comes due: the first time after `now` that one which is pending, and is
        not kept waiting by an earlier one of its key, is available. None when there is none.
        """
        ...

    async def tallies(self, *, project: str | None = None, lane: str | None = None) -> list[Tally]:
        """Return how the deliveries fare, a row for each trigger that any came from, by project, lane and trigger."""
        ...

    async def redeliver(self, delivery_id: str, *, now: datetime | None = None) -> Delivery:
        """Make one that is dead, refused or skipped due again, as if it had never been tried; its session, and its
        place among those of its key, stay its own. Raises `DeliveryNotFound`, `DeliveryConflict` for one that is not
        over or is done.
        """
        ...

    async def drop(self, delivery_id: str, *, reason: str) -> Delivery:
        """Skip one that is pending or dead, for good. Raises `DeliveryNotFound`, `DeliveryConflict`."""
        ...

    async def trim(self, *, before: datetime, event_bytes: int = 0) -> Trimmed:
        """Forget what is over: the deliveries done, refused or skipped before `before`, with their dedupe keys; of the
        events emitted before it the oldest, until the data of all that are left, as JSON in UTF-8, is at most
        `event_bytes`.

        What is pending, claimed or dead stays, and sequences are never used again.
        """
        ...

    async def spent_sessions(self, *, before: datetime, keep: int = 0, limit: int = 1000) -> list[str]:
        """Return the ids of sessions that events woke and nobody needs, the one first that was changed the longest ago.

        They were last changed before `before`, do not run, and no delivery is theirs that is pending, claimed or dead.
        Of those of one name under one parent the newest `keep` are needed.
        """
        ...


@runtime_checkable
class DurableStore(SessionStore, Inbox, Protocol):
    """A store that background sessions can run on."""
