"""A turn, and the cancellations of the task that it runs in."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Any

import pytest

from amplifier_core import AmplifierSession
from amplifier_core.errors import PluginError
from amplifier_foundation.cli.running.approving import Approvals
from amplifier_foundation.cli.running.stopping import Stops, TurnCut


@pytest.mark.parametrize("takes_back", [True, False])
async def test_a_cancellation_that_a_turn_takes_back_in_a_later_step_is_no_longer_its_own(takes_back: bool) -> None:
    nobody: Any = None  # Ctrl-C is not pressed
    goes_on = asyncio.Event()

    async def turn() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if not takes_back:
                raise
            task.uncancel()
        goes_on.set()
        await asyncio.Event().wait()

    watched = asyncio.create_task(Stops(nobody).watch(nobody, turn()))
    if takes_back:
        await goes_on.wait()
        watched.cancel()
    with pytest.raises(asyncio.CancelledError if takes_back else PluginError):
        await watched


async def test_a_second_press_that_finds_no_running_tool_names_nothing_as_cut_off(
    capsys: pytest.CaptureFixture[str],
) -> None:
    session = AmplifierSession({"session": {"orchestrator": "loop-basic", "context": "context-simple"}})
    stops = Stops(Approvals(None, nullcontext))

    async def turn() -> None:
        stops.press()  # both while a tool blocks the loop, which has ended when they are heard
        stops.press()
        await asyncio.sleep(0)
        while not stops.at_once:
            await asyncio.sleep(0)
        stops.press()
        await asyncio.Event().wait()

    with pytest.raises(TurnCut):
        await stops.watch(session, turn())
    assert capsys.readouterr().err.splitlines()[-1] == "stopping now"


async def test_a_reader_that_ends_with_the_same_press_cuts_nothing_off(capsys: pytest.CaptureFixture[str]) -> None:
    session = AmplifierSession({"session": {"orchestrator": "loop-basic", "context": "context-simple"}})
    stops = Stops(Approvals(None, nullcontext))

    async def turn() -> None:
        stops.press()  # `run | head`: both programs hear it
        stops.stop_unread()
        while not session.coordinator.cancellation.is_cancelled:
            await asyncio.sleep(0)

    await stops.watch(session, turn())
    assert not stops.at_once
    assert capsys.readouterr().err == "stopping after this step; Ctrl-C again stops now\n"
