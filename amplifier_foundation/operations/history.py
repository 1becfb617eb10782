"""Read the history of background sessions: of their deliveries, of their own status, and of the acts of people."""

from __future__ import annotations

from dataclasses import field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import SessionNotFound
from amplifier_core.frozen import frozen, slotted
from amplifier_core.ids import host_of
from amplifier_core.log_triggers import is_received
from amplifier_core.triggers import TriggerType
from amplifier_core.utils.secrets import redact_text

from ..background.approvals import WAITS
from ..background.giving_back import due_of, is_postponed
from ..background.keys import RUNS
from ..background.log_events import (
    BACKGROUND_RELOADED,
    BACKGROUND_STALLED,
    BACKGROUND_STATE,
    TRIGGER_ERROR,
)
from ..documents.safe_text import LOOKED_AT, one_line, plain
from ..documents.times import format_time
from ..sessions.exporting import call_line
from ..sessions.history import describe_fallback, is_user_turn, text_of, time_of
from ..sessions.lineage import describe_event
from ..sessions.records import describe_worktree
from ..sessions.store_views import views_of
from .acting import describe_act, is_act

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from amplifier_core.events import SessionEvent
    from amplifier_core.storage import Delivery, DurableStore, SessionRecord, SessionStore
    from amplifier_core.transcript import Message

    from .running import Running

    ShowTime = Callable[[datetime], str]

LINE = 110
"""Longest answer or reason in a line, in characters."""
REASON = 3 * LINE
"""Longest reason why an event is not done yet, with its remedy."""
END_OF_PATH = 40
"""Characters of a path that begins a line which is too long."""
RECENT = 200
"""The newest deliveries, searched for new steps besides the unfinished ones."""
EVENTS_EACH = 3
"""Events in the log for each delivery: its completion, and what it emits."""
MOST = 100_000
"""Most deliveries searched for one answer."""


@frozen
class HistoryEntry:
    """One step of a delivery, of a background session itself, or an act of a person (`delivery` is None).

    `kind` is `accepted`, `refused`, `skipped`, `started`, `retried`, `postponed`, `held`, `completed`, `dead` or
    `tool`; without a delivery `running`, `trigger_failed`, `failed`, `stalled`, `reloaded` or `acted`.
    """

    at: datetime
    kind: str
    text: str
    queue: str
    project: str
    delivery: Delivery | None = None
    event_id: str = ""
    number: int = 0
    """Its place among the tool calls of its session, and the refusals of these, from 1; 0: none."""
    act: Mapping[str, Any] | None = None
    """The data of an event `operator:acted`."""

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
    """Return the entry of an event about a background session itself or an act of a person here.

    Return None for other events, for those of other sites, and for one without the program's data: its readers go on.
    """
    if is_received(event):
        return None
    try:
        return _read_own(event)
    except (LookupError, OverflowError, ValueError):
        return None


def _read_own(event: SessionEvent) -> HistoryEntry | None:
    data = event.data
    queue, project = str(data.get("queue", "")), str(data.get("project", ""))
    if is_act(event):
        where = queue, event.project or ""
        return HistoryEntry(event.timestamp, "acted", describe_act(data), *where, event_id=event.event_id, act=data)
    if event.name == BACKGROUND_STATE:
        status, reason = str(data["status"]), str(data["reason"]) and first_line(str(data["reason"]))
        kind = "failed" if status in ("degraded", "failed") else "running"
        at = datetime.fromisoformat(str(data["at"])).astimezone(UTC)
        text = f"{status}: {reason}" if reason else status
        return HistoryEntry(at, kind, text, queue, project, event_id=event.event_id)
    if event.name == BACKGROUND_STALLED:
        at = datetime.fromisoformat(str(data["at"])).astimezone(UTC)
        return HistoryEntry(at, "stalled", plain(str(data["text"])), queue, project, event_id=event.event_id)
    if event.name == TRIGGER_ERROR:
        text = first_line(str(data["error"]))
        return HistoryEntry(event.timestamp, "trigger_failed", text, queue, project, event_id=event.event_id)
    if event.name == BACKGROUND_RELOADED:
        place = f"{data['bundle']}/"
        return HistoryEntry(event.timestamp, "running", str(data["text"]), place, project, event_id=event.event_id)
    return None


