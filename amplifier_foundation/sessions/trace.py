"""Trace one stored session: its turns, model calls, tool calls and children, with their times, tokens and cost.

Everything comes from the store. The recorder measures calls (`call_times`); for histories without measured calls, the
times of the messages bound them. A missing time stays missing, and is counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from amplifier_core.frozen import frozen

from .costs import format_cost, read_spent, spent_of
from .history import is_user_turn, time_of
from .usage import Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from amplifier_core.storage import SessionRecord
    from amplifier_core.transcript import Message

Kind = Literal["turn", "model", "tool", "session"]
SLOWEST = 10


@frozen
class Span:
    """One step of a session.

    `start` is a time in seconds since 1970 (UTC), `seconds` its duration; None is unknown. `is_bound` marks a duration
    between two messages: the step took at most so long. `message` is the position of its message, from 1.
    """

    kind: Kind
    name: str
    turn: int = 0
    message: int | None = None
    session_id: str | None = None
    start: float | None = None
    seconds: float | None = None
    is_bound: bool = False
    usage: Usage | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return {
            "kind": self.kind,
            "name": self.name,
            "turn": self.turn or None,
            "message": f"m{self.message}" if self.message else None,
            "session_id": self.session_id,
            "start": self.start,
            "seconds": self.seconds,
            "is_bound": self.is_bound,
            "usage": self.usage.to_dict() if self.usage else None,
        }


@frozen
class Sum:
    """All spans of one kind and name: their number, seconds and usage, and how many of them have none."""

    kind: str
    name: str
    count: int
    seconds: float
    untimed: int
    usage: Usage
    unpriced: int

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it; seconds and cost are null when nothing is known."""
        return {
            "kind": self.kind,
            "name": self.name,
            "count": self.count,
            "seconds": None if self.untimed == self.count else round(self.seconds, 3),
            "untimed": self.untimed,
            "tokens_in": self.usage.input_tokens,
            "tokens_out": self.usage.output_tokens,
            "cost_usd": None if self.usage.cost_usd is None else str(self.usage.cost_usd),
            "cost": format_cost(self.usage),
            "unpriced": self.unpriced,
        }


@frozen
class Trace:
    """The steps of one session, in the order of its history, its children after them."""

    spans: tuple[Span, ...]

    def sums(self) -> list[Sum]:
        """Return the sums by kind and name, the longest first; tools and children run inside of turns."""
        groups: dict[tuple[str, str], list[Span]] = {}
        for span in self.spans:
            groups.setdefault((span.kind, "" if span.kind in ("turn", "session") else span.name), []).append(span)
        order = ("turn", "model", "tool", "session")
        found = [_sum(kind, name, spans) for (kind, name), spans in groups.items()]
        return sorted(found, key=lambda each: (order.index(each.kind), -each.seconds))

    def rest(self) -> float | None:
        """Return the seconds of the turns that no model call or tool call fills; None if a time is missing."""
        turns = [span for span in self.spans if span.kind == "turn"]
        calls = [span for span in self.spans if span.kind in ("model", "tool")]
        if not turns or any(span.seconds is None or span.start is None for span in (*turns, *calls)):
            return None
        return max(0.0, sum(span.seconds or 0.0 for span in turns) - _covered(calls))

    def slowest(self) -> list[Span]:
        """Return the model calls and tool calls that took longest, at most `SLOWEST`."""
        timed = [span for span in self.spans if span.kind in ("model", "tool") and span.seconds is not None]
        return sorted(timed, key=lambda span: -(span.seconds or 0.0))[:SLOWEST]

    def notes(self) -> list[str]:
        """Return what the trace does not know."""
        calls = [span for span in self.spans if span.kind in ("model", "tool")]
        untimed = sum(span.seconds is None for span in calls)
        bound = sum(span.is_bound for span in calls)
        unpriced = sum(span.kind == "model" and span.usage is None for span in calls)
        texts = (
            (untimed, "have no time: it was not recorded"),
            (bound, "were not measured: their time is that between two messages, at most"),
            (unpriced, "have no tokens and no cost: they were not recorded"),
        )
        return [f"{count} of {len(calls)} calls {text}" for count, text in texts if count]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        rest = self.rest()
        return {
            "sums": [each.to_dict() for each in self.sums()],
            "rest": None if rest is None else round(rest, 3),
            "slowest": [span.to_dict() for span in self.slowest()],
            "notes": self.notes(),
            "spans": [span.to_dict() for span in self.spans],
        }


