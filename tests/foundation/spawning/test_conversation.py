"""A stored session that a person talks to."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from amplifier_core import AmplifierSession, HookResult
from amplifier_core.errors import SessionConflict
from amplifier_core.plugins import Plugins
from amplifier_core.storage import DurableStore, SessionRecord
from amplifier_foundation import PreparedBundle, converse, open_inbox
from amplifier_foundation.paths import data_home
from amplifier_foundation.sessions.costs import Spent, format_duration, spent_of
from amplifier_foundation.sessions.history import text_of
from amplifier_foundation.sessions.lock import holder_of
from amplifier_foundation.sessions.usage import Usage
from amplifier_foundation.spawning.conversation import open_conversation
from tests.foundation.shelf import Shelf

PLAYBOOK = {
    "module": "provider-playbook",
    "config": {"rules": [{"when": {"user": "^fail"}, "say": "{nothing}"}], "otherwise": {"say": "You said: {prompt}"}},
}


async def test_a_session_that_somebody_fails_to_watch_is_ended_and_kept_as_failed(
    make_bundle: Callable[..., PreparedBundle], store: DurableStore, plugins: Plugins, tmp_path: Path
) -> None:
    watched: list[AmplifierSession] = []

    def fail(session: AmplifierSession) -> None:
        watched.append(session)
        raise LookupError("nowhere to show it")

    bundle = make_bundle("shown").bundle
    with pytest.raises(LookupError, match="nowhere to show it"):
        await converse(bundle, "hello", store, plugins, working_dir=tmp_path, observe=fail)
    [session] = watched
    assert session.ended_at is not None
    record = await store.get(session.session_id)
    assert (record.status, record.error) == ("failed", "LookupError: nowhere to show it")


async def test_a_small_storage_is_enough_for_a_conversation(
    make_bundle: Callable[..., PreparedBundle], plugins: Plugins, tmp_path: Path
) -> None:
    bundle, shelf = make_bundle("talk", providers=[PLAYBOOK]).bundle, Shelf()
    first = await converse(bundle, "one", shelf, plugins, working_dir=tmp_path)
    second = await converse(bundle, "two", shelf, plugins, resume=SessionRecord(first.session_id))
    assert (second.session_id, second.output, second.turn_count) == (first.session_id, "You said: two", 2)
    transcript, metadata = shelf.load(first.session_id)
    assert [text_of(message) for message in transcript] == ["one", "You said: one", "two", "You said: two"]
    assert (metadata["status"], metadata["turn_count"]) == ("completed", 2)


async def test_what_all_turns_took_is_kept_also_of_those_that_failed(
    make_bundle: Callable[..., PreparedBundle], store: DurableStore, plugins: Plugins, tmp_path: Path
) -> None:
    bundle = make_bundle("talk", providers=[PLAYBOOK])
    async with open_conversation(bundle, store, plugins, working_dir=tmp_path) as conversation:
        assert await conversation.read_record() is None
        turn = await conversation.say("one")
        with pytest.raises(Exception, match="nothing"):
            await conversation.say("fail")
        assert conversation.usage.requests == 1
        failed = await store.get(turn.session_id)
    assert (failed.status, failed.turn_count) == ("failed", 2)
    async with open_conversation(bundle, store, plugins, resume=failed) as conversation:
        assert await conversation.is_cut()
        assert (conversation.total.requests, conversation.usage.requests) == (1, 0)
        await conversation.say("three")
        assert not await conversation.is_cut()
        assert (conversation.total.requests, conversation.usage.requests) == (2, 1)
    record = await store.get(turn.session_id)
    assert (record.status, record.error, record.turn_count) == ("completed", None, 3)
    assert spent_of(record).usage == conversation.total
    assert (spent_of(record).duration or 0) > (spent_of(failed).duration or 0) > 0


async def test_a_prompt_that_is_no_text_leaves_nothing_in_a_session(
    make_bundle: Callable[..., PreparedBundle], store: DurableStore, plugins: Plugins
) -> None:
    bundle, none = make_bundle("talk", providers=[PLAYBOOK]).bundle, cast("str", None)
    with pytest.raises(TypeError, match="prompt: must be text, not NoneType"):
        await converse(bundle, none, store, plugins)
    assert await store.sessions() == []
    first = await store.get((await converse(bundle, "one", store, plugins)).session_id)
    with pytest.raises(TypeError, match="prompt: must be text, not NoneType"):
        await converse(bundle, none, store, plugins, resume=first)
    assert await store.get(first.session_id) == first
    assert (await converse(bundle, "two", store, plugins, resume=first)).output == "You said: two"


async def test_an_id_is_no_record_and_nothing_is_no_store(
    make_bundle: Callable[..., PreparedBundle], store: DurableStore, plugins: Plugins
) -> None:
    bundle, wrong = make_bundle("talk", providers=[PLAYBOOK]).bundle, cast("Any", None)
    with pytest.raises(TypeError, match=r"resume: give the record of a session, not its id: SessionRecord\('s'\)"):
        await converse(bundle, "one", store, plugins, resume=cast("Any", "s"))
    with pytest.raises(TypeError, match="NoneType is no storage"):
        await converse(bundle, "one", wrong, plugins)


@pytest.mark.parametrize(("write", "status"), [("create", "interrupted"), ("update", "completed")])
async def test_a_session_of_a_cancelled_turn_is_not_left_running(
    write: str,
    status: str,
    make_bundle: Callable[..., PreparedBundle],
    store: DurableStore,
    plugins: Plugins,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored = getattr(store, write)

    async def cut(*args: Any, **kwargs: Any) -> Any:
        written = await stored(*args, **kwargs) if write == "create" else None
        talking.cancel()
        await asyncio.sleep(0)
        return written or await stored(*args, **kwargs)

    monkeypatch.setattr(store, write, cut)
    bundle = make_bundle("talk", providers=[PLAYBOOK]).bundle
    talking = asyncio.ensure_future(converse(bundle, "hello", store, plugins))
    with pytest.raises(asyncio.CancelledError):
        await talking
    assert [record.status for record in await store.sessions()] == [status]


@pytest.mark.parametrize(
    ("slow", "cut_in_turn", "status"),
    [("create", False, "interrupted"), ("update", False, "completed"), ("update", True, "interrupted")],
)
async def test_a_cancelled_turn_does_not_wait_for_a_store_that_hangs_and_is_not_left_running(
    slow: str,
    cut_in_turn: bool,
    status: str,
    make_bundle: Callable[..., PreparedBundle],
    store: DurableStore,
    plugins: Plugins,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create, update = store.create, store.update
    reached, released, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow_create(record: SessionRecord) -> SessionRecord:
        if slow == "create":
            reached.set()
            await released.wait()
        return await create(record)

    async def slow_update(session_id: str, **changes: Any) -> None:
        if slow == "update" and "status" in changes:
            reached.set()
            await released.wait()
        await update(session_id, **changes)
        if "status" in changes:
            ended.set()

    def cut(session: AmplifierSession) -> None:
        if cut_in_turn:
            talking.cancel()

    monkeypatch.setattr(store, "create", slow_create)
    monkeypatch.setattr(store, "update", slow_update)
    monkeypatch.setattr("amplifier_foundation.spawning.conversation.GRACE", 0)
    bundle = make_bundle("talk", providers=[PLAYBOOK]).bundle
    talking = asyncio.ensure_future(converse(bundle, "hello", store, plugins, observe=cut))
    await reached.wait()
    if not cut_in_turn:
        talking.cancel()
    await asyncio.wait({talking}, timeout=20)
    assert talking.cancelled()
    assert [record.status for record in await store.sessions()] == ([] if slow == "create" else ["running"])
    [held] = (data_home() / "locks" / "sessions").iterdir()  # nobody else's turn comes before this write
    with pytest.raises(SessionConflict, match="talks in session"):
        await converse(bundle, "hello", store, plugins, resume=SessionRecord(held.name))
    released.set()
    await ended.wait()
    assert [record.status for record in await store.sessions()] == [status]
    while holder_of(held.name) is not None:
        await asyncio.sleep(0)


@pytest.mark.parametrize("event", ["prompt:submit", "provider:request"])
async def test_a_program_can_tell_a_turn_that_a_hook_denied(
    event: str, make_bundle: Callable[..., PreparedBundle], store: DurableStore, plugins: Plugins
) -> None:
    async def deny(event: str, data: dict[str, Any]) -> HookResult:
        return HookResult(action="deny", reason="rate limit")

    def watch(session: AmplifierSession) -> None:
        session.coordinator.hooks.register(event, deny, name="rate")

    turn = await converse(make_bundle("talk", providers=[PLAYBOOK]).bundle, "one", store, plugins, observe=watch)
    assert (turn.status, turn.output, turn.stop_reason) == ("incomplete", "", "denied")
    assert "rate limit" in str(turn.error)


async def test_a_turn_that_anyio_cancels_is_stored_without_its_inner_names(
    make_bundle: Callable[..., PreparedBundle], store: DurableStore, plugins: Plugins
) -> None:
    bundle = make_bundle("talk", providers=[PLAYBOOK]).bundle
    with anyio.CancelScope() as scope:
        await converse(bundle, "hello", store, plugins, observe=lambda session: scope.cancel())
    [record] = await store.sessions()
    while record.status == "running":  # anyio cancels each wait, and the write goes on alone
        await asyncio.sleep(0)
        [record] = await store.sessions()
    assert (record.status, record.error) == ("interrupted", "CancelledError")


async def test_a_conversation_in_which_nothing_is_said_leaves_nothing_behind(
    make_bundle: Callable[..., PreparedBundle], store: DurableStore, plugins: Plugins, tmp_path: Path
) -> None:
    async with open_conversation(
        make_bundle("talk", providers=[PLAYBOOK]), store, plugins, working_dir=tmp_path
    ) as talk:
        assert not await talk.is_cut()
    assert await store.sessions() == []


@pytest.mark.parametrize("metadata", [{}, {"usage": "much", "duration": "long"}, {"usage": {}, "duration": -1}])
def test_what_a_record_says_and_cannot_be_is_left_out(metadata: dict[str, Any]) -> None:
    spent = spent_of(SessionRecord("s", metadata=metadata))
    assert spent == Spent(None, None)
    assert str(spent) == ""


def test_spans_and_costs_are_told_as_people_read_them() -> None:
    spans = [format_duration(seconds) for seconds in (0.042, 4.24, 9.96, 59.7, 200, 7500)]
    assert spans == ["0.04 s", "4.2 s", "10 s", "1 min 0 s", "3 min 20 s", "2 h 5 min"]
    costs = ["0", "0.0042", "1.5", "1234.5"]
    assert [str(Spent(Usage(cost_usd=Decimal(cost)))) for cost in costs] == ["$0", "$0.0042", "$1.50", "$1,234.50"]
    assert str(Spent(Usage(cost_usd=Decimal("1.5"), cost_is_partial=True), 3)) == "3.0 s, ≥ $1.50"


async def test_a_session_that_somebody_talks_in_is_refused_before_anything_is_asked(
    make_bundle: Callable[..., PreparedBundle], store: DurableStore, plugins: Plugins
) -> None:
    bundle = make_bundle("talk", providers=[PLAYBOOK])
    first = await converse(bundle.bundle, "one", store, plugins)
    record = await store.get(first.session_id)
    async with open_conversation(bundle, store, plugins, resume=record) as conversation:
        with pytest.raises(SessionConflict, match=f"amplifier run --fork {record.session_id}"):
            await converse(bundle.bundle, "two", store, plugins, resume=record)
        await conversation.say("three")
    await converse(bundle.bundle, "four", store, plugins, resume=record)  # as it was read before: it is read again
    said = [message["content"] for message in await store.read(record.session_id) if message["role"] == "user"]
    assert said == ["one", "three", "four"]


async def test_a_new_session_of_one_turn_takes_four_transactions(
    make_bundle: Callable[..., PreparedBundle], plugins: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    connect = sqlite3.connect

    def connect_and_listen(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*arguments, **options)
        connection.set_trace_callback(said.append)
        return connection

    monkeypatch.setattr(sqlite3, "connect", connect_and_listen)
    store = open_inbox(plugins, path=tmp_path / "traced.db")
    said.clear()
    turn = await converse(make_bundle("talk", providers=[PLAYBOOK]).bundle, "hello", store, plugins)
    assert [statement for statement in said if statement == "COMMIT"] == ["COMMIT"] * 4
    assert (await store.get(turn.session_id)).status == "completed"
    await store.close()
