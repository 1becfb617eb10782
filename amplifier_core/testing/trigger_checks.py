"""Check the contract of a trigger; its author runs the check.

    async def test_the_contract(tmp_path):
        await check_trigger(HeartbeatTrigger, {"every": 5}, provoke=lambda: clock.advance(5), context=context)

A broken rule raises `AssertionError` with a sentence about it. Nothing here needs a test runner.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from ..triggers import JudgingSource, ScheduledSource, TriggerContext, TriggerEvent, TriggerSource, Upcoming
from .memory_rows import merge_state
from .process_watch import watch_process

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

UNKNOWN_KEY = "no_such_key_anywhere"
CATCH = "catch Exception, never BaseException or CancelledError"


async def check_trigger(
    factory: Callable[[], TriggerSource],
    config: Mapping[str, Any],
    *,
    provoke: Callable[[], Awaitable[object] | None],
    context: TriggerContext | None = None,
    patience: float = 5.0,
) -> list[TriggerEvent]:
    """Run the trigger twice, as before and after a restart, and check its ends; return the events of both runs.

    `provoke` causes at least one new event at each call. `patience` is the most seconds for an event, and for the end
    after `stop`. Raises `AssertionError`.
    """
    stored = _Stored(context or TriggerContext("check/trigger#0"))
    check_configuration(factory, config, stored.context())
    first = await _events_of_one_run(_configure(factory, config, stored.context()), provoke, patience, stored)
    judging = _configure(factory, config, stored.context())
    for event in first:
        check_event(event)
        reason = judging.matches(event) if isinstance(judging, JudgingSource) else None
        _require(reason is None, f"matches must return None for an event of its own watch, not {reason!r}")
    second = await _events_of_one_run(_configure(factory, config, stored.context()), provoke, patience, stored)
    for event in second:
        check_event(event)
    repeated = {event.dedupe_key for event in first} & {event.dedupe_key for event in second}
    _require(not repeated, f"a restarted trigger must not repeat a stored event: {sorted(map(str, repeated))}")
    await check_trigger_ends(factory, config, stored.context(), patience)
    return first + second


async def check_trigger_kills(
    factory: Callable[[], TriggerSource],
    config: Mapping[str, Any],
    *,
    provoke: Callable[[], Awaitable[object] | None],
    context: TriggerContext | None = None,
    patience: float = 5.0,
) -> None:
    """Check that no event is lost, and none comes twice, when the process is killed before or after an event is stored.

    For triggers whose source keeps what happened: files, logs, schedules. `provoke` causes one new event at each call.
    `patience` is the most seconds for an event. Raises `AssertionError`.
    """
    stored = _Stored(context or TriggerContext("check/trigger#0"))
    lost = await _first_before_kill(factory, config, provoke, patience, _Stored(stored.context()))
    rule = "an event that was not stored before a kill must come again, with the same dedupe_key"
    try:
        again = await _first_before_kill(factory, config, None, patience, stored)
    except AssertionError as error:
        raise AssertionError(f"{rule}: the position belongs into the event's state, and nowhere else") from error
    keys = (lost.dedupe_key, again.dedupe_key)
    _require(keys[0] == keys[1], f"{rule}; it was {keys[0]!r}, and came as {keys[1]!r}")
    later = await _first_before_kill(factory, config, provoke, patience, stored)
    rule = "a stored event must not come again after a kill: read the position from context.state"
    _require(later.dedupe_key != again.dedupe_key, f"{rule}; {later.dedupe_key!r} did")


async def _first_before_kill(
    factory: Callable[[], TriggerSource],
    config: Mapping[str, Any],
    provoke: Callable[[], Awaitable[object] | None] | None,
    patience: float,
    stored: _Stored,
) -> TriggerEvent:
    """Watch until there is an event, and end without a stop; return the first event."""
    trigger, events, arrived = _configure(factory, config, stored.context()), list[TriggerEvent](), asyncio.Event()
    async with _watching(trigger, events, arrived, stored, patience) as watching:
        if provoke is not None:
            await _until_armed(trigger, watching, patience)
            done = provoke()
            if inspect.isawaitable(done):
                await done
        await _first_of(arrived, watching, patience)
    return events[0]


async def check_trigger_ends(
    factory: Callable[[], TriggerSource], config: Mapping[str, Any], context: TriggerContext, patience: float = 5.0
) -> None:
    """Check that a watch ends promptly: stopped before it begins, stopped, and cancelled; and that it leaves nothing.

    Of a trigger with `upcoming`, the first fire is checked before. Raises `AssertionError`.
    """
    _check_upcoming(_configure(factory, config, context))
    async with watch_process("watch"):
        early = _configure(factory, config, context)
        await early.stop()
        await _end(early, early.stop, "watch must end at once when stop() came before it", patience, is_armed=False)
        stopped = _configure(factory, config, context)
        await _end(stopped, stopped.stop, "watch must end promptly after stop()", patience)
        cancelled = _configure(factory, config, context)
        rule = f"watch must end promptly when it is cancelled: {CATCH}"
        outcome = await _end(cancelled, None, rule, patience)
        await cancelled.stop()
    _require(outcome == "cancelled", f"a cancelled watch must let CancelledError pass; it {outcome}")


def _check_upcoming(trigger: TriggerSource) -> None:
    if isinstance(trigger, ScheduledSource):
        for fire in islice(trigger.upcoming(datetime.now(UTC)), 1):
            _require(isinstance(fire, Upcoming), f"upcoming must yield Upcoming, not {type(fire).__name__}")
            is_aware = getattr(fire.at, "tzinfo", None) is not None
            _require(is_aware, "the at of an Upcoming must be a datetime with a time zone")


async def _end(
    trigger: TriggerSource,
    stop: Callable[[], Awaitable[None]] | None,
    rule: str,
    patience: float,
    *,
    is_armed: bool = True,
) -> str:
    """Watch until it is armed, then stop or cancel it; return how it ended."""
    async with _watching(trigger, [], asyncio.Event(), _Stored(TriggerContext("check/end")), patience) as watching:
        if is_armed:
            await _until_armed(trigger, watching, patience)
        if stop is None:
            watching.cancel()
        else:
            await stop()
        await asyncio.wait((watching,), timeout=patience)
        if not watching.done():
            watching.cancel()
            await asyncio.wait((watching,), timeout=patience)
            more = "" if stop is None or watching.done() else f", and when it was cancelled then, too: {CATCH}"
            raise AssertionError(f"{rule}; it went on for {patience:g} s{more}")
    if watching.cancelled():
        return "cancelled"
    return f"raised {watching.exception()!r}" if watching.exception() else "ended as if nothing had happened"


class _Stored:
    """The state of a trigger as a store would keep it, through JSON."""

    def __init__(self, context: TriggerContext) -> None:
        self._context, self._state = context, dict(context.state)

    def context(self) -> TriggerContext:
        """Return the context of the next start."""
        return replace(self._context, state=dict(self._state), saver=self._save)

    def take(self, event: TriggerEvent) -> None:
        """Store the state of an event."""
        if isinstance(event, TriggerEvent) and event.state is not None:
            self._keep(event.state, merge=False)
        if isinstance(event, TriggerEvent) and event.state_changes is not None:
            self._keep(event.state_changes, merge=True)

    async def _save(self, state: Mapping[str, Any], *, merge: bool = False) -> None:
        self._keep(state, merge=merge)
        await self._context.save_state(state, merge=merge)

    def _keep(self, state: Mapping[str, Any], *, merge: bool) -> None:
        with suppress(TypeError, ValueError):  # `check_event` says so of an event
            changes = json.loads(json.dumps(dict(state), allow_nan=False))
            self._state = merge_state(self._state, changes) if merge else changes


def check_configuration(
    factory: Callable[[], TriggerSource], config: Mapping[str, Any], context: TriggerContext
) -> None:
    """Check the factory, and the refusal of an unknown key by `configure`."""
    trigger = factory()
    _require(isinstance(trigger, TriggerSource), "the factory must return an object with configure, watch and stop")
    _check_schema(trigger, config)
    try:
        _configure(lambda: trigger, {**config, UNKNOWN_KEY: 1}, context)
    except ValueError:  # TriggerConfigError is one
        return
    except Exception as error:
        raise AssertionError(f"configure must refuse with TriggerConfigError, not {type(error).__name__}") from error
    raise AssertionError("configure must refuse a key it does not know with TriggerConfigError")


def _check_schema(trigger: TriggerSource, config: Mapping[str, Any]) -> None:
    """Check the optional `config_schema`: a JSON Schema of a mapping with the keys of `config`."""
    offered = getattr(trigger, "config_schema", None)
    if offered is None:
        return
    schema = offered()
    _require(isinstance(schema, dict) and schema.get("type") == "object", "config_schema must describe an object")
    unknown = sorted(set(config) - set(schema.get("properties", config)))
    _require(not unknown, f"config_schema must know every key that configure takes, and not only others: {unknown}")


def check_event(event: object) -> None:
    """Check one event: its type, its JSON, and its dedupe key."""
    _require(isinstance(event, TriggerEvent), f"watch must yield TriggerEvent, not {type(event).__name__}")
    assert isinstance(event, TriggerEvent)
    _require(bool(event.dedupe_key), "every event must have a dedupe_key, or it is handled twice after a crash")
    _require(event.timestamp.tzinfo is not None, "an event's timestamp must know its time zone")
    _require(bool(event.source), "an event's source must be the registered name of its trigger")
    states = ("state", event.state or {}), ("state_changes", event.state_changes or {})
    for name, value in (("data", event.data), *states):
        try:
            json.dumps(dict(value), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise AssertionError(f"an event's {name} must be JSON: {error}") from error


def _configure(
    factory: Callable[[], TriggerSource], config: Mapping[str, Any], context: TriggerContext
) -> TriggerSource:
    trigger = factory()
    bind = getattr(trigger, "bind", None)
    if bind is not None:
        bind(context)
    trigger.configure(dict(config))
    return trigger


async def _events_of_one_run(
    trigger: TriggerSource, provoke: Callable[[], Awaitable[object] | None], patience: float, stored: _Stored
) -> list[TriggerEvent]:
    """Watch, provoke, wait for an event, stop; return the events."""
    events: list[TriggerEvent] = []
    arrived = asyncio.Event()
    async with _watching(trigger, events, arrived, stored, patience) as watching:
        await _until_armed(trigger, watching, patience)
        done = provoke()
        if inspect.isawaitable(done):
            await done
        await _first_of(arrived, watching, patience)
        await trigger.stop()
        _, unfinished = await asyncio.wait((watching,), timeout=patience)
        _require(not unfinished, f"watch must end promptly after stop(); it went on for {patience:g} s")
        await watching
        await trigger.stop()
    return events


@asynccontextmanager
async def _watching(
    trigger: TriggerSource, events: list[TriggerEvent], arrived: asyncio.Event, stored: _Stored, patience: float
) -> AsyncIterator[asyncio.Task[None]]:
    """Consume the trigger in a task for the time of the block."""
    stream = trigger.watch()
    _require(hasattr(stream, "__aiter__"), "watch() must return an async iterator: write it as an async generator")

    async def consume() -> None:
        async for event in stream:
            stored.take(event)
            events.append(event)
            arrived.set()

    task = asyncio.create_task(consume())
    try:
        yield task
    finally:
        task.cancel()
        _, unfinished = await asyncio.wait((task,), timeout=patience)
        if unfinished:  # it swallows its cancellation
            await trigger.stop()
            await asyncio.wait((task,), timeout=patience)
        with suppress(asyncio.CancelledError, asyncio.InvalidStateError):
            task.exception()  # it is raised where the outcome matters


async def _until_armed(trigger: TriggerSource, watching: asyncio.Task[None], patience: float) -> None:
    ready = getattr(trigger, "ready", None)
    if ready is None:
        await asyncio.sleep(0)
        return
    armed = asyncio.ensure_future(ready())
    try:
        await asyncio.wait((armed, watching), timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            watching.result()
        _require(armed.done(), f"ready() must return once the trigger watches; it did not within {patience:g} s")
        armed.result()
    finally:
        armed.cancel()


async def _first_of(arrived: asyncio.Event, watching: asyncio.Task[None], patience: float) -> None:
    waiting = asyncio.ensure_future(arrived.wait())
    try:
        await asyncio.wait((waiting, watching), timeout=patience, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    if watching.done():
        watching.result()
    _require(arrived.is_set(), f"watch must yield an event when it is provoked; none came within {patience:g} s")


def _require(kept: bool, rule: str) -> None:
    if not kept:
        raise AssertionError(rule)
