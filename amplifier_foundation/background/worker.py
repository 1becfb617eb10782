"""Handle a lane's deliveries: claim one, run its session, commit what came of it."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import StaleEpoch
from amplifier_core.events import SessionEvent
from amplifier_core.ids import new_session_id
from amplifier_core.transcript import Transcript

from ..spawning.child import Spawn, prepare_spawn, spawn_request
from ..spawning.inheritance import child_config
from ..spawning.life import outcome_event, record_changes, run_spawn
from .instruction import build_instruction

if TYPE_CHECKING:
    from amplifier_core.moments import SpawnOutcome
    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import Delivery

    from .lane import Engine, Lane

logger = logging.getLogger(__name__)

POLL = 1.0
"""Seconds after which an idle worker looks for deliveries that another process accepted."""


@dataclass(slots=True)
class Worker:
    """One of a lane's `pool_size` workers."""

    engine: Engine
    lane: Lane

    async def run(self) -> None:
        """Handle deliveries until the lane stops."""
        while not self.lane.stopping:
            self.lane.wake.clear()
            delivery = await self._claim()
            if delivery is None:
                await self._idle()
                continue
            self.lane.wake.set()  # another one may be due for another worker
            await self._handle(delivery)

    async def _claim(self) -> Delivery | None:
        return await self.engine.store.claim(
            self.lane.project,
            self.lane.key,
            owner=self.engine.owner,
            lease=self.engine.lease,
            session_id=new_session_id(self.lane.config.name),
            now=self.engine.clock.now(),
        )

    async def _idle(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(POLL):
                await self.lane.wake.wait()

    async def _handle(self, delivery: Delivery) -> None:
        self.lane.running[delivery.delivery_id] = delivery.session_id or ""
        try:
            async with asyncio.TaskGroup() as group:
                renewing = group.create_task(self._renew(delivery))
                try:
                    await self._attempt(delivery)
                finally:
                    renewing.cancel()
        except* StaleEpoch as stale:
            logger.warning("%s", stale.exceptions[0])
        finally:
            del self.lane.running[delivery.delivery_id]

    async def _renew(self, delivery: Delivery) -> None:
        while True:
            await asyncio.sleep(self.engine.lease / 3)
            await self.engine.store.renew(delivery, lease=self.engine.lease, now=self.engine.clock.now())

    async def _attempt(self, delivery: Delivery) -> None:
        if delivery.attempts > self.lane.config.max_attempts:
            await self._bury(delivery, f"the process ended {delivery.attempts - 1} times while it was handled")
            return
        try:
            spawn = await self._prepare(delivery)
        except Exception as error:
            await self._failed(delivery, f"{type(error).__name__}: {error}")
            return
        self.engine.tell("started", self.lane, delivery=delivery, resumed=spawn.resumed)
        outcome = await run_spawn(spawn, self.lane.config.timeout)
        if outcome.status == "completed":
            await self._commit(delivery, spawn, outcome)
        elif outcome.status == "cancelled":
            await self._interrupted(delivery, spawn, outcome)
        else:
            await self._failed(delivery, outcome.error or "failed", spawn, outcome)

    async def _prepare(self, delivery: Delivery) -> Spawn:
        config = self.lane.config
        parent, prepared = self.engine.parent, self.lane.prepared
        spawn = Spawn(
            prepared=prepared,
            request=spawn_request(
                parent,
                prepared,
                self._instruction(delivery),
                child_config(prepared.mount_plan, parent.config, providers=True, tools=False, hooks=False),
                delivery.session_id,
                config.name,
            ),
            parent=parent,
            transcript=Transcript(),
            store=self.engine.store,
            router=self.engine.router,
            plugins=self.engine.plugins,
            cause=delivery.event,
            observe=self._observe,
        )
        await prepare_spawn(spawn, resume=True)
        return spawn

    def _instruction(self, delivery: Delivery) -> str:
        config = self.lane.config
        template = self.lane.templates.get(delivery.trigger) or config.instruction_template
        text = build_instruction(delivery.event, template)
        return f"{config.instruction}\n\n{text}" if config.instruction else text

    def _observe(self, session: AmplifierSession) -> None:
        self.engine.tell("session", self.lane, session=session)

    async def _commit(self, delivery: Delivery, spawn: Spawn, outcome: SpawnOutcome) -> None:
        emits = self._events(delivery, spawn, outcome)
        stored = await self.engine.store.commit(delivery, emits=emits, session=record_changes(spawn, outcome))
        for event in stored:
            self.engine.router.publish(event)
        self.engine.tell("completed", self.lane, delivery=delivery, outcome=outcome, emitted=stored)
        await self.engine.plugins.after_spawn(outcome)
        await self.engine.plugins.after_trigger(replace(delivery, state="done"))

    def _events(self, delivery: Delivery, spawn: Spawn, outcome: SpawnOutcome) -> list[SessionEvent]:
        name, data = outcome_event(spawn, outcome)
        failed = outcome.error is not None
        trigger = dict(delivery.event.data)
        events = [self._event(delivery, name, {**data, "trigger": trigger})]
        custom = self.lane.config.on_error_emit if failed else self.lane.config.on_complete_emit
        if custom:
            result = {"error": outcome.error} if failed else {"output": outcome.output}
            summary = {"session_name": self.lane.config.name, "session_id": outcome.session_id, "trigger": trigger}
            events.append(self._event(delivery, custom, {**summary, **result}))
        return events

    def _event(self, delivery: Delivery, name: str, data: dict[str, Any]) -> SessionEvent:
        event = delivery.event
        return SessionEvent(
            name,
            data,
            delivery.session_id,
            timestamp=self.engine.clock.now(),
            cause=event.event_id,
            depth=event.depth,
        )

    async def _interrupted(self, delivery: Delivery, spawn: Spawn, outcome: SpawnOutcome) -> None:
        """Put the delivery back, to be gone on with at the next start."""
        store = self.engine.store
        await store.update(spawn.request.session_id, status="interrupted", turn_count=outcome.turn_count)
        await store.retry(delivery, reason="interrupted", available_at=self.engine.clock.now())
        if isinstance(spawn.error, asyncio.CancelledError):
            raise spawn.error

    async def _failed(
        self, delivery: Delivery, reason: str, spawn: Spawn | None = None, outcome: SpawnOutcome | None = None
    ) -> None:
        if spawn is not None and outcome is not None:
            await self.engine.store.update(spawn.request.session_id, **record_changes(spawn, outcome))
        if delivery.attempts >= self.lane.config.max_attempts:
            emits = self._events(delivery, spawn, outcome) if spawn is not None and outcome is not None else []
            await self._bury(delivery, reason, emits)
            return
        delay = self.engine.backoff(delivery.attempts, base=1.0, cap=60.0)
        due = self.engine.clock.now() + timedelta(seconds=delay)
        await self.engine.store.retry(delivery, reason=reason, available_at=due)
        self.engine.tell("retried", self.lane, delivery=delivery, reason=reason, delay=delay)

    async def _bury(self, delivery: Delivery, reason: str, emits: list[SessionEvent] | None = None) -> None:
        for event in await self.engine.store.bury(delivery, reason=reason, emits=emits or []):
            self.engine.router.publish(event)
        self.engine.tell("dead", self.lane, delivery=delivery, reason=reason)
        await self.engine.plugins.after_trigger(replace(delivery, state="dead", reason=reason))
