"""The foreman's pools: issues with instant models beside plain deliveries, and the share of a pool's time in turns."""

from __future__ import annotations

import asyncio
from math import ceil
from time import perf_counter
from typing import TYPE_CHECKING

from amplifier_foundation.sessions.documents import documents_of
from amplifier_tool_issue import Tracker

from .background import POOL_AT_MOST, TURN, Ground, open_ground
from .measure import Row, in_turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ISSUES, WORKERS = 50, 3
ISSUE_AT_MOST = 6.0  # times a delivery without an issue: filing, beginning and closing it are commits of their own
TURNS = 30


async def _issues() -> AsyncIterator[Row]:
    """Work issues beside plain deliveries."""
    async with open_ground() as ground:
        await _start_pool(ground, None)
        await ground.queue("plain", None, pool=WORKERS)

        async def issues() -> float:
            return await _work(ground, ISSUES)

        async def deliveries() -> float:
            return await ground.deliver("plain", ISSUES)

        ours, limit = await in_turns(issues, deliveries, rounds=7)
    what = f"{ISSUES} issues filed, worked and closed by {WORKERS} workers / deliveries without issues"
    yield Row(what, ours, limit, at_most_ratio=ISSUE_AT_MOST)


async def _pool() -> AsyncIterator[Row]:
    """Work issues that take as long as a model would."""
    async with open_ground() as ground:
        await _start_pool(ground, "runner-waiting")
        ideal = ceil(TURNS / WORKERS) * TURN
        what = f"{TURNS} issues of {TURN * 1000:.0f} ms, {WORKERS} workers / the ideal"
        yield Row(what, await _work(ground, TURNS), ideal, at_most_ratio=POOL_AT_MOST)


async def _start_pool(ground: Ground, runner: str | None) -> None:
    triggers = [{"module": "trigger-issue"}]
    await ground.queue("issues", runner, pool=WORKERS, tracker="issue", triggers=triggers, instruction="Work.")


async def _work(ground: Ground, count: int) -> float:
    """File so many issues, and return the seconds until the last of them is closed."""
    ground.seen.clear()
    tracker = Tracker(
        documents_of(ground.store, ground.manager._project, publish=ground.manager._engine.router.publish)
    )
    began = perf_counter()
    for number in range(count):
        await tracker.create(f"issue {number}")
    while sum(each[:2] == ("completed", "issues") for each in ground.seen) < count:
        await asyncio.sleep(0.002)
    assert not await tracker.find(status=["open", "in_progress"])
    return max(at for kind, name, at in ground.seen if (kind, name) == ("completed", "issues")) - began


PARTS = (_issues, _pool)
