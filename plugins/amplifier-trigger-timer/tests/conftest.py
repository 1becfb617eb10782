"""Make timers on a clock that only a test moves, and sets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from amplifier_core.testing.clock import VirtualClock
from amplifier_core.triggers import TriggerContext, TriggerEvent
from amplifier_trigger_timer import TimerTrigger


class WallClock(VirtualClock):
    """A clock with a time on the wall that a test may set; sleepers sleep on."""

    def set_by(self, seconds: float) -> None:
        self._start += timedelta(seconds=seconds)


def timer(
    clock: VirtualClock, state: Mapping[str, Any] | None = None, *, name: str = "tests/timer#0", **config: Any
) -> TimerTrigger:
    trigger = TimerTrigger()
    trigger.bind(TriggerContext(name, clock=clock, state=state or {}))
    trigger.configure(config)
    return trigger


@asynccontextmanager
async def running(trigger: TimerTrigger) -> AsyncIterator[list[TriggerEvent]]:
    """Consume the trigger into a list while the block runs."""
    events: list[TriggerEvent] = []

    async def consume() -> None:
        async for event in trigger.watch():
            events.append(event)

    task = asyncio.create_task(consume())
    await trigger.ready()
    yield events
    await trigger.stop()
    await asyncio.wait_for(task, 60)


def scheduled(events: list[TriggerEvent]) -> list[str]:
    return [event.data["scheduled"][11:] for event in events]
