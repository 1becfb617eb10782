"""What children take over of a history: calls with their results or not at all, each message looked at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from amplifier_core import Transcript
from amplifier_core.storage import DurableStore
from amplifier_foundation import EventRouter, PreparedBundle, spawn_bundle
from amplifier_foundation.sessions.forks import fork_stored
from amplifier_foundation.sessions.history import open_calls
from amplifier_foundation.sessions.interruptions import settling_results
from amplifier_foundation.spawning.inheritance import Depth, Inheritance, Scope, child_config


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def says(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def calls(*ids: str, tool: str = "read_file") -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": [{"type": "tool_call", "id": each, "name": tool, "input": {}} for each in ids],
        "tool_calls": [{"id": each, "tool": tool, "arguments": {}} for each in ids],
    }


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "ok"}


TWO_TURNS = [user("one"), calls("a", "b"), result("a"), result("b"), says("done"), user("two"), says("again")]


def taken(inheritance: Inheritance, history: Transcript, depth: Depth, scope: Scope = "conversation") -> Transcript:
    return inheritance.take(history, depth, scope).history


def roles(transcript: Transcript) -> list[str]:
    return [message["role"] for message in transcript]


def test_inheriting_everything_shares_and_copies_nothing() -> None:
    source = Transcript(TWO_TURNS)
    child, turns = Inheritance().take(source, "all", "full")
    assert turns == 2
    assert child.is_fork_of(source)
    assert all(mine is theirs for mine, theirs in zip(child, source, strict=True))


@pytest.mark.parametrize("scope", get_args(Scope))
def test_a_call_in_flight_is_never_inherited(scope: Scope) -> None:
    source = Transcript([*TWO_TURNS, user("three"), calls("c")])
    assert open_calls(list(taken(Inheritance(), source, "all", scope))) == []


def test_conversation_keeps_what_was_said_and_agents_what_delegates_answered() -> None:
    source = Transcript([user("one"), calls("a"), result("a"), calls("d", tool="delegate"), result("d"), says("done")])
    inheritance = Inheritance()
    assert roles(taken(inheritance, source, "all", "conversation")) == ["user", "assistant"]
    kept = list(taken(inheritance, source, "all", "agents"))
    assert [message["role"] for message in kept] == ["user", "assistant", "tool", "assistant"]
    assert kept[1]["tool_calls"] == [{"id": "d", "tool": "delegate", "arguments": {}}]


@pytest.mark.parametrize("scope", get_args(Scope))
@pytest.mark.parametrize(("turns", "first"), [(1, "two"), (2, "one"), (9, "one")])
def test_recent_begins_with_a_turn(turns: int, first: str, scope: Scope) -> None:
    begun = Inheritance().take(Transcript(TWO_TURNS), "recent", scope, turns)
    assert begun.history[0]["content"] == first
    assert begun.turns == min(turns, 2)


def test_no_depth_or_no_turns_inherit_nothing() -> None:
    for depth in ("none", "recent"):
        begun = Inheritance().take(Transcript(TWO_TURNS), depth, "full", 0)
        assert (len(begun.history), begun.turns) == (0, 0)


@pytest.mark.parametrize("scope", get_args(Scope))
def test_a_later_child_takes_over_what_was_said_since_as_if_it_had_been_the_first(scope: Scope) -> None:
    history, inheritance = Transcript(), Inheritance()
    for message in [*TWO_TURNS, user("three"), calls("c"), result("c"), says("well")]:
        history.append(message)
        for depth in ("all", "recent"):
            begun = inheritance.take(history, depth, scope, 1)
            assert begun == Inheritance().take(history, depth, scope, 1)


def test_what_a_child_says_reaches_neither_its_parent_nor_its_siblings() -> None:
    history, inheritance = Transcript(TWO_TURNS), Inheritance()
    for scope in get_args(Scope):
        first, second = (taken(inheritance, history, "all", scope) for _ in range(2))
        before = list(second)
        first.append(user("only mine"))
        assert list(second) == before == list(taken(inheritance, history, "all", scope))
    assert list(history) == TWO_TURNS


def test_a_history_that_was_replaced_is_looked_at_anew() -> None:
    inheritance = Inheritance()
    assert roles(taken(inheritance, Transcript(TWO_TURNS), "all")) == ["user", "assistant", "user", "assistant"]
    assert roles(taken(inheritance, Transcript([user("other")]), "all")) == ["user"]


async def test_a_child_of_a_stored_session_is_stored_as_its_fork(
    lead: Callable[..., Any], make_bundle: Callable[..., PreparedBundle], store: DurableStore, words: Any
) -> None:
    session = await lead(providers=words.playbook())
    prepared = make_bundle(providers=words.playbook())
    first = await spawn_bundle(prepared, "one", session, session_id="first", session_storage=store)
    assert first.turn_count == 1
    again = await prepared.create_session(session_id="first", transcript=Transcript(await store.read("first")))
    async with again:
        shared = await spawn_bundle(
            prepared, "two", again, context_depth="all", context_scope="full", session_storage=store
        )
        own = await spawn_bundle(prepared, "two", again, context_depth="all", session_storage=store)
    records = [await store.get(each.session_id) for each in (shared, own)]
    assert [(record.fork_of, record.fork_at) for record in records] == [("first", 2), (None, None)]
    assert [(record.message_count, record.turn_count) for record in records] == [(4, 2), (4, 2)]
    assert [each.turn_count for each in (shared, own)] == [1, 1]
    said = [[message["content"] for message in await store.read(each.session_id)] for each in (shared, own)]
    assert said[0] == said[1]


def plan_of(own: dict[str, Any], parent: dict[str, Any]) -> dict[str, Any]:
    return child_config(own, parent, providers=True, tools=["tool-b"], hooks=False)


def test_children_of_the_same_plan_share_no_part_of_it() -> None:
    own: dict[str, Any] = {"session": {"context": "c"}, "tools": [{"module": "tool-a", "config": {"n": 1}}]}
    parent = {"providers": [{"module": "p", "config": {"n": 1}}], "tools": [{"module": "tool-b"}, {"module": "tool-c"}]}
    first, second = plan_of(own, parent), plan_of(own, parent)
    assert [each["module"] for each in first["tools"]] == ["tool-b", "tool-a"]
    for changed in (first["session"], first["tools"][1]["config"], first["providers"][0]["config"]):
        changed["n"] = 2
    assert second == plan_of(own, parent) == {**own, **second}
    assert second["providers"] == parent["providers"]


def test_a_changed_plan_counts_at_once_also_where_the_values_are_equal() -> None:
    own: dict[str, Any] = {"session": {"redact": True}}
    assert plan_of(own, {})["session"]["redact"] is True
    own["session"]["redact"] = 1
    assert plan_of(own, {})["session"]["redact"] == 1
    assert plan_of(own, {})["session"]["redact"] is not True


def test_a_plan_with_values_of_other_kinds_is_copied_too() -> None:
    own = {"tools": [{"module": "tool-a", "config": {"folder": Path("x"), "names": ["n"]}}]}
    plan = plan_of(own, {})
    assert plan == {**own, "session": {}}
    assert plan["tools"][0]["config"]["names"] is not own["tools"][0]["config"]["names"]  # type: ignore[index]


@pytest.mark.parametrize("scope", get_args(Scope))
async def test_the_turns_of_a_result_are_those_of_the_child_however_often_it_goes_on(
    scope: Any, lead: Callable[..., Any], make_bundle: Callable[..., PreparedBundle], store: DurableStore, words: Any
) -> None:
    session, told = await lead(providers=words.playbook()), EventRouter()
    ended = told.subscribe(["session:completed"])
    for prompt in ("one", "two", "three"):
        await session.execute(prompt)
    child: Any = {"session_id": "child", "session_storage": store, "event_router": told}
    prepared, shares = make_bundle(providers=words.playbook()), {"context_depth": "all", "context_scope": scope}
    results = [await spawn_bundle(prepared, "four", session, **child, **shares)]
    child["resume"] = True
    results += [await spawn_bundle(prepared, each, session, **child, **shares) for each in ("five", "")]
    assert [each.turn_count for each in results] == [1, 2, 2]
    assert [(await anext(ended)).data["turn_count"] for _ in results] == [1, 2, 2]
    record = await store.get("child")
    assert (record.turn_count, record.message_count) == (5, 10)
    fork = await fork_stored(store, record, turn=4)
    assert (fork.turn_count, fork.metadata["inherited_turns"]) == (4, 4)
    assert (await spawn_bundle(prepared, "six", session, **{**child, "session_id": fork.session_id})).turn_count == 1


async def test_the_result_of_a_child_that_outlived_its_call_tells_its_own_turns(
    lead: Callable[..., Any], make_bundle: Callable[..., PreparedBundle], store: DurableStore, words: Any
) -> None:
    session = await lead(providers=words.playbook())
    await session.execute("one")
    own: Any = {"context_depth": "all", "session_id": "child", "session_storage": store}
    await spawn_bundle(make_bundle(providers=words.playbook()), "two", session, **own)
    child, call = await store.get("child"), calls("a", tool="delegate")
    await store.update("child", metadata={**child.metadata, "agent": "below"})
    call["tool_calls"][0]["arguments"] = {"agent": "below"}
    above = replace(child, session_id=session.session_id)
    [result] = await settling_results(store, above, [user("go"), call], 0)
    told = json.loads(result["content"])
    assert (told["session_id"], told["status"], told["turn_count"]) == ("child", "completed", 1)
