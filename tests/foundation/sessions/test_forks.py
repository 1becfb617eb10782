"""Forking what is stored: one row, whatever the length."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import (
    AmplifierSession,
    ForkRefused,
    ForkRequest,
    ForkResult,
    SessionConflict,
    SessionError,
    SessionRecord,
    hookimpl,
)
from amplifier_core.plugins import Plugins
from amplifier_core.storage import DurableStore
from amplifier_core.transcript import Message, Transcript
from amplifier_foundation import PreparedBundle, fork_stored, spawn_bundle
from amplifier_foundation.sessions.forks import fork_place
from amplifier_foundation.sessions.stored_history import stored_transcript
from amplifier_foundation.spawning.child import Spawn, prepare_spawn, spawn_request


def turn(number: int) -> list[Message]:
    call = {"id": f"call-{number}", "tool": "read_file", "arguments": {}}
    return [
        {"role": "user", "content": f"question {number}"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "result"},
        {"role": "assistant", "content": f"answer {number}"},
    ]


async def stored(store: DurableStore, messages: list[Message], turns: int) -> SessionRecord:
    await store.create(SessionRecord("source", name="helper", project="/p", bundle_digest="d", config={"k": 1}))
    await store.append("source", messages, at=0)
    await store.update("source", turn_count=turns, status="completed")
    return await store.get("source")


class Reads:
    """A store that counts the messages it hands out."""

    def __init__(self, store: DurableStore) -> None:
        self._store = store
        self.messages = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def read(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Message]:
        messages = await self._store.read(session_id, start, stop)
        self.messages += len(messages)
        return messages


async def test_a_fork_has_its_sources_set_up_and_history(store: DurableStore) -> None:
    source = await stored(store, [*turn(1), *turn(2)], 2)
    fork = await fork_stored(store, source, name="other")
    assert (fork.parent_id, fork.fork_of, fork.fork_at) == ("source", "source", 8)
    assert (fork.name, fork.project, fork.bundle_digest, fork.config) == ("other", "/p", "d", {"k": 1})
    assert (fork.status, fork.turn_count, fork.event_id) == ("idle", 2, None)
    assert await store.read(fork.session_id) == await store.read("source")


@pytest.mark.parametrize(("number", "at"), [(1, 4), (2, 8), (3, 12)])
async def test_a_fork_at_a_turn_ends_with_its_answer(number: int, at: int, store: DurableStore) -> None:
    source = await stored(store, [*turn(1), *turn(2), *turn(3)], 3)
    fork = await fork_stored(store, source, turn=number)
    assert (fork.fork_at, fork.turn_count) == (at, number)
    assert (await store.read(fork.session_id))[-1]["content"] == f"answer {number}"


@pytest.mark.parametrize(
    ("source", "point", "told"),
    [
        ("s", {}, r"^source: give the record of a session, not its id: await store.get\('s'\)$"),
        (None, {"turn": "1"}, "^turn: must be a whole number, not '1'$"),
        (None, {"message": True}, "^message: must be a whole number, not True$"),
    ],
)
async def test_an_id_in_place_of_a_record_and_a_point_that_is_no_number_are_refused_with_the_remedy(
    store: DurableStore, source: Any, point: dict[str, Any], told: str
) -> None:
    source = source or await store.create(SessionRecord("s"))
    with pytest.raises(TypeError, match=told):
        await fork_stored(store, source, **point)


async def test_a_turn_there_is_not_is_named_with_those_there_are(store: DurableStore) -> None:
    source = await stored(store, turn(1), 1)
    with pytest.raises(SessionError, match=r"'source' cannot be forked: Turn 2 out of range\. Valid range: 1-1"):
        await fork_stored(store, source, turn=2)
    assert len(await store.sessions()) == 1


@pytest.mark.parametrize("length", [1, 10, 500])
async def test_a_fork_now_reads_the_end_of_the_history_alone(length: int, store: DurableStore) -> None:
    messages = [message for number in range(length) for message in turn(number)]
    counting = Reads(store)
    fork = await fork_stored(counting, await stored(store, messages, length))  # type: ignore[arg-type]  # it is one
    assert (fork.fork_at, fork.turn_count) == (4 * length, length)
    assert counting.messages == 1


async def test_a_fork_of_a_short_running_session_counts_its_running_turn(store: DurableStore) -> None:
    await stored(store, [*turn(1), *turn(2)[:3]], 1)
    await store.update("source", status="running")
    fork = await fork_stored(store, await store.get("source"))
    assert (fork.fork_at, fork.turn_count) == (7, 2)


HELD_CALL = {"held": {"call": {"tool": "t"}}}


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({"status": "running"}, 0),
        ({"status": "interrupted", "metadata": HELD_CALL}, 0),  # it waits for a person
        ({"status": "interrupted"}, 1),  # nobody answers it, unless the fork does
    ],
)
@pytest.mark.parametrize("is_called", [False, True])
@pytest.mark.parametrize("before", [0, 20])
async def test_a_prompt_that_its_session_answers_is_in_no_fork(
    changes: dict[str, Any], kept: int, is_called: bool, before: int, store: DurableStore
) -> None:
    history = [message for number in range(before) for message in turn(number)]
    await stored(store, [*history, *turn(before)[: 2 if is_called else 1]], before)
    counted = before + (changes["status"] == "interrupted")  # the record of a running session lacks its turn
    await store.update("source", turn_count=counted, **changes)
    source = await store.get("source")
    points: list[dict[str, Any]] = [{}, {"turn": before + 1}, {"message": source.message_count}]
    for point in points:
        place = await fork_place(store, source, **point)
        assert (place.at, place.turns) == (4 * before + kept, before + kept), point
        assert place.left_out == source.message_count - place.at


@pytest.mark.parametrize(
    ("changes", "point", "at", "most"),
    [
        ({"status": "interrupted", "metadata": HELD_CALL}, {}, 2000, 16),
        ({"status": "interrupted", "metadata": HELD_CALL}, {"message": 2}, 1, 10),  # inside of a call
        ({"status": "interrupted", "metadata": HELD_CALL}, {"message": 4}, 4, 4),
        ({"status": "interrupted", "metadata": HELD_CALL}, {"message": 2001}, 2000, 2002),
        ({"status": "running"}, {}, 2000, 16),
        ({"status": "running"}, {"message": 1}, 1, 9),
        ({"status": "running"}, {"message": 5}, 5, 13),
        ({"status": "running"}, {"message": 2002}, 2000, 2002),
    ],
)
async def test_a_fork_of_a_session_that_runs_or_waits_reads_no_more_than_its_point_needs(
    changes: dict[str, Any], point: dict[str, Any], at: int, most: int, store: DurableStore
) -> None:
    history = [message for number in range(500) for message in turn(number)]
    await stored(store, [*history, *turn(500)[:2]], 500)
    await store.update("source", turn_count=500 + (changes["status"] == "interrupted"), **changes)
    counting = Reads(store)
    place = await fork_place(counting, await store.get("source"), **point)  # type: ignore[arg-type]  # it is a store
    assert (place.at, place.turns, counting.messages <= most) == (at, -(-at // 4), True), counting.messages


async def test_the_fork_of_a_workflows_run_keeps_its_first_message(store: DurableStore) -> None:
    await stored(store, [{"role": "user", "content": "Run work with {}"}], 0)
    await store.update("source", status="running", metadata={"flow": {"name": "work"}})
    assert (await fork_stored(store, await store.get("source"), message=1)).fork_at == 1


async def test_a_running_turn_is_forked_at_its_last_result_and_an_answered_prompt_where_one_says_so(
    store: DurableStore,
) -> None:
    steered = {"role": "user", "content": "and shorter"}
    await stored(store, [*turn(1), *turn(2)[:3], steered, turn(3)[1]], 1)
    await store.update("source", status="running")
    source = await store.get("source")
    places = [await fork_place(store, source, **point) for point in ({}, {"message": 8}, {"message": 1})]
    assert [(place.at, place.turns, place.left_out) for place in places] == [(7, 2, 2), (7, 2, 1), (1, 1, 0)]
    kept = await fork_place(store, source, orphans="complete")
    assert (kept.at, len(kept.added)) == (9, 1)


@pytest.mark.parametrize("calls", [1, 40, 200])
async def test_a_running_turn_is_forked_at_its_last_settled_message(calls: int, store: DurableStore) -> None:
    ids = [f"open-{number}" for number in range(calls)]
    asked = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": each, "tool": "t", "arguments": {}} for each in ids],
    }
    results = [{"role": "tool", "tool_call_id": each, "content": "r"} for each in ids[:-1]]
    history = [message for number in range(50) for message in turn(number)]
    source = await stored(store, [*history, {"role": "user", "content": "more"}, asked, *results], 50)
    fork = await fork_stored(store, source)
    assert fork.fork_at == len(history) + 1
    assert (await store.read(fork.session_id))[-1] == {"role": "user", "content": "more"}


async def test_an_empty_session_is_forked_too(store: DurableStore) -> None:
    await store.create(SessionRecord("source"))
    fork = await fork_stored(store, await store.get("source"))
    assert (fork.fork_at, await store.read(fork.session_id)) == (0, [])


async def test_a_fork_of_a_fork_and_its_source_go_their_own_ways(store: DurableStore) -> None:
    source = await stored(store, turn(1), 1)
    first = await fork_stored(store, source)
    second = await fork_stored(store, first)
    await store.append(second.session_id, turn(2), at=4)
    await store.append("source", turn(3), at=4)
    contents = [
        [message["content"] for message in await store.read(each) if message["role"] == "user"]
        for each in ("source", first.session_id, second.session_id)
    ]
    assert contents == [["question 1", "question 3"], ["question 1"], ["question 1", "question 2"]]


async def test_plugins_may_refuse_and_observe_a_fork(store: DurableStore, plugins: Plugins) -> None:
    seen: list[ForkRequest | ForkResult] = []

    class Watching:
        @hookimpl
        async def amplifier_before_fork(self, request: ForkRequest) -> None:
            if request.session_id.startswith("no"):
                raise ForkRefused(request.source_id, "not that one")
            seen.append(request)

        @hookimpl
        async def amplifier_after_fork(self, result: ForkResult) -> None:
            seen.append(result)

    plugins.register(Watching(), "watching")
    source = await stored(store, turn(1), 1)
    with pytest.raises(ForkRefused, match="not that one"):
        await fork_stored(store, source, name="no", plugins=plugins)
    assert len(await store.sessions()) == 1
    fork = await fork_stored(store, source, plugins=plugins)
    assert seen == [ForkRequest("source", fork.session_id, 4), ForkResult("source", fork.session_id, 4)]


async def in_flight(store: DurableStore) -> SessionRecord:
    """Store a turn, and a second one whose second call has no result."""
    calls: list[dict[str, Any]] = [{"id": each, "tool": each, "arguments": {}} for each in ("a", "b")]
    asked = {"role": "assistant", "content": "", "tool_calls": calls}
    return await stored(store, [*turn(1), {"role": "user", "content": "more"}, asked, result("a")], 2)


def result(call_id: str) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": "r"}


@pytest.mark.parametrize(("message", "at", "left_out"), [(1, 1, 0), (2, 1, 1), (3, 3, 0), (4, 4, 0), (7, 5, 2)])
async def test_a_fork_at_a_message_is_never_inside_a_call(
    message: int, at: int, left_out: int, store: DurableStore
) -> None:
    place = await fork_place(store, await in_flight(store), message=message)
    assert (place.at, place.left_out, place.added) == (at, left_out, ())


async def test_a_call_in_flight_is_completed_in_the_fork_alone(store: DurableStore) -> None:
    source = await in_flight(store)
    fork = await fork_stored(store, source, orphans="complete")
    assert (fork.fork_at, fork.message_count) == (7, 8)
    assert [each.get("tool_call_id") for each in await store.read(fork.session_id, 6)] == ["a", "b"]
    assert (await store.get("source")).message_count == 7


async def test_a_call_in_flight_is_refused_by_name_and_nothing_is_stored(store: DurableStore) -> None:
    source = await in_flight(store)
    with pytest.raises(SessionConflict, match=r"without a result at m6 \(b\)"):
        await fork_stored(store, source, orphans="error")
    assert len(await store.sessions()) == 1
    assert (await fork_stored(store, source, turn=1, orphans="error")).fork_at == 4


async def test_an_unknown_treatment_of_calls_in_flight_is_refused(store: DurableStore) -> None:
    source = await in_flight(store)
    wrong: Any = "completed"
    with pytest.raises(ValueError, match="^orphans: must be one of complete, remove, error, not 'completed'$"):
        await fork_stored(store, source, orphans=wrong)
    assert len(await store.sessions()) == 1


async def test_a_reminder_of_a_hook_is_no_turn_to_fork_at(store: DurableStore) -> None:
    reminder = {"role": "user", "content": [{"type": "text", "text": " <system-reminder>be brief</system-reminder>"}]}
    source = await stored(store, [*turn(1), reminder, *turn(2)], 2)
    assert (await fork_stored(store, source, turn=1)).fork_at == 5
    with pytest.raises(SessionError, match="Valid range: 1-2"):
        await fork_stored(store, source, turn=3)


async def test_what_a_provider_continues_by_stays_with_the_source(store: DurableStore) -> None:
    metadata = {
        "openai:response_id": "r",
        "previous_response_id": "p",
        "openai": {"conversation_id": "c"},
        "model": "m",
    }
    said: list[Message] = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "a", "metadata": metadata},
    ]
    await stored(store, said, 1)
    await store.update("source", metadata={"continuation": "x", "tags": ["t"]})
    fork = await fork_stored(store, await store.get("source"))
    assert fork.metadata == {"tags": ["t"], "inherited_turns": 1, "forked": True}
    own: Message = {"role": "assistant", "content": "b", "metadata": {"response_id": "mine"}}
    await store.append(fork.session_id, [own], at=2)
    messages = stored_transcript(store, await store.get(fork.session_id))
    assert [each.get("metadata") for each in messages] == [None, {"openai": {}, "model": "m"}, own["metadata"]]
    assert await store.read(fork.session_id) == [*said, own]
    assert list(stored_transcript(store, await store.get("source"))) == said


class Refuses:
    """Refuses every fork, and remembers for whom."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    @hookimpl
    async def amplifier_before_fork(self, request: ForkRequest) -> None:
        self.asked.append((request.source_id, request.at))
        raise ForkRefused(request.source_id, "not today")


