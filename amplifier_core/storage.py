"""Define the contracts of a storage package: keep sessions, events and deliveries.

A package implements one or more of these groups:

    SessionStorage   save, load, exists: whole sessions, synchronous; any dictionary can satisfy it
    SessionStore     create, append, update, delete     histories grow by appending and fork without copying
                     get, find, sessions, read, read_sync, examine, repair, close
    Inbox            emit, events, find_events, last_sequence             the log of events
                     enqueue, trigger_state, save_trigger_state           a trigger hands over an event
                     claim, renew, commit, nack, dead_letter, release     a worker handles a delivery
                     deliveries, find_deliveries, delivery_counts, next_due
                     redeliver, drop, purge, expired_sessions             administration
    DueQueues        due_queues          one look for the idle workers of all queues (module `due_queues`)
    DocumentStore    write_documents, document, documents     small records, changed with events (module `documents`)
    DocumentSearch   search_documents                         … found by their words
    StoreViews       watch_commits, delivery_page, session_page, delivery_rates     what people look at (`store_views`)
    MessageSearch    search_messages, index_messages           messages found by their words (`store_views`)
    SessionQueries   sessions_below, sessions_with     sessions found without a look at all (`session_queries`)
    WordSearch       find_words, find_sharing                  words that a text is a part of (`store_views`)
    StoreAdministration  info, size, probe, check, backup, restore, salvage, compact: the files, also of a damaged store

`DurableStore` is a `SessionStore` and an `Inbox`: background sessions need both. Every coroutine returns when its
effect is durable. A store may be used from several event loops, threads and processes at once.

A plugin registers a factory with `amplifier_register_storage`: it takes a mapping and returns a store. The caller
passes the config of the settings' `storage: {name, config}` and, unless that has one of them, `folder`, the path of the
data folder (it exists, mode 0700), or `path`, the place of this one store, if an option names it. A factory accepts
both, gives other keys a default, and raises `ValueError` for an unknown key, `StoreUnavailable` for an unusable place.

`amplifier_core.testing.store_checks` tests a store against these contracts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from .contracts import Contract
from .storage_records import (
    Admission,
    Delivery,
    DeliveryCounts,
    DeliveryState,
    Finding,
    Overlap,
    Purged,
    SessionRecord,
    Status,
    check_changes,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from .documents import DocumentChange
    from .events import SessionEvent
    from .store_administration import (
        Compacted,
        Salvaged,
        StoreAdministration,
        StoreFault,
        StoreInfo,
        StoreUse,
        administration_of,
    )
    from .transcript import Message
    from .triggers import TriggerEvent

__all__ = [
    "Admission",
    "Compacted",
    "Delivery",
    "DeliveryCounts",
    "DeliveryState",
    "DurableStore",
    "Finding",
    "Inbox",
    "Overlap",
    "PromptDeliveries",
    "Purged",
    "Salvaged",
    "SessionRecord",
    "SessionStorage",
    "SessionStore",
    "SpawnedSessions",
    "Status",
    "StoreAdministration",
    "StoreFault",
    "StoreInfo",
    "StoreUse",
    "administration_of",
    "check_changes",
]


def __getattr__(name: str) -> object:
    """Import the administration of a store at its first use: few commands need it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import store_administration

    return getattr(store_administration, name)