async def read_history(
    store: DurableStore, delivery: Delivery, *, tools: bool = False, show: ShowTime = format_time
) -> list[HistoryEntry]:
    """Return the known steps of a delivery, in order of time; with `tools`, also the tool calls of its session.

    `show` writes the times within texts. For several attempts, the store keeps the first start, the number of attempts,
    and the last reason.
    """
    record, answer = None, ""
    if delivery.session_id is not None:
        try:
            record = await store.get(delivery.session_id)
        except SessionNotFound:  # it was deleted, or has not begun
            record = None
    if delivery.state == "done" and record is not None:
        last = await read_messages(store, delivery, record, last=True)
        if last:
            fallback = describe_fallback(last[-1])
            answer = first_line(text_of(last[-1])) + (plain(f" ({fallback})") if fallback else "")
    entries = [
        HistoryEntry(at, kind, text, delivery.queue, delivery.project, delivery)
        for at, kind, text in _steps(delivery, record, answer, show)
    ]
    if tools and record is not None:
        entries = [*await _read_tool_calls(store, delivery, record), *entries]
    return sorted(entries, key=lambda each: each.at)


async def read_messages(
    store: SessionStore, delivery: Delivery, record: SessionRecord, *, last: bool = False
) -> list[Message]:
    """Return the messages of a delivery's session, up to its end: turns added later by a person are not of it.

    Messages shared with the source of a fork are left out. With `last`, the last message alone may be read.
    """
    is_over = delivery.state in ("done", "dead")
    has_gone_on = is_over and record.updated > delivery.updated
    start = max(0, record.message_count - 1) if last and not has_gone_on else record.fork_at or 0
    messages = await store.read(record.session_id, start, record.message_count)
    if not has_gone_on:
        return messages
    end = delivery.updated.timestamp()
    later = (at for at, each in enumerate(messages) if at and is_user_turn(each) and (time_of(each) or 0) > end)
    return messages[: next(later, None)]


async def _read_tool_calls(store: DurableStore, delivery: Delivery, record: SessionRecord) -> list[HistoryEntry]:
    """Return the tool calls of a session, and which were denied, without those of the session that it is a fork of.

    The store has no time of a call: the time is that of the session's last change.
    """
    lines: list[str] = []
    for message in await read_messages(store, delivery, record):
        lines += (one_line(call_line(call), 200) for call in message.get("tool_calls") or ())
        if message.get("role") == "tool" and (message.get("metadata") or {}).get("denied") is True:
            lines.append(describe_denial(message.get("name"), text_of(message)))
    at = min(record.updated, delivery.updated) if delivery.state != "claimed" else record.updated
    return [
        HistoryEntry(at, "tool", line, delivery.queue, delivery.project, delivery, number=number)
        for number, line in enumerate(lines, 1)
    ]


def describe_denial(tool: object, result: str) -> str:
    """Return a line about a call that never ran, with the reason."""
    return f"✗ {plain(str(tool))}: {first_line(result, REASON)}"


def _place(delivery: Delivery, claim: int) -> str:
    """Return in words on which host a claim was, on a shared store; '' for a store of one host."""
    owners: Sequence[str] = getattr(delivery, "owners", ())
    host = host_of(owners[claim]) if owners else ""  # a claim on the store of one host that was copied here names none
    return f" on {host}" if host else ""


def _steps(
    delivery: Delivery, record: SessionRecord | None, answer: str, show: ShowTime
) -> Iterator[tuple[datetime, str, str]]:
    """Yield the time, the kind and the text of each step."""
    summary, reason = describe(delivery.event), first_line(delivery.reason or "", REASON)
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
        yield delivery.updated, "held", f"{reason}; until {show(delivery.available_at)}"
    elif is_postponed(delivery):
        until = "" if (due := due_of(delivery)) is None else f"; until {show(due)}"
        yield delivery.updated, "postponed", f"{reason}{until}"
    elif delivery.state == "pending" and (delivery.attempts or delivery.reason):
        cause = reason if delivery.reason else "interrupted"
        yield delivery.updated, "retried", f"{cause}; next attempt at {show(delivery.available_at)}"
    if delivery.state == "done":
        text = answer if record is not None else "(its session is deleted)"
        yield delivery.updated, "completed", text + attempt + worktree
    elif delivery.state == "dead":
        yield delivery.updated, "dead", f"given up: {reason}{attempt}{worktree}"


def describe(event: Any) -> str:
    """Return a short description of an event, safe for a terminal; of a long path, the end."""
    line = one_line(describe_event(event), LOOKED_AT)
    if len(line) > LINE and event.type is TriggerType.FILE_CHANGE:
        return f"file …{line[len('file …') - LINE :]}"
    return one_line(line, LINE)


def first_line(text: str, most: int = LINE) -> str:
    """Return the first line of an answer or a reason, safe for a terminal; a long path hides no cause behind it."""
    lines = redact_text(text[:LOOKED_AT]).strip().splitlines()
    if not lines:
        return "(no answer)"
    path, colon, cause = lines[0].partition(": ")
    is_long = path[:1] == "/" and len(path) > END_OF_PATH and len(lines[0]) > most
    return one_line(f"…{path[-END_OF_PATH:]}{colon}{cause}" if is_long else lines[0], most)


