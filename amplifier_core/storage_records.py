"""Define the values of a store: sessions, deliveries, their admission, counts and findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from .frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .triggers import TriggerEvent

Status = Literal["running", "completed", "failed", "cancelled", "interrupted", "idle"]
DeliveryState = Literal["pending", "claimed", "done", "dead", "refused", "skipped"]
Overlap = Literal["queue", "skip", "replace"]

CLOCK_SLACK = timedelta(seconds=1)
"""A delivery that came so long after now, or more, says that the clock was set back: workers that ask and give back at
the same moment, and hosts, differ by less."""


def _utc_now() -> datetime:
    return datetime.now(UTC)


@frozen
class SessionRecord:
    """Describe one session; its messages are stored apart.

    `parent_id` names the session's maker and never changes; the session shares the first `fork_at` messages of
    `fork_of`. `project` is the absolute path of its working folder, `config` its mount plan with secrets redacted,
    `event_id` the event behind it. `message_count` includes the shared messages.
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


@frozen
class Admission:
    """Say how an accepted event waits in its queue.

    Deliveries with the same `key` are handled one at a time, in the order of their arrival; deliveries without a key
    are independent. While an earlier delivery with its key is pending or claimed, a new one waits (`queue`), is skipped
    (`skip`), or takes the place of the earlier ones (`replace`: they are skipped, and a claim on one of them ends).

    A delivery with a `settle_key` is due `settle` seconds after its arrival. A later one with the same `settle_key`
    takes the place of a delivery that is not due yet: the earlier one is skipped and blocks nobody. A series lasts at
    most `settle_within` seconds after its first event (None: no limit). A claimed or redelivered delivery no longer
    settles. Among the due deliveries the highest `priority` comes first, then the longest due.
    """

    key: str | None = None
    overlap: Overlap = "queue"
    priority: int = 0
    settle_key: str | None = None
    settle: float = 0.0
    settle_within: float | None = None


@frozen
class Delivery:
    """Carry one event to one background session (its `queue`).

    `epoch` grows with every claim, and a commit with an older epoch is refused. The first claim sets `session_id` for
    good: after a crash the turn is resumed instead of begun again.
    """

    delivery_id: str
    project: str
    queue: str
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
    """Why the delivery is dead, refused or skipped, or why its last attempt failed."""
    key: str | None = None
    priority: int = 0


@frozen
class DeliveryCounts:
    """Count the deliveries of one trigger by state, with the time of the newest and of the oldest unfinished one (None:
    all are finished).
    """

    project: str
    queue: str
    trigger: str
    counts: Mapping[DeliveryState, int]
    newest: datetime
    waiting_since: datetime | None = None


@frozen
class Finding:
    """Describe one fault of a stored session, and the remedy `SessionStore.repair` applies.

    `kind` is `torn_tail` (the last write was cut), `bad_message` (it differs from the written one), `missing_source`
    (the source of this fork is gone), `missing_parent` or `unpaired_call` (a tool call without its result). `position`
    is the message's, from 0, if the fault lies in one; texts call the first message m1.
    """

    kind: str
    message: str
    remedy: str
    position: int | None = None


TEXTS = frozenset({"output", "outputs", "error", "trigger"})
"""Members of the data of a session's events: its answers and errors, and the data of its first event."""
DELETED = {"deleted": True}
"""The data of the event in a done, refused or skipped delivery of a deleted session."""


def empty_texts(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data for an event of a deleted session: its `TEXTS` are empty values of their kind.

    Deleting a session, a store does this to its events, and puts `DELETED` into its finished deliveries. Their rows
    stay, for lineage and dedupe keys. An event still wakes its later readers: its facts stay, too.
    """
    empty = [(str, ""), (Mapping, {}), (list, [])]
    return {
        name: next((none for kind, none in empty if isinstance(value, kind)), value) if name in TEXTS else value
        for name, value in data.items()
    }


@frozen
class Purged:
    """Count the rows removed by `Inbox.purge`."""

    deliveries: int = 0
    events: int = 0


_UNCHANGEABLE = ("session_id", "parent_id", "fork_of", "fork_at", "message_count", "updated")


def check_changes(changes: Iterable[str]) -> None:
    """Raise `TypeError` for a name outside the fields of a record `SessionStore.update` may change."""
    for name in changes:
        if name in _UNCHANGEABLE or name not in SessionRecord.__dataclass_fields__:
            raise TypeError(f"a session record has no field '{name}' that can be changed")
