"""The trace of a session: measured calls, bounds between messages, missing times, forks and children."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from amplifier_core import SessionRecord
from amplifier_foundation.sessions.trace import trace_session

DAY = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float, **about: Any) -> dict[str, Any]:
    return {"metadata": {"timestamp": (DAY + timedelta(seconds=seconds)).isoformat(), **about}}


def calls(*ids: str) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": [{"id": each, "tool": "grep"} for each in ids]}


def priced(cost: str) -> dict[str, Any]:
    return {"model": "m/x", "usage": {"input_tokens": 10, "output_tokens": 2, "cost_usd": cost, "requests": 1}}


def test_measured_calls_are_summed_by_model_and_tool_and_the_rest_of_a_turn_is_told() -> None:
    side_by_side = [
        {"role": "tool", "name": "grep", "tool_call_id": each, "content": "", **at(7.0, duration=3.0)} for each in "ab"
    ]
    history = [
        {"role": "user", "content": "go", **at(0)},
        {**calls("a", "b"), **at(3.0, duration=2.0, **priced("0.5"))},
        *side_by_side,
        {"role": "assistant", "content": "done", **at(9.0, duration=1.0, **priced("0.25"))},
    ]
    trace = trace_session(SessionRecord("s", turn_count=1, message_count=5), history)
    told = [(each.kind, each.name, each.count, each.seconds, each.usage.cost_usd) for each in trace.sums()]
    assert told == [
        ("turn", "", 1, 9.0, None),
        ("model", "m/x", 2, 3.0, Decimal("0.75")),
        ("tool", "grep", 2, 6.0, None),
    ]
    assert trace.rest() == 3.0  # tools side by side cover their time once
    assert [(span.message, span.seconds) for span in trace.slowest()] == [(3, 3.0), (4, 3.0), (2, 2.0), (5, 1.0)]
    assert trace.notes() == []


def test_the_times_of_messages_bound_a_call_that_was_not_measured() -> None:
    history = [{"role": "user", "content": "go", **at(0)}, {**calls("a"), **at(2)}]
    history.append({"role": "tool", "name": "grep", "tool_call_id": "a", "content": "", **at(5)})
    spans = trace_session(SessionRecord("s", turn_count=1), history).spans
    assert [(span.kind, span.seconds, span.is_bound) for span in spans] == [
        ("turn", 5.0, False),
        ("model", 2.0, True),
        ("tool", 3.0, True),
    ]


def test_no_time_is_invented_where_none_was_recorded() -> None:
    side_by_side = [{"role": "tool", "name": "grep", "content": "", "tool_call_id": each, **at(9)} for each in "ab"]
    history = [{"role": "user", "content": "go"}, {**calls("a", "b"), **at(4)}, *side_by_side]
    trace = trace_session(SessionRecord("s", turn_count=1), history)
    assert [span.seconds for span in trace.spans] == [None, None, None, None]
    assert trace.rest() is None
    assert trace.slowest() == []
    assert trace.notes() == [
        "3 of 3 calls have no time: it was not recorded",
        "1 of 3 calls have no tokens and no cost: they were not recorded",
    ]


def test_a_fork_counts_its_own_turns_and_a_child_its_own_cost() -> None:
    fork = SessionRecord("f", fork_of="s", fork_at=4, turn_count=3, message_count=6)
    child = SessionRecord("c", name="helper", parent_id="f", metadata={"duration": 2.5, "usage": {"cost_usd": "1"}})
    own = [{"role": "user", "content": "and?", **at(0)}, {"role": "assistant", "content": "so", **at(1)}]
    spans = trace_session(fork, own, [child]).spans
    assert [(span.kind, span.name, span.turn, span.message) for span in spans] == [
        ("turn", "turn 3", 3, 5),
        ("model", "unknown model", 3, 6),
        ("session", "helper", 0, None),
    ]
    assert (spans[2].session_id, spans[2].seconds) == ("c", 2.5)


def test_impossible_values_in_metadata_are_unknown() -> None:
    odd: list[Any] = [
        {"timestamp": "never"},
        {"timestamp": "2026-01-01T00:00:00"},
        "text",
        {"duration": -1, "usage": 3},
    ]
    history = [{"role": "assistant", "content": "x", "metadata": each} for each in odd]
    assert {span.seconds for span in trace_session(SessionRecord("s"), history).spans} == {None}
