"""The turns of running sessions, as other processes see them."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_foundation.background.live_feed import MOST_BYTES, MOST_FACTS, Listener
from amplifier_foundation.sessions.lock import running_owner

from .stages import PATIENCE, PIECES, said, until

if TYPE_CHECKING:
    from amplifier_core import AmplifierSession

pytestmark = pytest.mark.slow

DELTA = "llm:stream_block_delta"


@pytest.mark.parametrize("runner", [None, "subprocess"])
async def test_the_text_of_a_turn_comes_piece_by_piece_also_from_another_process(
    make_stage: Any, runner: str | None
) -> None:
    async with make_stage(runner=runner) as stage:
        session_id = await stage.fire()
        async with aclosing(stage.follow(session_id)) as facts:
            assert (await until(facts, "waiting"))[-1] == {"type": "waiting", "on": ""}
            for number, piece in enumerate(PIECES):
                stage.let(number)
                assert said(await until(facts, "text")) == piece
            rest = await until(facts, "end")
        assert {"type": "text", "text": "Hello world."} in rest
        [delivery] = await stage.store.deliveries()
        assert delivery.state == "done"
        assert (await stage.store.read(session_id))[-1]["content"] in (
            "Hello world.",
            [{"type": "text", "text": "Hello world."}],
        )


async def test_a_child_is_followed_by_its_own_id_and_its_parent_tells_of_it(make_stage: Any) -> None:
    async with make_stage() as stage:
        session_id = await stage.fire("delegate")
        child_id = await stage.find_child(session_id)
        async with aclosing(stage.follow(session_id)) as above, aclosing(stage.follow(child_id)) as below:
            assert (await until(above, "waiting"))[-1] == {"type": "waiting", "on": "delegate"}
            await until(below, "waiting")
            stage.let(0, 1, 2)
            assert said(await until(below, "end")) == "Hello world."
            told = await until(above, "end")
        [child] = [fact for fact in told if fact["type"] == "child"]
        assert (child["session_id"], child["parent_id"], child["status"]) == (child_id, session_id, "completed")
        assert [fact["name"] for fact in told if fact["type"] == "tool_result"] == ["delegate"]


async def test_who_comes_before_the_first_request_sees_all_of_a_turn(make_stage: Any) -> None:
    async with make_stage(waits=True) as stage:
        session_id = await stage.fire("delegate", is_made=False)
        facts = stage.follow(session_id)
        coming = asyncio.ensure_future(until(facts, "child"))
        async with asyncio.timeout(PATIENCE):
            while not stage.feed.is_heard(session_id):
                await asyncio.sleep(0.005)
        assert not stage.feed.runs(session_id)
        (stage.folder / "mounted").touch()
        told = await coming
        stage.let(0, 1, 2)
        told += await until(facts, "end")
    kinds = [fact["type"] for fact in told if fact["type"] not in ("text", "usage")]
    assert kinds == ["session", "waiting", "tool", "child", "child", "tool_result", "waiting", "end"]
    started, ended = (fact for fact in told if fact["type"] == "child")
    assert (started["name"], started["status"]) == ("helper", "running")
    assert (ended["name"], ended["status"]) == ("helper", "completed")


async def test_a_session_that_nobody_runs_has_ended(make_stage: Any) -> None:
    async with make_stage() as stage:
        assert [fact async for fact in stage.follow("nobody")] == [{"type": "end"}]
    assert [fact async for fact in stage.follow("nobody")] == [{"type": "end"}]


async def test_a_secret_in_pieces_is_hidden_also_its_rest_for_who_comes_late(
    make_stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "hunter2-and-more-0815"
    monkeypatch.setenv("TESTS_API_KEY", secret)
    filler = "x" * 200
    async with make_stage(
        ["It is hunter2-and", "-more-0815, " + filler, f" {secret[:5]}", f"{secret[5:]} again."]
    ) as stage:
        session_id = await stage.fire()
        async with aclosing(stage.follow(session_id)) as first:
            await until(first, "waiting")
            stage.let(0)
            await until(first, "text")
        async with asyncio.timeout(PATIENCE):
            while stage.feed.is_heard(session_id):
                await asyncio.sleep(0.005)
        async with aclosing(stage.follow(session_id)) as facts:
            await until(facts, "waiting")
            stage.let(1, 2, 3)
            told = await until(facts, "end")
    text = json.dumps(told)
    assert "-more" not in text
    assert "[REDACTED] again." in said(told)
    assert "It is [REDACTED], x" in text


async def test_a_hundred_readers_share_one_reporter_and_leave_nothing_behind(make_stage: Any) -> None:
    async with make_stage() as stage:
        session_id = await stage.fire()
        before = len(asyncio.all_tasks())
        followers = [stage.follow(session_id) for _ in range(100)]
        for each in followers:
            await until(each, "waiting")
        hooks = stage.feed._sessions[session_id].session.coordinator.hooks
        assert hooks.list_handlers(DELTA)[DELTA].count("run-watch") == 1
        for each in followers[1:]:
            await each.aclose()
        stage.let(0)
        assert said(await until(followers[0], "text")) == "Hello "
        await followers[0].aclose()
        async with asyncio.timeout(PATIENCE):
            while stage.feed.is_heard(session_id) or "run-watch" in hooks.list_handlers(DELTA)[DELTA]:
                await asyncio.sleep(0.005)
            while len(asyncio.all_tasks()) > before:
                await asyncio.sleep(0.005)
        stage.let(1, 2)


async def test_a_reader_that_does_not_read_delays_nobody(make_stage: Any) -> None:
    async with make_stage(["a" * 20_000] * 400) as stage:
        session_id = await stage.fire()
        owner = running_owner() or {}
        reader, writer = await asyncio.open_unix_connection(owner["socket"], limit=2**20)
        writer.write(json.dumps({"operation": "follow", "session_id": session_id}).encode() + b"\n")
        await reader.readline()
        async with aclosing(stage.follow(session_id)) as facts:
            await until(facts, "waiting")
            stage.let(*range(400))
            await until(facts, "end")
        told = [json.loads(line) async for line in reader]
        writer.close()
        kinds = {fact["type"] for fact in told}
        assert {"lagged", "text", "end"} <= kinds
        assert len(said(told)) < 8_000_000
        assert any(fact["type"] == "text" and not fact.get("partial") for fact in told)


async def test_the_oldest_partial_text_goes_first_and_then_the_oldest_facts() -> None:
    listener = Listener()
    for number in range(MOST_FACTS):
        listener.put(f"p{number}" if number % 2 else f"f{number}", is_partial=bool(number % 2))
    listener.put("last", is_partial=True)
    lines, is_over = await listener.take()
    assert (json.loads(lines[0]), is_over) == ({"type": "lagged", "lost": MOST_FACTS // 2 + 1}, False)
    assert lines[1:] == [f"f{number}" for number in range(0, MOST_FACTS, 2)]
    for _ in range(3):
        listener.put("x" * (MOST_BYTES // 2 - 1), is_partial=False)
    listener.end()
    lines, is_over = await listener.take()
    assert (json.loads(lines[0]), len(lines), is_over) == ({"type": "lagged", "lost": 2}, 2, True)


async def test_the_end_of_up_ends_who_follows(make_stage: Any) -> None:
    async with make_stage() as stage:
        facts = stage.follow(await stage.fire())
        await until(facts, "waiting")
        [up] = stage.control.running
        up.manager.interrupt()
    assert (await until(facts, "end"))[-1] == {"type": "end"}


async def test_a_session_that_nobody_hears_has_no_handlers_of_the_feed(make_stage: Any) -> None:
    async with make_stage() as stage:
        session_id = await stage.fire()
        session: AmplifierSession = stage.feed._sessions[session_id].session
        assert not any("run-watch" in names for names in session.coordinator.hooks.list_handlers().values())
        stage.let(0, 1, 2)