def trace_session(
    record: SessionRecord, own: Sequence[Message], made: Iterable[SessionRecord] = (), *, start: int | None = None
) -> Trace:
    """Return the trace of a session by its own messages, without those that a fork shares, and the sessions it made.

    `start` is the position of the first message of `own`, if it is a later one.
    """
    first = record.fork_at or 0 if start is None else start
    begins = [position for position, message in enumerate(own) if is_user_turn(message)]
    before = max(0, record.turn_count - len(begins))
    spans: list[Span] = []
    for number, (start, stop) in enumerate(pairwise([*begins, len(own)]), before + 1):
        spans.append(_turn(own[start:stop], number, first + start + 1))
        spans += [span for position in range(start, stop) for span in _call(own, position, number, first)]
    early = [
        span for position in range(begins[0] if begins else len(own)) for span in _call(own, position, before, first)
    ]
    return Trace((*early, *spans, *map(_child, sorted(made, key=lambda each: each.created))))


def _turn(messages: Sequence[Message], turn: int, message: int) -> Span:
    first, last = time_of(messages[0]), time_of(messages[-1])
    seconds = None if first is None or last is None else max(0.0, round(last - first, 3))
    return Span("turn", f"turn {turn}", turn, message, start=first, seconds=seconds)


def _call(messages: Sequence[Message], position: int, turn: int, first: int) -> list[Span]:
    message = messages[position]
    role, about = message.get("role"), _metadata(message)
    if role not in ("assistant", "tool"):
        return []
    spent, end, is_bound = read_spent(about), time_of(message), False
    seconds = spent.duration
    if seconds is None and end is not None and position and _is_alone(messages, position):
        before = time_of(messages[position - 1])
        if before is not None and before <= end:
            seconds, is_bound = round(end - before, 3), True
    start = None if end is None or seconds is None else round(end - seconds, 3)
    kind: Kind = "model" if role == "assistant" else "tool"
    name = str(about.get("model") or "unknown model") if kind == "model" else str(message.get("name") or "unknown tool")
    return [Span(kind, name, turn, first + position + 1, None, start, seconds, is_bound, spent.usage)]


def _is_alone(messages: Sequence[Message], position: int) -> bool:
    """Return whether the time since the message before belongs to this step: calls side by side share it."""
    if messages[position].get("role") == "assistant":
        return True
    return len(messages[position - 1].get("tool_calls") or ()) == 1


def _child(record: SessionRecord) -> Span:
    spent = spent_of(record)
    return Span(
        "session",
        record.name or record.session_id,
        session_id=record.session_id,
        start=record.created.timestamp(),
        seconds=spent.duration,
        usage=spent.usage,
    )


def _sum(kind: str, name: str, spans: Sequence[Span]) -> Sum:
    usage = sum((span.usage for span in spans if span.usage), Usage())
    return Sum(
        kind,
        name,
        len(spans),
        sum(span.seconds or 0.0 for span in spans),
        sum(span.seconds is None for span in spans),
        usage,
        sum(span.usage is None or span.usage.cost_usd is None for span in spans) if kind in ("model", "session") else 0,
    )


def _covered(spans: Iterable[Span]) -> float:
    """Return the seconds in which at least one of the spans runs."""
    covered, until = 0.0, float("-inf")
    for start, stop in sorted((span.start or 0.0, (span.start or 0.0) + (span.seconds or 0.0)) for span in spans):
        covered += max(0.0, stop - max(start, until))
        until = max(until, stop)
    return covered


def _metadata(message: Message) -> Mapping[str, Any]:
    metadata = message.get("metadata")
    return metadata if isinstance(metadata, Mapping) else {}
