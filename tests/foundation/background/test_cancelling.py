"""A person cancels the turn of a running session."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import SessionNotFound
from amplifier_foundation.background import cancelling
from amplifier_foundation.operations.acting import Actor, read_acts
from amplifier_foundation.operations.cancelling import NotRunning, cancel_turn
from amplifier_foundation.sessions.history import open_calls

from .stages import PATIENCE, until

if TYPE_CHECKING:
    from amplifier_core import Delivery

    from .stages import Stage

pytestmark = pytest.mark.slow

ANN = Actor("ann", "command line")


async def settled(stage: Stage) -> Delivery:
    """Return the only delivery when nobody handles it."""
    [up] = stage.control.running
    async with asyncio.timeout(PATIENCE):
        while any(row["running"] for row in up.manager.get_status().values()):
            await asyncio.sleep(0.005)
    [delivery] = await stage.store.deliveries()
    return delivery


@pytest.mark.parametrize("runner", [None, "subprocess"])
async def test_a_turn_that_waits_for_its_model_is_cut_and_not_tried_again(
    make_stage: Any, runner: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancelling, "GRACE", 0.1)
    async with make_stage(runner=runner) as stage:
        session_id = await stage.fire()
        async with aclosing(stage.follow(session_id)) as facts:
            await until(facts, "waiting")
            assert await cancel_turn(stage.store, ANN, session_id)
            await until(facts, "end")
        delivery = await settled(stage)
        assert (delivery.state, delivery.reason, delivery.attempts) == ("skipped", "cancelled by ann", 1)
        record = await stage.store.get(session_id)
        assert (record.status, record.error) == ("cancelled", "cancelled by ann")
        [event] = [each for each in await stage.store.events() if each.name == "session:error"]
        assert (event.data["session_id"], event.data["error"]) == (session_id, "cancelled by ann")
        [act] = await read_acts(stage.store, session_id)
        assert (act.data["act"], act.data["by"], act.data["queue"]) == ("session.cancel", "ann", "b/queue")
        with pytest.raises(NotRunning, match="nobody runs it"):
            await cancel_turn(stage.store, ANN, session_id)


async def test_a_running_tool_finishes_and_its_result_is_kept(make_stage: Any) -> None:
    async with make_stage() as stage:
        session_id = await stage.fire("wait")
        async with aclosing(stage.follow(session_id)) as facts:
            await until(facts, "waiting")
            while not (stage.folder / "waits").exists():
                await asyncio.sleep(0.005)
            cancelling_it = asyncio.ensure_future(cancel_turn(stage.store, ANN, session_id))
            await asyncio.sleep(0)
            (stage.folder / "waited").touch()
            assert await cancelling_it
        assert (await settled(stage)).state == "skipped"
        messages = await stage.store.read(session_id)
        assert not open_calls(messages)
        [result] = [each for each in messages if each["role"] == "tool"]
        assert "done" in str(result["content"])


async def test_a_tool_that_does_not_end_is_cut_and_recorded_as_interrupted(
    make_stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancelling, "GRACE", 0.1)
    async with make_stage() as stage:
        session_id = await stage.fire("wait")
        async with asyncio.timeout(PATIENCE):
            while not (stage.folder / "waits").exists():
                await asyncio.sleep(0.005)
        assert await cancel_turn(stage.store, ANN, session_id)
        assert (await settled(stage)).state == "skipped"
        messages = await stage.store.read(session_id)
        assert not open_calls(messages)
        [result] = [each for each in messages if each["role"] == "tool"]
        assert "interrupt" in str(result["content"]).lower() or "cancel" in str(result["content"]).lower()


async def test_the_children_of_a_cancelled_turn_end_too(make_stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancelling, "GRACE", 0.1)
    async with make_stage() as stage:
        session_id = await stage.fire("delegate")
        child_id = await stage.find_child(session_id)
        assert await cancel_turn(stage.store, ANN, session_id)
        assert (await settled(stage)).state == "skipped"
        assert not stage.feed.runs(child_id)
        assert (await stage.store.get(child_id)).status == "cancelled"


async def test_a_child_is_cancelled_alone_and_its_parent_goes_on(
    make_stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancelling, "GRACE", 0.1)
    async with make_stage() as stage:
        session_id = await stage.fire("delegate")
        child_id = await stage.find_child(session_id)
        assert await cancel_turn(stage.store, ANN, child_id)
        stage.let(0, 1, 2)
        assert (await settled(stage)).state == "done"
        assert (await stage.store.get(child_id)).status == "cancelled"
        assert (await stage.store.get(session_id)).status == "completed"


async def test_a_turn_is_cancelled_before_its_session_is_made(make_stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancelling, "GRACE", 0.1)
    async with make_stage(waits=True) as stage:
        session_id = await stage.fire(is_made=False)
        async with asyncio.timeout(PATIENCE):
            while not await stage.store.find(session_id):
                await asyncio.sleep(0.005)
        assert await cancel_turn(stage.store, ANN, session_id)
        assert (await settled(stage)).state == "skipped"


async def test_a_turn_that_ends_by_itself_meanwhile_is_done(make_stage: Any) -> None:
    async with make_stage() as stage:
        session_id = await stage.fire()
        [up] = stage.control.running
        running = up.manager.find_running(session_id)
        stage.let(0, 1, 2)
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait({running.task})
        assert not await cancelling.cancel_delivery(running, "ann")
        assert (await settled(stage)).state == "done"


async def test_a_session_that_is_not_stored_is_not_found(make_stage: Any) -> None:
    async with make_stage() as stage:
        with pytest.raises(SessionNotFound):
            await cancel_turn(stage.store, ANN, "nobody")
