"""A turn, and the cancellations of the task that it runs in."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from amplifier_core.errors import PluginError
from amplifier_foundation.cli.running.stopping import Stops


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