@slotted
class Following:
    """Finds new steps of deliveries in the store, from one look to the next."""

    store: DurableStore
    queues: list[tuple[str, str]] | None = None
    shows_tools: bool = False
    show: ShowTime = format_time
    """Writes the times within texts."""
    _reported: dict[tuple[str, str, datetime], None] = field(default_factory=dict)
    _open: dict[str, Delivery] = field(default_factory=dict)
    _seen: dict[str, Delivery] = field(default_factory=dict)
    _sequence: int | None = None

    @classmethod
    async def of(
        cls, store: DurableStore, name: str | None, running: Iterable[Running] = (), project: str | None = None
    ) -> Following:
        """Follow the background sessions with this name, queue or id; None: all. Those of `project` have priority.

        `running` are those of `list_all_running`. Raises `NoSuchBackgroundSession` when it neither runs nor has events
        in the store.
        """
        from ..background.asking import NoSuchBackgroundSession

        if name is None:
            return cls(store)
        known = {(counted.project, counted.queue): "" for counted in await store.delivery_counts()}
        known |= {key: session_id for key, session_id, _ in running}
        queues = [key for key, session_id in known.items() if name in (key[1], key[1].rpartition("/")[2], session_id)]
        if not queues:
            raise NoSuchBackgroundSession(name, [queue.rpartition("/")[2] for _, queue in known])
        return cls(store, [key for key in queues if key[0] == project] or queues)

    async def read_new(self, count: int) -> list[HistoryEntry]:
        """Return new steps of the newest `count` deliveries and of all unfinished ones, in order of time."""
        newest = await self._find(limit=count)
        unfinished = await self._find_unfinished()
        found = {each.delivery_id: each for each in (*newest, *unfinished)}
        for delivery_id in self._open.keys() - found.keys():
            before = self._open[delivery_id]
            same = await self.store.deliveries(event_id=before.event.event_id)
            found[delivery_id] = next((each for each in same if each.delivery_id == delivery_id), before)
        self._open = {each.delivery_id: each for each in unfinished}
        changed = [each for each in found.values() if self._seen.get(each.delivery_id) != each]
        self._seen = {key: each for key, each in found.items() if each.state != "claimed"}  # its session may start yet
        entries = [
            each
            for delivery in changed
            for each in await read_history(self.store, delivery, tools=self.shows_tools, show=self.show)
        ]
        entries += await self._read_changes(count)
        fresh = [each for each in entries if each.identity not in self._reported]
        self._reported.update(dict.fromkeys(each.identity for each in fresh))
        while len(self._reported) > MOST:
            del self._reported[next(iter(self._reported))]
        return sorted(fresh, key=lambda each: each.at)

    async def _read_changes(self, count: int) -> list[HistoryEntry]:
        """Return what the log of events says of the background sessions themselves since the last look.

        The first look goes back over as many events as `count` deliveries are likely to have.
        """
        last = await self.store.last_sequence()
        start = max(0, last - EVENTS_EACH * count) if self._sequence is None else self._sequence
        entries = []
        while start < last and (page := await self.store.events(since=start, limit=1_000)):
            entries += [entry for event in page if (entry := read_change(event)) is not None]
            start = page[-1].sequence or last
        self._sequence = last
        entries = [each for each in entries if each.queue != RUNS]
        return [each for each in entries if self.queues is None or self._is_followed(each)]

    def _is_followed(self, entry: HistoryEntry) -> bool:
        of_bundle = entry.queue.endswith("/")
        return any(
            entry.project == project and (queue == entry.queue or (of_bundle and queue.startswith(entry.queue)))
            for project, queue in self.queues or ()
        )

    async def reaches(self, since: datetime, count: int) -> bool:
        """Return whether the newest `count` deliveries include all since then."""
        newest = await self._find(limit=count)
        return len(newest) < count or min(each.created for each in newest) < since

    async def _find_unfinished(self) -> list[Delivery]:
        views = views_of(self.store)
        everywhere: list[tuple[str | None, str | None]] = [(None, None)]
        pages = [
            await views.delivery_page(project=project, queue=queue, states=("pending", "claimed"), limit=2_000)
            for project, queue in self.queues or everywhere
        ]
        return [each for page in pages for each in page if self.queues is not None or each.queue != RUNS]

    async def _find(self, **wanted: Any) -> list[Delivery]:
        if self.queues is None:
            return [each for each in await self.store.deliveries(**wanted) if each.queue != RUNS]
        return [
            each
            for project, queue in self.queues
            for each in await self.store.deliveries(project=project, queue=queue, **wanted)
        ]
