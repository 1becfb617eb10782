"""What wakes a session: the contract between a trigger and whoever runs it.

A trigger is any object with `configure`, `watch` and `stop`. It yields `TriggerEvent`s; the next one is asked for only
when the one before is stored, so an event that was yielded is never lost. What it must remember over a restart rides
on the event as `state` and is stored in the same transaction.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable
from uuid import uuid4

from .clock import Clock, SystemClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence

    from .events import SessionEvent


class TriggerType(Enum):
    """The kinds of things that wake sessions."""

    FILE_CHANGE = "file_change"
    TIMER = "timer"
    SESSION_EVENT = "session_event"
    WEBHOOK = "webhook"
    ISSUE_EVENT = "issue_event"
    MANUAL = "manual"
    CUSTOM = "custom"


@dataclass(frozen=True, slots=True)
class TriggerEvent:
    """One reason to wake a session.

    `data` is JSON: it is stored, and handed to the session. Two events of one background session with the same
    `dedupe_key` are one (None: every event counts). `state` is what the trigger wants back as
    `TriggerContext.state` after a restart. `cause` and `depth` continue the chain of the event that led here.
    """

    type: TriggerType
    source: str
    timestamp: datetime = field(default_factory=lambda: datetime.now(UTC))
    data: Mapping[str, Any] = field(default_factory=dict)
    file_path: str | None = None
    change_type: str | None = None
    source_session_id: str | None = None
    event_name: str | None = None
    event_id: str = field(default_factory=lambda: uuid4().hex)
    dedupe_key: str | None = None
    state: Mapping[str, Any] | None = None
    cause: str | None = None
    depth: int = 0


class EventSource(Protocol):
    """Events of other sessions, as a trigger may follow them."""

    async def position(self) -> int:
        """Return the `SessionEvent.sequence` of the newest event that is stored, 0 when there is none."""
        ...

    def follow(
        self, names: Sequence[str], *, sources: Sequence[str] | None = None, since: int | None = None
    ) -> AsyncIterator[SessionEvent]:
        """Yield events whose name matches one of `names`: exactly, by `*`, or by prefix (`work:*`).

        `since` is a `SessionEvent.sequence`: those stored after it come first, then what happens from now on;
        nothing twice, nothing left out. None starts now. `sources` keeps events of these sessions only.
        """
        ...


@dataclass(frozen=True, slots=True)
class TriggerContext:
    """Where a trigger runs: handed to its `bind` before `configure`."""

    name: str
    """Which trigger this is, the same after a restart: `<bundle>/<background session>/<trigger>#<n>`."""
    working_dir: Path = field(default_factory=Path.cwd)
    """What relative paths are relative to."""
    events: EventSource | None = None
    clock: Clock = field(default_factory=SystemClock)
    state: Mapping[str, Any] = field(default_factory=dict)
    """The `state` that was stored last; empty at the very first start."""
    saver: Callable[[Mapping[str, Any]], Awaitable[None]] | None = None
    own_writes: Mapping[str, str] = field(default_factory=dict)
    """What the sessions that this trigger woke have written: the real, absolute path of a file, and the SHA-256 (hex)
    of its content as they left it. A change that leaves exactly that is theirs, and news to nobody."""

    async def save_state(self, state: Mapping[str, Any]) -> None:
        """Store `state` without an event: where to begin from, when nothing has happened yet. Durable on return."""
        if self.saver is not None:
            await self.saver(state)


@dataclass(frozen=True, slots=True)
class Upcoming:
    """A time at which a trigger will fire; `note` says what is special about it, such as a change of the clocks."""

    at: datetime
    """Aware, in the zone that its schedule is read in."""
    note: str = ""


@runtime_checkable
class ScheduledSource(Protocol):
    """What a trigger that knows its future has besides: it is asked when configured, also without being watched."""

    def upcoming(self, after: datetime) -> Iterator[Upcoming]:
        """Yield the times at which it fires after this one, in their order, without end or until it fires no more."""
        ...


@runtime_checkable
class JudgingSource(Protocol):
    """What a trigger has besides that can say whether an event might be one of its own: it is asked when configured,
    also without being watched."""

    def matches(self, event: TriggerEvent) -> str | None:
        """Return None when it could yield such an event by its configuration, else why not, in a few words."""
        ...


@runtime_checkable
class TriggerSource(Protocol):
    """A trigger. Before `configure`, its optional `bind(context: TriggerContext)` is called.

    Its class may say what `configure` takes: a static `config_schema()` that returns the JSON Schema of the `config:`,
    which editors are given. Definitions of its own stand in `$defs`.
    """

    def configure(self, config: Mapping[str, Any]) -> None:
        """Take the `config:` of the bundle; raise `TriggerConfigError` for one that cannot work."""
        ...

    def watch(self) -> AsyncIterator[TriggerEvent]:
        """Yield events until `stop` is called; one that raises, or ends before, is restarted."""
        ...

    async def stop(self) -> None:
        """Make `watch` end promptly; called once or more, from any task of the same loop."""
        ...