async def test_every_place_that_shares_a_history_asks_before_it_forks(
    parent: AmplifierSession, make_bundle: Callable[..., PreparedBundle], store: DurableStore, tmp_path: Path
) -> None:
    refuses = Refuses()
    plugins = Plugins()
    plugins.register(refuses, "refuses")
    parent.plugins = plugins
    parent.transcript.extend([{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}])
    stored = await store.create(SessionRecord("stored", project=str(tmp_path), status="idle"))
    await store.append("stored", list(parent.transcript), at=0)
    stored = await store.get("stored")
    bundle = make_bundle()
    shares_all: Any = {"context_depth": "all", "context_scope": "full"}

    def spawned(**options: Any) -> Spawn:
        request = spawn_request(parent, bundle, "go", dict(parent.config), "made", None)
        return Spawn(bundle, request, parent, Transcript(parent.transcript), plugins=plugins, **options)

    for fork in (
        parent.fork(),
        fork_stored(store, stored, plugins=plugins),
        spawn_bundle(bundle, "go", parent, **shares_all),
        spawn_bundle(bundle, "go", parent, session_storage=store, **shares_all),
        prepare_spawn(spawned(store=store, shares="stored")),
    ):
        with pytest.raises(ForkRefused, match="not today"):
            await fork
    assert refuses.asked == [("parent-1", 2), ("stored", 2), ("parent-1", 2), ("parent-1", 2), ("stored", 2)]
    assert [record.session_id for record in await store.sessions()] == ["stored"]
    await spawn_bundle(bundle, "go", parent, context_depth="all")  # a conversation is copied without its calls
