"""Run a lane's triggers: arm them, store what they yield, restart those that fail."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import AmplifierError, TriggerConfigError, TriggerError
from amplifier_core.triggers import TriggerContext

from .lane import RestartWindow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_core.triggers import TriggerEvent, TriggerSource

    from .config import TriggerConfig
    from .lane import Engine, Lane

logger = logging.getLogger(__name__)

STOP_TIME_LIMIT = 5.0
"""Seconds a trigger's `stop` may take."""
ENDING = 1.0
"""Seconds that `watch` may go on after `stop`."""


@dataclass(slots=True)
class Watch:
    """One trigger of a lane, restarted when it fails."""

    engine: Engine
    lane: Lane
    name: str
    declared: TriggerConfig
    armed: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    _trigger: TriggerSource | None = None

    async def configured(self) -> TriggerSource:
        """Make the trigger, bound to its stored state. Raises `UnknownName`, `TriggerConfigError`."""
        trigger = self.engine.plugins.triggers.get(self.declared.module)()
        state = await self.engine.store.trigger_state(self.lane.project, self.name)
        bind = getattr(trigger, "bind", None)
        if bind is not None:
            bind(
                TriggerContext(
                    name=self.name,
                    working_dir=Path(self.lane.project),
                    events=self.engine.router,
                    clock=self.engine.clock,
                    state=state,
                    saver=self._save,
                )
            )
        try:
            trigger.configure(self.declared.config)
        except AmplifierError:
            raise
        except Exception as error:
            raise TriggerConfigError(self.declared.module, "", f"{type(error).__name__}: {error}") from error
        return trigger

    async def _save(self, state: Mapping[str, Any]) -> None:
        await self.engine.store.save_trigger_state(self.lane.project, self.name, state)

    async def run(self) -> None:
        """Watch until the lane stops or the restart window is used up."""
        config = self.lane.config
        window = RestartWindow(config.max_restarts, config.restart_window, self.engine.clock)
        while not self.lane.stopping:
            try:
                await self._watch_once()
                return
            except Exception as error:
                if self.lane.stopping or not await self._may_restart(window, error):
                    return
            finally:
                self.armed.set()

    async def _watch_once(self) -> None:
        trigger = self._trigger = await self.configured()
        async with asyncio.TaskGroup() as group:
            announcing = group.create_task(self._announce(trigger))
            stream = trigger.watch()
            try:
                async for event in stream:
                    await accept(self.engine, self.lane, self.name, event)
                    if self.lane.stopping:
                        break
            finally:
                announcing.cancel()
                self._trigger = None
                await stop_trigger(trigger)
                with suppress(AttributeError):
                    await stream.aclose()  # type: ignore[attr-defined]  # generators have it, other iterators need not

    async def stop(self) -> None:
        """Stop the trigger; one that goes on watching all the same is cancelled."""
        if self._trigger is not None:
            await stop_trigger(self._trigger)
        if self.task is not None:
            await asyncio.wait({self.task}, timeout=ENDING)
            self.task.cancel()

    async def _announce(self, trigger: TriggerSource) -> None:
        ready = getattr(trigger, "ready", None)
        await (ready() if ready is not None else asyncio.sleep(0))
        if self.lane.status in ("starting", "backing_off"):
            self.lane.status, self.lane.reason = "running", ""
        self.engine.tell("armed", self.lane, trigger=self.declared.module)
        self.armed.set()

    async def _may_restart(self, window: RestartWindow, error: Exception) -> bool:
        cause = first_cause(error)
        text = str(cause) or type(cause).__name__
        count = window.note()
        restarts = self.lane.config.restart_on_failure and not window.exhausted
        self.lane.status, self.lane.reason = ("backing_off" if restarts else "failed"), text
        self.engine.tell("trigger_failed", self.lane, trigger=self.declared.module, error=text, restarts=restarts)
        logger.warning("trigger %s failed%s: %s", self.name, " and is restarted" if restarts else "", text)
        if restarts:
            self.lane.restart_count += 1
            await self.engine.clock.sleep(self.engine.backoff(count, base=0.5, cap=30.0))
        return restarts


async def accept(engine: Engine, lane: Lane, trigger: str, event: TriggerEvent) -> bool:
    """Store an event for the lane; return whether it is to be handled. It is durable when this returns."""
    refused = await _refusal(engine, lane, event)
    delivery = await engine.store.offer(lane.project, lane.key, trigger, event, refused=refused, now=engine.clock.now())
    lane.last_trigger = event.timestamp
    if delivery is None:
        engine.tell("duplicate", lane, event=event, trigger=trigger)
        return False
    if refused is not None:
        engine.tell("refused", lane, event=event, reason=refused, trigger=trigger)
        return False
    lane.trigger_count += 1
    engine.tell("accepted", lane, event=event, trigger=trigger, delivery=delivery)
    lane.wake.set()
    return True


async def _refusal(engine: Engine, lane: Lane, event: TriggerEvent) -> str | None:
    if event.depth > lane.config.max_depth:
        return f"its chain of causes is longer than max_depth ({lane.config.max_depth})"
    try:
        await engine.plugins.before_trigger(event)
    except TriggerError as error:
        return str(error)
    return None


async def stop_trigger(trigger: TriggerSource) -> None:
    """Stop a trigger; one that fails or hangs at it is logged and left."""
    try:
        async with asyncio.timeout(STOP_TIME_LIMIT):
            await trigger.stop()
    except Exception as error:
        logger.warning("trigger %s did not stop: %s: %s", type(trigger).__name__, type(error).__name__, error)


def first_cause(error: BaseException) -> BaseException:
    """Return the first error in groups of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
