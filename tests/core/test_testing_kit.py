"""The virtual clock, and the contract check on triggers that break it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from amplifier_core.clock import Clock
from amplifier_core.testing.clock import VirtualClock
from amplifier_core.testing.trigger_checks import check_trigger, check_trigger_kills
from amplifier_core.triggers import TriggerContext, TriggerEvent, TriggerSource, TriggerType

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping


async def sleeper(clock: VirtualClock, seconds: float, said: list[str]) -> None:
    await clock.sleep(seconds)
    said.append(f"{seconds} s: {clock.now():%H:%M:%S}")


async def test_sleepers_wake_in_the_order_of_their_deadlines_at_their_time() -> None:
    clock, said = VirtualClock(), list[str]()
    async with asyncio.TaskGroup() as tasks:
        for seconds in (30, 10, 20):
            tasks.create_task(sleeper(clock, seconds, said))
        await clock.advance(25)
        assert said == ["10 s: 00:00:10", "20 s: 00:00:20"]
        assert (clock.sleeping, clock.monotonic()) == (1, 25)
        await clock.advance(5)
    assert said[-1] == "30 s: 00:00:30"


async def test_a_task_that_sleeps_again_is_woken_again_within_one_advance() -> None:
    clock, said = VirtualClock(datetime(2026, 6, 1, tzinfo=UTC)), list[str]()

    async def beat() -> None:
        for _ in range(3):
            await sleeper(clock, 10, said)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(beat())
        await clock.advance(30)
    assert [line[-2:] for line in said] == ["10", "20", "30"]


async def test_a_cancelled_sleeper_is_forgotten() -> None:
    clock = VirtualClock()
    task = asyncio.create_task(clock.sleep(10))
    await clock.until_sleeping()
    task.cancel()
    await asyncio.wait((task,))
    assert clock.sleeping == 0
    await clock.advance(20)
    assert clock.monotonic() == 20


async def test_until_sleeping_waits_for_as_many_as_asked() -> None:
    clock = VirtualClock()
    waiting = asyncio.create_task(clock.until_sleeping(2))
    sleeping = [asyncio.create_task(clock.sleep(seconds)) for seconds in (1, 2)]
    await asyncio.wait_for(waiting, 60)
    await clock.advance(2)
    assert all(task.done() for task in sleeping)


async def test_time_neither_waits_for_nothing_nor_goes_back() -> None:
    clock = VirtualClock()
    assert isinstance(clock, Clock)
    await asyncio.wait_for(clock.sleep(0), 5)
    with pytest.raises(ValueError, match="time does not go back"):
        await clock.advance(-1)


_kept: list[asyncio.Task[Any]] = []
"""Tasks that a trigger left."""


@pytest.fixture(autouse=True)
async def _end_what_triggers_left() -> AsyncIterator[None]:
    yield
    for task in _kept:
        task.cancel()
    _kept.clear()


@dataclass
class Counter:
    """A trigger that keeps the contract: one event whenever the clock ticks."""

    clock: VirtualClock

    def __post_init__(self) -> None:
        self.state: Mapping[str, Any] = {}
        self.stopped = asyncio.Event()

    def bind(self, context: TriggerContext) -> None:
        self.state = context.state

    def configure(self, config: Mapping[str, Any]) -> None:
        if config:
            raise ValueError(f"unknown key {next(iter(config))!r}")

    async def watch(self) -> AsyncIterator[TriggerEvent]:
        count = self.state.get("count", 0)
        while not self.stopped.is_set():
            await self.pause()
            if not self.stopped.is_set():
                count += 1
                yield self.event(count)

    async def pause(self) -> None:
        waits = [asyncio.create_task(self.clock.sleep(1)), asyncio.create_task(self.stopped.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def event(self, count: int) -> TriggerEvent:
        return TriggerEvent(TriggerType.CUSTOM, "counter", dedupe_key=str(count), state={"count": count})

    async def stop(self) -> None:
        self.stopped.set()


@dataclass
class WithoutStop:
    clock: VirtualClock

    def configure(self, config: Mapping[str, Any]) -> None:
        """Take nothing."""


class TakesAnything(Counter):
    def configure(self, config: Mapping[str, Any]) -> None:
        """Take a typing error for good."""


class CrashesAtConfiguration(Counter):
    def configure(self, config: Mapping[str, Any]) -> None:
        raise TypeError("unexpected keyword")


class LeavesItsSleep(Counter):
    async def pause(self) -> None:
        waits = [asyncio.create_task(self.clock.sleep(1)), asyncio.create_task(self.stopped.wait())]
        _kept.extend(waits)
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()


class IgnoresAnEarlyStop(Counter):
    async def watch(self) -> AsyncIterator[TriggerEvent]:
        self.stopped.clear()
        async for event in super().watch():
            yield event


class SwallowsCancellation(Counter):
    async def pause(self) -> None:
        while not self.stopped.is_set():
            try:
                return await super().pause()
            except asyncio.CancelledError:
                continue


class EndsWhenCancelled(Counter):
    async def pause(self) -> None:
        try:
            await super().pause()
        except asyncio.CancelledError:
            self.stopped.set()


class Forgetful(Counter):
    def bind(self, context: TriggerContext) -> None:
        """Forget the state."""


class Unstoppable(Counter):
    async def stop(self) -> None:
        """Let `watch` go on."""


class Anonymous(Counter):
    def event(self, count: int) -> TriggerEvent:
        return TriggerEvent(TriggerType.CUSTOM, "counter")


class NotJson(Counter):
    def event(self, count: int) -> TriggerEvent:
        return TriggerEvent(TriggerType.CUSTOM, "counter", data={"when": datetime.now(UTC)}, dedupe_key=str(count))


class WithoutZone(Counter):
    def event(self, count: int) -> TriggerEvent:
        timestamp = datetime(2026, 1, 1)  # noqa: DTZ001 - the fault under test
        return TriggerEvent(TriggerType.CUSTOM, "counter", timestamp=timestamp, dedupe_key=str(count))


class YieldsOther(Counter):
    def event(self, count: int) -> Any:
        return {"count": count}


class Coroutine(Counter):
    def watch(self) -> Any:
        return self.clock  # what no `async for` takes


class Disowning(Counter):
    def matches(self, event: TriggerEvent) -> str | None:
        return "it is not mine"


class Silent(Counter):
    async def pause(self) -> None:
        await self.stopped.wait()


class Failing(Counter):
    async def pause(self) -> None:
        raise OSError("the source is gone")


async def check(trigger: type[Any]) -> list[TriggerEvent]:
    clock = VirtualClock()
    return await check_trigger(lambda: trigger(clock), {}, provoke=lambda: clock.advance(1), patience=0.2)


class InChanges(Counter):
    """Stores a base by itself, and with its events only the changes since."""

    def bind(self, context: TriggerContext) -> None:
        super().bind(context)
        self.context = context

    async def watch(self) -> AsyncIterator[TriggerEvent]:
        if not self.state:
            await self.context.save_state({"base": 1, "gone": 2})
        await self.context.save_state({"gone": None}, merge=True)
        async for event in super().watch():
            yield event

    def event(self, count: int) -> TriggerEvent:
        assert count == 1 or self.state == {"base": 1, "count": 1}
        return TriggerEvent(TriggerType.CUSTOM, "counter", dedupe_key=str(count), state_changes={"count": count})


async def test_a_trigger_gets_the_changes_of_its_state_back() -> None:
    assert [event.dedupe_key for event in await check(InChanges)] == ["1", "2"]


async def test_a_trigger_that_keeps_the_contract_passes() -> None:
    assert isinstance(Counter(VirtualClock()), TriggerSource)
    assert [event.dedupe_key for event in await check(Counter)] == ["1", "2"]


@pytest.mark.parametrize(
    ("trigger", "rule"),
    [
        (WithoutStop, "must return an object with configure, watch and stop"),
        (TakesAnything, "must refuse a key it does not know"),
        (CrashesAtConfiguration, "must refuse with TriggerConfigError, not TypeError"),
        (Forgetful, "must not repeat a stored event"),
        (Unstoppable, "must end promptly after stop"),
        (Anonymous, "must have a dedupe_key"),
        (NotJson, "data must be JSON"),
        (WithoutZone, "must know its time zone"),
        (YieldsOther, "must yield TriggerEvent, not dict"),
        (Coroutine, "must return an async iterator"),
        (Disowning, "matches must return None for an event of its own watch"),
        (Silent, "must yield an event when it is provoked"),
        (IgnoresAnEarlyStop, r"must end at once when stop\(\) came before it"),
        (SwallowsCancellation, "must end promptly when it is cancelled: catch Exception"),
        (EndsWhenCancelled, "must let CancelledError pass; it ended as if nothing had happened"),
        (LeavesItsSleep, "must leave no task running; it left VirtualClock.sleep"),
    ],
)
async def test_a_broken_rule_is_named(trigger: type[Any], rule: str) -> None:
    with pytest.raises(AssertionError, match=rule):
        await check(trigger)


async def check_kills(trigger: type[Any]) -> None:
    clock = VirtualClock()
    await check_trigger_kills(lambda: trigger(clock), {}, provoke=lambda: clock.advance(1), patience=0.2)


class Durable(Counter):
    """Counts the ticks of a clock that goes on while nothing runs."""

    async def watch(self) -> AsyncIterator[TriggerEvent]:
        seen = self.state.get("count", 0)
        while not self.stopped.is_set():
            while seen < int(self.clock.monotonic()):
                seen += 1
                yield self.event(seen)
            await self.pause()


class FromNow(Durable):
    async def watch(self) -> AsyncIterator[TriggerEvent]:
        self.state = {"count": int(self.clock.monotonic())}
        async for event in super().watch():
            yield event


class NewKeys(Durable):
    def event(self, count: int) -> TriggerEvent:
        return TriggerEvent(TriggerType.CUSTOM, "counter", dedupe_key=uuid4().hex, state={"count": count})


class KeepsNoPosition(Durable):
    def event(self, count: int) -> TriggerEvent:
        return TriggerEvent(TriggerType.CUSTOM, "counter", dedupe_key=str(count))


async def test_a_trigger_with_its_position_in_its_state_survives_kills() -> None:
    await check_kills(Durable)


@pytest.mark.parametrize(
    ("trigger", "rule"),
    [
        (FromNow, "not stored before a kill must come again, .*: the position belongs into the event's state"),
        (NewKeys, "with the same dedupe_key; it was"),
        (KeepsNoPosition, "a stored event must not come again after a kill: read the position from context.state"),
    ],
)
async def test_a_trigger_that_loses_or_repeats_events_over_kills_is_told(trigger: type[Any], rule: str) -> None:
    with pytest.raises(AssertionError, match=rule):
        await check_kills(trigger)


async def test_what_a_trigger_raises_is_not_hidden() -> None:
    with pytest.raises(OSError, match="the source is gone"):
        await check(Failing)
