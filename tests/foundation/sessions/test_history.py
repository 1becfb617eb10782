"""Cutting a history without separating a tool call from its result."""

from __future__ import annotations

import json
from datetime import timedelta
from hashlib import sha256
from typing import Any

import pytest

from amplifier_core.storage import DurableStore, SessionRecord
from amplifier_core.transcript import settled_length
from amplifier_foundation import EventRouter
from amplifier_foundation.sessions.history import (
    INTERRUPTED,
    end_of_turn,
    interrupted_results,
    is_user_turn,
    open_calls,
    turn_starts,
)
from amplifier_foundation.sessions.interruptions import settling_results


def user(text: str, **extra: Any) -> dict[str, Any]:
    return {"role": "user", "content": text, **extra}


def says(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def calls(*ids: str, tool: str = "read_file") -> dict[str, Any]:
    blocks = [{"type": "tool_call", "id": each, "name": tool, "input": {}} for each in ids]
    return {
        "role": "assistant",
        "content": blocks,
        "tool_calls": [{"id": each, "tool": tool, "arguments": {}} for each in ids],
    }


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "ok"}


async def test_an_open_call_has_emitted_the_event_under_its_key_unless_that_is_older(store: DurableStore) -> None:
    record = await store.create(SessionRecord(session_id="s", name="", bundle="b", project="/p"))
    key = sha256(b"s\0001\0a").hexdigest()[:32]
    event = await EventRouter(store).emit("work:done", {}, "s", event_id=key)

    async def settled(**metadata: Any) -> Any:
        [result] = await settling_results(store, record, [user("go"), {**calls("a"), "metadata": metadata}], 0)
        return json.loads(result["content"])

    for metadata in ({"timestamp": event.timestamp.isoformat()}, {"timestamp": "then"}, {}):
        assert await settled(**metadata) == {"emitted": "work:done"}
    assert await settled(timestamp=(event.timestamp + timedelta(seconds=1)).isoformat()) == INTERRUPTED


REMINDER = user("<system-reminder>be brief</system-reminder>")
INJECTED = user("noted", metadata={"source": "hook"})
TWO_TURNS = [user("one"), calls("a", "b"), result("a"), result("b"), says("done"), user("two"), says("again")]


def test_what_hooks_inject_is_no_turn() -> None:
    assert turn_starts([user("one"), REMINDER, says("x"), INJECTED, user("two")]) == [0, 4]
    assert not is_user_turn(says("x"))


@pytest.mark.parametrize(
    ("messages", "settled"),
    [
        ([], 0),
        ([user("one")], 1),
        ([user("one"), calls("a")], 1),
        ([user("one"), calls("a", "b"), result("a")], 1),
        ([user("one"), calls("a", "b"), result("b"), result("a")], 4),
        (TWO_TURNS, 7),
    ],
)
def test_a_history_is_settled_where_every_call_has_its_result(messages: list[dict[str, Any]], settled: int) -> None:
    assert settled_length(messages) == settled


def test_calls_that_a_crash_cut_are_recorded_as_interrupted() -> None:
    cut = [user("one"), calls("a", "b"), result("a")]
    [repair] = interrupted_results(cut)
    assert (repair["tool_call_id"], repair["name"]) == ("b", "read_file")
    assert json.loads(repair["content"])["interrupted"] is True
    assert settled_length([*cut, repair]) == 4
    assert open_calls([*cut, repair]) == []


def test_a_fork_point_is_a_turn_or_the_last_settled_message() -> None:
    assert settled_length(TWO_TURNS[: end_of_turn(TWO_TURNS, 1)]) == 5
    assert settled_length(TWO_TURNS[: end_of_turn(TWO_TURNS, 2)]) == 7
    assert settled_length([*TWO_TURNS, user("three"), calls("c")]) == 8
    with pytest.raises(ValueError, match="Turn 3 out of range. Valid range: 1-2"):
        end_of_turn(TWO_TURNS, 3)
    with pytest.raises(ValueError, match="no turns yet"):
        end_of_turn([], 1)
