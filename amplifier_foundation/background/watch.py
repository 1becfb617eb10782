"""Run a lane's triggers: arm them, store what they yield, restart those that fail."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import StoreUnavailable, TriggerError
from amplifier_core.triggers import TriggerContext, TriggerEvent

from .lane import RestartWindow
from .making import make_trigger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_core.triggers import TriggerSource

    from .config import TriggerConfig
    from .lane import Engine, Lane

logger = logging.getLogger(__name__)

STOP_TIME_LIMIT = 5.0
"""Seconds a trigger's `stop` may take."""
STORE_PAUSE = 1.0
"""Seconds after which a store that could not be used is tried again."""
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
        state = await self.engine.store.trigger_state(self.lane.project, self.name)
        context = TriggerContext(
            name=self.name,
            working_dir=Path(self.lane.project),
            events=self.engine.router,
            clock=self.engine.clock,
            state=state,
            saver=self._save,
            own_writes=self.lane.own_writes,
        )
        return await make_trigger(self.declared, context, self.engine.plugins, self.engine.parent.loader)

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
                self.armed.set()  # nobody waits for it any longer
                if self.lane.stopping or not await self._may_restart(window, first_cause(error)):
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
                    if not isinstance(event, TriggerEvent):
                        raise TriggerError(self.declared.module, f"it yields {type(event).__name__}, not TriggerEvent")
                    await accept(self.engine, self.lane, self.name, event)
                    if self.lane.stopping:
                        break
            finally:
                announcing.cancel()
                self._trigger = None
                await stop_trigger(trigger)
                with suppress(AttributeError):
                    await stream.aclose()  # type: ignore[attr-defined]  # generators have it, other iterators need not
        if not self.lane.stopping:
            raise TriggerError(self.declared.module, "it ended without being stopped")

    async def stop(self) -> None:
        """Stop the trigger; one that goes on watching all the same is cancelled, and named when that is no use."""
        watching = self._trigger is not None
        if self._trigger is not None:
            await stop_trigger(self._trigger)
        if self.task is not None:
            if watching:
                await asyncio.wait({self.task}, timeout=ENDING)
            self.task.cancel()
            _, going_on = await asyncio.wait({self.task}, timeout=ENDING)
            if going_on:
                logger.warning("trigger %s goes on although it was cancelled, and holds up the end", self.name)

    async def _announce(self, trigger: TriggerSource) -> None:
        ready = getattr(trigger, "ready", None)
        await (ready() if ready is not None else asyncio.sleep(0))
        self.engine.well(self.lane, self.name)
        self.engine.tell("armed", self.lane, trigger=self.declared.module)
        self.armed.set()

    async def _may_restart(self, window: RestartWindow, cause: Exception) -> bool:
        """Wait as long as a failure asks for; return whether to go on. A store that cannot be written fails nobody."""
        text = str(cause) or type(cause).__name__
        if isinstance(cause, StoreUnavailable):
            await self._without_store(text)
            return True
        count = window.note()
        restarts = self.lane.config.restart_on_failure and not window.exhausted
        self.engine.troubled(self.lane, self.name, "backing_off" if restarts else "failed", text)
        module = self.declared.module
        told = text.removeprefix(f"{module}: ")
        self.engine.tell("trigger_failed", self.lane, trigger=module, error=told, restarts=restarts)
        logger.warning("trigger %s failed%s: %s", self.name, " and is restarted" if restarts else "", text)
        if restarts:
            self.lane.restart_count += 1
            await self.engine.clock.sleep(self.engine.backoff(count, base=0.5, cap=30.0))
        return restarts

    async def _without_store(self, problem: str | None) -> None:
        """Return when the store can be written: nothing that it cannot take is asked of the trigger again."""
        while problem is not None and not self.lane.stopping:
            self.engine.troubled(self.lane, self.name, "backing_off", problem)
            self.engine.tell("store_failed", self.lane, error=problem)
            await self.engine.clock.sleep(STORE_PAUSE)
            try:
                await self._save(await self.engine.store.trigger_state(self.lane.project, self.name))
            except StoreUnavailable as error:
                problem = str(error)
            else:
                problem = None


async def accept(engine: Engine, lane: Lane, trigger: str, event: TriggerEvent) -> bool:
    """Store an event for the lane; return whether it is to be handled. It is durable when this returns."""
    refused = await lane.gate.refusal(engine, lane, trigger, event)
    admission = lane.gate.admission(event) if refused is None else None
    delivery = await engine.store.offer(
        lane.project, lane.key, trigger, event, refused=refused, admission=admission, now=engine.clock.now()
    )
    lane.last_trigger = event.timestamp
    if delivery is None:
        engine.tell("duplicate", lane, event=event, trigger=trigger)
    elif delivery.state in ("refused", "skipped"):
        engine.tell("refused", lane, event=event, reason=delivery.reason, trigger=trigger)
    else:
        lane.trigger_count += 1
        engine.tell("accepted", lane, event=event, trigger=trigger, delivery=delivery)
        if admission is not None and admission.overlap == "replace":
            lane.replaced(delivery)
        lane.wake.set()
        return True
    return False


async def stop_trigger(trigger: TriggerSource) -> None:
    """Stop a trigger; one that fails or hangs at it is logged and left."""
    try:
        async with asyncio.timeout(STOP_TIME_LIMIT):
            await trigger.stop()
    except Exception as error:
        logger.warning("trigger %s did not stop: %s: %s", type(trigger).__name__, type(error).__name__, error)


def first_cause(error: Exception) -> Exception:
    """Return the first error in groups of errors."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