@runtime_checkable
class SessionStorage(Protocol, metaclass=Contract):
    """Keep whole sessions; synchronous."""

    def save(self, session_id: str, transcript: list[dict[str, Any]], metadata: dict[str, Any]) -> None:
        """Store this session in place of the one stored under its id."""
        ...

    def load(self, session_id: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Return (transcript, metadata); raise `LookupError` or `FileNotFoundError` for an unknown id."""
        ...

    def exists(self, session_id: str) -> bool:
        """Return whether `load` would succeed."""
        ...


@runtime_checkable
class SessionStore(Protocol, metaclass=Contract):
    """Keep sessions and their histories."""

    # Write.

    async def create(self, record: SessionRecord) -> SessionRecord:
        """Store a new session; with `fork_of`, its history begins with the first `fork_at` messages of the source.

        Copies nothing. Raises `SessionExists`, `SessionNotFound` (the source), `IndexError` (`fork_at`),
        `SessionConflict` (`parent_id` is the session itself or one of its descendants).
        """
        ...

    async def append(self, session_id: str, messages: Sequence[Message], *, at: int) -> int:
        """Add all messages after the first `at`, or none; return the new count.

        Raises `SessionConflict` if the history is not `at` messages long: another writer was faster.
        """
        ...

    async def update(self, session_id: str, **changes: Any) -> None:
        """Change fields of the record, and `updated` to now.

        Raises `SessionNotFound`, and `TypeError` for an unknown or constant field: `session_id`, `parent_id`,
        `fork_of`, `fork_at`, `message_count`, `updated`.
        """
        ...

    async def delete(self, session_id: str) -> None:
        """Delete a session and its texts (see `empty_texts`); forks keep shared messages. Raises `SessionNotFound`."""
        ...

    # Read.

    async def get(self, session_id: str) -> SessionRecord:
        """Return the record. Raises `SessionNotFound`."""
        ...

    async def find(self, prefix: str) -> list[SessionRecord]:
        """Return at most 20 sessions with ids beginning with `prefix`, newest first."""
        ...

    async def sessions(
        self, *, project: str | None = None, parent_id: str | None = None, limit: int | None = None
    ) -> list[SessionRecord]:
        """Return sessions, the last updated first: of one project, of one parent, or all."""
        ...

    async def read(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Message]:
        """Return the messages from `start` up to `stop` (None: the end; below 0: 0), shared ones included."""
        ...

    def read_sync(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Message]:
        """Do as `read` does in the calling thread, with or without an event loop."""
        ...

    # Maintain.

    async def examine(self, session_id: str) -> list[Finding]:
        """Return every fault of a session in the order of its history; change nothing."""
        ...

    async def repair(self, session_id: str) -> list[Finding]:
        """Apply the remedies of `examine` and return its findings; removed data is kept aside."""
        ...

    async def close(self) -> None:
        """Finish pending work and close the files; idempotent."""
        ...


@runtime_checkable
class SpawnedSessions(Protocol, metaclass=Contract):
    """Find what a session spawned. A `SessionStore` offers it where that costs less than `sessions(parent_id=…)`."""

    async def spawned(self, session_id: str) -> list[SessionRecord]:
        """Return the sessions spawned by a session, the last updated first, without forks and sessions of events."""
        ...


@runtime_checkable
class Inbox(Protocol, metaclass=Contract):
    """Keep events and deliveries: each accepted once and handled once, even if processes are killed at any moment."""

    # The log of events.

    async def emit(self, event: SessionEvent) -> SessionEvent:
        """Append to the log; return the event with its `sequence`."""
        ...

    async def events(
        self, *, since: int = 0, limit: int = 1000, source_session_id: str | None = None
    ) -> list[SessionEvent]:
        """Return logged events with a sequence above `since`, oldest first; of one session, or of all."""
        ...

    async def find_events(self, prefix: str) -> list[SessionEvent]:
        """Return at most 20 logged events with ids beginning with `prefix`, in the order of their ids."""
        ...

    async def last_sequence(self) -> int:
        """Return the sequence of the newest event, 0 without events."""
        ...

    # A trigger hands over an event.

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
    ) -> Delivery | None:
        """Accept an event: store it and its trigger's state in one transaction; `admission` says when it is due.

        The event's `state` replaces the stored state, and its `state_changes` change it; an event with neither leaves
        it unchanged. The delivery holds neither of them: its size does not grow with the state.

        Returns None if the queue knows its `dedupe_key`; the state is stored all the same. With `refused` the event is
        only recorded, in state `refused` with this reason. A delivery skipped by its `admission` is returned as stored,
        `skipped` with the reason. Neither of the two takes the place of another delivery.
        """
        ...

    async def trigger_state(self, project: str, trigger: str) -> dict[str, Any]:
        """Return a trigger's state with all changes since, {} before the first event."""
        ...

    async def save_trigger_state(
        self, project: str, trigger: str, state: Mapping[str, Any], *, merge: bool = False
    ) -> None:
        """Store a trigger's state without an event; with `merge`, change only these keys, and delete those of None."""
        ...

    # A worker handles a delivery. Only the newest claim of a delivery (its `epoch`) may change it.

    async def claim(
        self, project: str, queue: str, *, owner: str, lease: float, session_id: str, now: datetime | None = None
    ) -> Delivery | None:
        """Take the due delivery with the highest priority for `owner`, for `lease` seconds; None if nothing is due.

        A delivery is due unless it is claimed or an earlier delivery with the same key is unfinished. A claim ends with
        its lease: the delivery is due again. One that came, or was given back, more than a second after `now` is
        due once: the clock was set back. The `session_id` applies unless an earlier claim set one.
        """
        ...

    async def renew(self, delivery: Delivery, *, lease: float, now: datetime | None = None) -> None:
        """Extend the lease to `lease` seconds from now. Raises `StaleEpoch`."""
        ...

    async def commit(
        self,
        delivery: Delivery,
        *,
        emits: Sequence[SessionEvent] = (),
        session: Mapping[str, Any] | None = None,
        documents: Sequence[DocumentChange] = (),
    ) -> list[SessionEvent]:
        """Mark the delivery done, change its session's record and append `emits` to the log, in one transaction.

        A store that implements `DocumentStore` makes the changes of `documents` too; callers give others none. Returns
        the events with their sequences. Raises `StaleEpoch`, `DocumentConflict`, and then changes nothing.
        """
        ...

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
        """Give the delivery back, due at `available_at`, and change its session's record, in one transaction.

        Unless `counted`, the claim was no attempt. Raises `StaleEpoch`, and then changes nothing.
        """
        ...

    async def dead_letter(
        self,
        delivery: Delivery,
        *,
        reason: str,
        emits: Sequence[SessionEvent] = (),
        session: Mapping[str, Any] | None = None,
        documents: Sequence[DocumentChange] = (),
    ) -> list[SessionEvent]:
        """Set the delivery aside as a dead letter; otherwise do as `commit` does."""
        ...

    async def release(self, project: str) -> int:
        """Make every claimed delivery of `project` due now, because its owner is dead. Return their number."""
        ...

    # Look at deliveries.

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
        """Return deliveries with all these values, newest first; `event_id` and `cause` are the event's."""
        ...

    async def find_deliveries(self, prefix: str) -> list[Delivery]:
        """Return deliveries newest first, at most 20 for each kind of id (their own, the event's, the session's)
        beginning with `prefix`.
        """
        ...

    async def delivery_counts(self, *, project: str | None = None, queue: str | None = None) -> list[DeliveryCounts]:
        """Return a row for each trigger with deliveries, ordered by project, queue and trigger."""
        ...

    async def next_due(self, project: str, queue: str, *, now: datetime | None = None) -> datetime | None:
        """Return the first time after `now` at which a pending delivery of a queue comes due; None without one.

        A delivery behind an earlier one with its key does not count.
        """
        ...

    # Administer deliveries, events and sessions.

    async def redeliver(self, delivery_id: str, *, now: datetime | None = None) -> Delivery:
        """Make a dead, refused or skipped delivery due again, with no attempts counted.

        It keeps its session and its place among the deliveries with its key. Raises `DeliveryNotFound`, and
        `DeliveryConflict` for an unfinished or done delivery.
        """
        ...

    async def drop(self, delivery_id: str, *, reason: str) -> Delivery:
        """Skip a pending or dead delivery for good. Raises `DeliveryNotFound`, `DeliveryConflict`."""
        ...

    async def purge(self, *, before: datetime, event_bytes: int = 0) -> Purged:
        """Delete deliveries done, refused or skipped before `before`, with their dedupe keys, and the oldest events.

        Only events emitted before `before` go, until the data of the remaining events (JSON in UTF-8) takes at most
        `event_bytes`. Pending, claimed and dead deliveries stay, and sequences are never used again.
        """
        ...

    async def expired_sessions(self, *, before: datetime, keep: int = 0, limit: int = 1000) -> list[str]:
        """Return the ids of finished sessions nobody needs, the longest unchanged first.

        An event woke each of them, its last change is before `before`, and no pending, claimed or dead delivery belongs
        to it. The newest `keep` sessions with the same name and parent are needed.
        """
        ...


@runtime_checkable
class PromptDeliveries(Protocol, metaclass=Contract):
    """Hand out a postponed delivery at once. An `Inbox` offers it to spare workers a look every now and then."""

    async def make_due(self, delivery_id: str, *, now: datetime | None = None) -> bool:
        """Make a pending delivery due now; return whether it was pending, and later due."""
        ...


@runtime_checkable
class DurableStore(SessionStore, Inbox, Protocol, metaclass=Contract):
    """Keep sessions, events and deliveries: the store of background sessions."""
