"""Define the contract between a trigger and its runner.

A trigger is any object with `configure`, `watch` and `stop`. It yields `TriggerEvent`s; the next one is requested only
after the one before is stored, so a yielded event is never lost. A trigger's memory for a restart rides on the event as
`state` or `state_changes` and is stored in the same transaction.
"""

from __future__ import annotations

from dataclasses import field
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from .clock import Clock, SystemClock
from .contracts import Contract
from .frozen import frozen
from .late_fields import new_event_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence

    from .documents import Documents
    from .events import SessionEvent


class TriggerType(Enum):
    """The kinds of trigger events."""

    FILE_CHANGE = "file_change"
    TIMER = "timer"
    SESSION_EVENT = "session_event"
    WEBHOOK = "webhook"
    ISSUE_EVENT = "issue_event"
    MANUAL = "manual"
    CUSTOM = "custom"


@frozen
class TriggerEvent:
    """One reason to wake a session.

    `data` is JSON: it is stored, and passed to the session. Two events of one background session with the same
    `dedupe_key` are one (None: every event counts). `cause` and `depth` continue the chain of the causing event.

    A restarted trigger gets its stored state back as `TriggerContext.state`. `state` replaces all of it. With a large
    state, `state_changes` is cheaper: each of its keys replaces the key of this name, None deletes one, and the other
    keys stay. A delivery keeps neither of them.
    """

    type: TriggerType
    source: str
    timestamp: datetime = field(default_factory=lambda: datetime.now(UTC))
    data: Mapping[str, Any] = field(default_factory=dict)
    file_path: str | None = None
    change_type: str | None = None
    source_session_id: str | None = None
    event_name: str | None = None
    event_id: str = field(default_factory=new_event_id)
    dedupe_key: str | None = None
    state: Mapping[str, Any] | None = None
    cause: str | None = None
    depth: int = 0
    state_changes: Mapping[str, Any] | None = None


class EventSource(Protocol):
    """Events of other sessions, for triggers to follow."""

    async def position(self) -> int:
        """Return the `SessionEvent.sequence` of the newest stored event, 0 without one."""
        ...

    def follow(
        self, names: Sequence[str], *, sources: Sequence[str] | None = None, since: int | None = None
    ) -> AsyncIterator[SessionEvent]:
        """Yield events with a name matching one of `names`: exactly, by `*`, or by prefix (`work:*`).

        `since` is a `SessionEvent.sequence`: the later stored events come first, then the new ones, each once and
        without gaps. None starts now. `sources` keeps events of these sessions only.
        """
        ...


def _find_working_dir() -> Path:
    """Return the current folder; `.` for one that is gone, as on a dead mount: `bind` gives a trigger its own."""
    try:
        return Path.cwd()
    except OSError:
        return Path()


@frozen
class TriggerContext:
    """The surroundings of a trigger: passed to its `bind` before `configure`."""

    name: str
    """The trigger's name, the same after a restart: `<bundle>/<background session>/<trigger>#<n>`."""
    working_dir: Path = field(default_factory=_find_working_dir)
    """The base of relative paths."""
    events: EventSource | None = None
    documents: Documents | None = None
    """The documents of its project; None where the store keeps none."""
    clock: Clock = field(default_factory=SystemClock)
    state: Mapping[str, Any] = field(default_factory=dict)
    """The stored state, all changes included; empty at the very first start."""
    saver: Callable[..., Awaitable[None]] | None = None
    """The store's side of `save_state`: `saver(state)`, or `saver(changes, merge=True)`."""
    own_writes: Mapping[str, str] = field(default_factory=dict)
    """Files written by the sessions of this trigger: the real, absolute path, and the SHA-256 (hex) of the content. A
    change to exactly this content is their own, and no event."""
    reporter: Callable[[str | None], None] | None = None
    """The receiver of `report`."""

    async def save_state(self, state: Mapping[str, Any], *, merge: bool = False) -> None:
        """Store `state` without an event, durable on return; with `merge`, as `TriggerEvent.state_changes`."""
        if self.saver is not None:
            await (self.saver(state, merge=True) if merge else self.saver(state))

    def report(self, problem: str | None) -> None:
        """Show why no events can come at present, in the status of the background session; None: they come again.

        For a problem that the trigger waits for; a trigger that cannot go on raises an error.
        """
        if self.reporter is not None:
            self.reporter(problem)


@frozen
class Upcoming:
    """A future firing time of a trigger; `note` tells its peculiarity, such as a change of the clocks."""

    at: datetime
    """Aware, in the time zone of the schedule."""
    note: str = ""


@runtime_checkable
class ScheduledSource(Protocol, metaclass=Contract):
    """The further method of a trigger with a schedule; it is called after `configure`, also without a watch."""

    def upcoming(self, after: datetime) -> Iterator[Upcoming]:
        """Yield the firing times after this one, in their order, until the schedule ends, if it does."""
        ...


@runtime_checkable
class JudgingSource(Protocol, metaclass=Contract):
    """The further method of a trigger that knows its own events; called after `configure`, also without a watch."""

    def matches(self, event: TriggerEvent) -> str | None:
        """Return None if its configuration allows such an event, else the reason in a few words."""
        ...


@runtime_checkable
class TriggerSource(Protocol, metaclass=Contract):
    """A trigger. Before `configure`, its optional `bind(context: TriggerContext)` is called.

    Its optional `async ready()` returns when `watch` misses no event any more (a polling trigger: after its first
    poll), or has ended. A start waits for it; a trigger without it counts as ready after one turn of the event loop.

    Its optional `caught_up()` returns whether all that has happened so far is yielded and stored, False while changes
    settle. A run that is to end by itself ends when every trigger is ready and caught up, and all events are handled.
    It waits a second longer for a trigger without `caught_up()`. A class may say `fires_by_clock = True` if time alone
    brings its events: such a run stops this trigger as soon as it is caught up, however much is still to be handled.

    A generator gets `StoreUnavailable` at its `yield` when the event cannot be stored. It may catch that and go on
    without the event, as a webhook does with 503; else `watch` ends, and is started again with the stored state.

    A trigger may have an `address` once it is configured, a text, '' for none: a check of a bundle refuses a second
    trigger with the same one. It may have a `url`, a text, for people who are to call it: once it is configured
    as far as that is known, and in full once it is ready.

    When more events wait than may, the runner asks for the next one later. A generator with the optional attribute
    `answers_callers = True` gets `QueueFull` at its `yield` instead, and may go on without the event.

    Its optional `async stand_by()` runs while its background session is stopped, until `stop`: a webhook answers 503.

    Where several hosts share a store, one of them runs a trigger. Its class may say `local = True`: then each host runs
    its own, with a state of its own, as a watcher of files does; events with a `file_path` are handled on that host.

    Its class may describe its configuration: a static `config_schema()` returns the JSON Schema of `config:` for
    editors, with definitions of its own in `$defs`.

    Its class may name the contents of its events: a static `event_names()` returns all possible keys of their `data`,
    and those of `file_path`, `change_type`, `event_name` and `source_session_id` with a value. Templates and conditions
    of bundles are checked against them; without it, every name is accepted.
    """

    def configure(self, config: Mapping[str, Any]) -> None:
        """Take the `config:` of the bundle; raise `TriggerConfigError` for an impossible one."""
        ...

    def watch(self) -> AsyncIterator[TriggerEvent]:
        """Yield events until `stop` is called; a watch that raises, or ends before, is restarted."""
        ...

    async def stop(self) -> None:
        """Make `watch` end promptly; called once or more, from any task of the same loop."""
        ...
