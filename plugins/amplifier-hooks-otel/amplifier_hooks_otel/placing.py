"""Find the place of a session's turns: their trace, the span above them, and the link to the source of a fork."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .ids import Place, delivery_span, random_span, read_traceparent, trace_id_of, turn_span

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from amplifier_core import ModuleCoordinator

ORIGIN = "session.origin"
"""The capability with the origin of a session, if its program knows it."""
TRANSCRIPT = "session.transcript"
MOST = 10_000
"""Sessions remembered in a process; the first ones are forgotten first."""

_traces: dict[str, int] = {}
"""The traces of this process's sessions: a child begins while its parent is there."""
_forks: dict[str, tuple[str, int]] = {}
"""The sources of forks that have not begun yet, and the number of shared messages."""


def remember_fork(session_id: str, source_id: str, at: int) -> None:
    """Remember a fork made in this process, until its session begins."""
    _bound(_forks)
    _forks[session_id] = (source_id, at)


def _bound(known: dict[str, Any]) -> None:
    if len(known) >= MOST:
        del known[next(iter(known))]


@dataclass(slots=True)
class Placing:
    """The place of one session's turns; `turn` is the number of the last one."""

    session_id: str
    trace_id: int
    above: Place | None
    attempt: int
    turn: int
    is_woken: bool
    """Whether a delivery woke the session: each attempt at its turn has an id of its own."""
    fork_of: str | None = None
    link: Place | None = None
    cut: tuple[Place, Sequence[str]] | None = None
    """The turn that a killed process left open, and the times of its begin and its last sign."""

    def next_turn(self, prompt: str) -> tuple[Place, Place | None]:
        """Return the places of a new turn and of the span above it; an empty prompt goes on with the last turn."""
        goes_on = not prompt and self.turn > 0
        self.turn += not goes_on
        is_again = goes_on and not self.is_woken
        span_id = random_span() if is_again else turn_span(self.session_id, self.turn, self.attempt)
        return Place(self.trace_id, span_id), self.find_above(is_first=self.turn == 1 and not is_again)

    def find_above(self, *, is_first: bool) -> Place | None:
        """Return the place of the span above a turn: with nothing above the session, its first turn for a later one."""
        if self.above is not None or is_first:
            return self.above
        return Place(self.trace_id, turn_span(self.session_id, 1))


def place_session(coordinator: ModuleCoordinator) -> Placing:
    """Return the place of a session before its first turn in this process."""
    origin: Mapping[str, Any] = coordinator.get_capability(ORIGIN) or {}
    session_id = coordinator.session_id
    fork_of, at, owner = _read_fork(session_id, origin)
    outer = read_traceparent(origin.get("traceparent"))
    trace_id = outer.trace_id if outer is not None else _find_trace(coordinator, origin, fork_of)
    _bound(_traces)
    _traces[session_id] = trace_id
    history: Sequence[Any] = coordinator.get_capability(TRANSCRIPT) or ()
    turn = count_turns(history)
    source = None
    if fork_of is not None:
        shared = turn if at >= len(history) else count_turns(history[:at])
        source = Place(trace_id, turn_span(owner or fork_of, shared)) if shared else None
    attempt = int(origin.get("attempt") or 1)
    above = outer
    if above is None and origin.get("delivery"):
        above = Place(trace_id, delivery_span(str(origin["delivery"])))
    placing = Placing(
        session_id=session_id,
        trace_id=trace_id,
        above=above or source,
        attempt=attempt,
        turn=turn,
        is_woken="attempt" in origin,
        fork_of=fork_of,
        link=source,
    )
    last = history[-1] if turn else {}
    is_open = bool(turn) and (last.get("role") != "assistant" or bool(last.get("tool_calls")))
    if origin.get("cut") and is_open:
        before = attempt - 1 if "attempt" in origin else 1
        placing.cut = Place(trace_id, turn_span(session_id, turn, max(1, before))), origin["cut"]
    return placing


def _read_fork(session_id: str, origin: Mapping[str, Any]) -> tuple[str | None, int, str | None]:
    """Return the source of a fork, the shared messages, and the session with the last shared turn."""
    known = _forks.pop(session_id, None)
    if "fork_of" in origin:
        return str(origin["fork_of"]), int(origin["fork_at"]), str(origin["turn_of"])
    return (known[0], known[1], None) if known is not None else (None, 0, None)


def _find_trace(coordinator: ModuleCoordinator, origin: Mapping[str, Any], fork_of: str | None) -> int:
    if origin.get("root"):
        return trace_id_of(str(origin["root"]))
    above = fork_of or coordinator.parent_id
    if above is None:
        return trace_id_of(coordinator.session_id)
    return _traces.get(above) or trace_id_of(above)


def count_turns(history: Sequence[Any]) -> int:
    """Return the number of prompts in a history, without those injected by hooks."""
    return sum(
        1
        for message in history
        if message.get("role") == "user" and (message.get("metadata") or {}).get("source") != "hook"
    )
