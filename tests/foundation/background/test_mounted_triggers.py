"""Triggers that are modules: they mount themselves, as `mount(coordinator, config)`, and know nothing of plugins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import UnknownName
from amplifier_core.errors import TriggerConfigError
from amplifier_foundation.background import trigger_making

COUNTS = """
import asyncio
from datetime import UTC, datetime
from amplifier_core import TriggerEvent, TriggerType

class CountTrigger:
    def __init__(self):
        self.stopped = asyncio.Event()
    def configure(self, config):
        self.numbers = range(int(config["count"]))
    async def watch(self):
        for n in self.numbers:
            yield TriggerEvent(type=TriggerType.CUSTOM, source="count", timestamp=datetime.now(UTC), data={"n": n})
        await self.stopped.wait()
    async def stop(self):
        self.stopped.set()

async def mount(coordinator, config=None):
    trigger = CountTrigger()
    if config:
        trigger.configure(config)
    await coordinator.mount("trigger", trigger)
"""
FOLLOWS = """
from amplifier_core import TriggerEvent, TriggerType

class FollowTrigger:
    async def watch(self):
        async for event in self.router.subscribe(self.names):
            yield TriggerEvent(type=TriggerType.SESSION_EVENT, source="follow", data=event.data, event_name=event.name)
    async def stop(self):
        pass

async def mount(coordinator, config=None):
    trigger = FollowTrigger()
    trigger.names = config["event_names"]
    trigger.router = coordinator.get_capability("event_router")
    await coordinator.mount("trigger", trigger)
"""
HANGS = "import asyncio\n\nasync def mount(coordinator, config=None):\n    await asyncio.Event().wait()\n"
NONE = "async def mount(coordinator, config=None):\n    pass\n"


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, code in (("count", COUNTS), ("follow", FOLLOWS), ("none", NONE), ("hangs", HANGS)):
        package = tmp_path / "modules" / f"amplifier-module-trigger-{name}" / f"amplifier_module_trigger_{name}"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(code, encoding="utf-8")
    monkeypatch.setenv("AMPLIFIER_MODULES", str(tmp_path / "modules"))


async def test_a_trigger_that_a_module_mounts_wakes_sessions(open_bench: Callable[..., Any]) -> None:
    async with open_bench() as bench:
        await bench.start(triggers=[{"module": "trigger-count", "config": {"count": 3}}])
        await bench.until("completed", count=3)
        assert await bench.numbers() == [0, 1, 2]


async def test_it_finds_the_events_of_sessions_by_a_capability(open_bench: Callable[..., Any]) -> None:
    async with open_bench() as bench:
        await bench.start(triggers=[{"module": "trigger-follow", "config": {"event_names": ["work:*"]}}])
        await bench.holds(lambda: bench.router.subscriber_count == 1)
        await bench.router.emit("other", {"n": 1})
        await bench.router.emit("work:done", {"n": 2})
        await bench.until("completed")
        assert await bench.numbers() == [2]


async def test_what_it_says_of_its_configuration_is_told_as_any_triggers(open_bench: Callable[..., Any]) -> None:
    async with open_bench() as bench:
        with pytest.raises(TriggerConfigError, match="trigger-count: ValueError: invalid literal"):
            await bench.start(triggers=[{"module": "trigger-count", "config": {"count": "many"}}])
        with pytest.raises(TriggerConfigError, match="trigger-none: the module mounts 0 triggers, not one"):
            await bench.start(triggers=[{"module": "trigger-none"}])
        with pytest.raises(UnknownName, match="unknown trigger 'trigger-nowhere'"):
            await bench.start(triggers=[{"module": "trigger-nowhere"}])


async def test_a_mount_that_does_not_end_is_told_and_stops_no_other(
    open_bench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trigger_making, "MOUNT_TIME_LIMIT", 0.01)
    async with open_bench() as bench:
        count = {"module": "trigger-count", "config": {"count": 1}}
        await bench.start(triggers=[{"module": "trigger-hangs"}, count])
        await bench.until("completed")
        await bench.holds(lambda: "its mount took longer" in next(iter(bench.manager.get_status().values()))["reason"])
