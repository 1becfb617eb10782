"""A plugin or trigger that blocks the serving loop: it is named at once, and in the log of events afterwards."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, cast

import pytest

from amplifier_core.storage import DurableStore
from amplifier_foundation.background.log_events import BACKGROUND_STALLED
from amplifier_foundation.background.stalling import reporting_stalls
from amplifier_foundation.operations.history import read_change
from amplifier_foundation.spawning.stalls import StallWatch

from .bench import PATIENCE, FedTrigger

if TYPE_CHECKING:
    from amplifier_foundation.background.up import Up

OpenBench = Callable[..., Any]


def block_until_said(caplog: pytest.LogCaptureFixture, text: str) -> None:
    ends = time.monotonic() + PATIENCE
    while text not in caplog.text and time.monotonic() < ends:
        time.sleep(0.01)


async def test_a_trigger_that_blocks_is_named_with_the_remedy(
    open_bench: OpenBench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def watch(self: FedTrigger) -> AsyncIterator[Any]:
        block_until_said(caplog, "nothing is served")
        await self.queue.get()
        return
        yield

    async with open_bench() as bench:
        with StallWatch() as stalls, reporting_stalls(stalls, [cast("Up", bench)]):
            monkeypatch.setattr(FedTrigger, "watch", watch)
            await bench.start()
            await bench.holds(lambda: "nothing is served" in caplog.text)
    assert (
        "nothing is served: trigger family/queue/trigger-fed#1 has blocked for 1 s in block_until_said (" in caplog.text
    )
    assert caplog.text.count("await asyncio.to_thread") == 1


async def test_a_blocked_serving_loop_is_reported_while_it_is_blocked_and_logged_afterwards(
    open_bench: OpenBench, store: DurableStore, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_bench() as bench:
        await bench.start()
        with StallWatch() as watch, reporting_stalls(watch, [cast("Up", bench)]):
            block_until_said(caplog, "nothing is served: a plugin or trigger has blocked for 1 s in block_until_said (")
            await bench.holds(lambda: "stalled" in bench.kinds())
    [event] = [each for each in await store.events() if each.name == BACKGROUND_STALLED]
    entry = read_change(event)
    assert entry is not None
    assert (entry.kind, entry.bundle, entry.background_session) == ("stalled", "family", "")
    assert caplog.text.count("nothing is served") == 1
    assert entry.text in caplog.text
