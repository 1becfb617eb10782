"""In a program whose tasks begin at once, background sessions work as in any other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from amplifier_core.testing import MemoryStore

OpenBench = Callable[..., Any]

pytestmark = pytest.mark.usefixtures("eager_tasks")


async def test_each_event_is_handled(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        await bench.start()
        for n in range(3):
            bench.trigger.feed(n)
        await bench.until("completed", count=3)
        assert {each.state for each in await bench.deliveries()} == {"done"}
        assert bench.statuses() == {"queue": "running"}


async def test_a_store_that_waits_for_nothing_serves_them(open_bench: OpenBench) -> None:
    async with open_bench(MemoryStore()) as bench:
        await bench.start()
        bench.trigger.feed(1)
        await bench.until("completed")


async def test_one_that_fails_is_tried_again(open_bench: OpenBench, flaky: Any) -> None:
    async with open_bench(providers=flaky({"kind": "RuntimeError"}, "fine")) as bench:
        await bench.start()
        bench.trigger.feed(1)
        await bench.until("retried")
        await bench.until("completed", step=1.0)
