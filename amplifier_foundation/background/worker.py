"""Handle a lane's deliveries: claim one, run its session, commit what came of it."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import StaleEpoch, StoreUnavailable
from amplifier_core.events import SessionEvent
from amplifier_core.ids import new_session_id
from amplifier_core.transcript import Transcript

from ..spawning.child import Spawn, prepare_spawn, spawn_request
from ..spawning.family import TREE, Tree
from ..spawning.inheritance import child_config
from ..spawning.life import outcome_event, record_changes, run_spawn
from ..stored_history import stored_transcript
from .instruction import build_instruction
from .lane import AtWork
from .watch import STORE_PAUSE

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
        """Handle deliveries until the lane stops; while the store cannot be used, wait until it can."""
        while not self.lane.stopping:
            self.lane.wake.clear()
            try:
                delivery = await self._next()
                if delivery is not None:
                    await self._handle(delivery)
            except* StoreUnavailable as errors:
                await self._without_store(str(errors.exceptions[0]))

    async def _next(self) -> Delivery | None:
        """Return the next delivery to handle, None after a while without one."""
        throttle = self.lane.throttle
        seconds = throttle.wait() if throttle is not None else 0.0
        delivery = await self._claim() if seconds <= 0 else None
        if delivery is None:
            await self._idle(min(POLL, seconds) if seconds > 0 else POLL)
            return None
        if throttle is not None:
            throttle.add()
        self.lane.wake.set()  # another one may be due for another worker
        return delivery

    async def _without_store(self, problem: str) -> None:
        self.engine.turn(self.lane, "backing_off", problem)
        self.engine.tell("store_failed", self.lane, error=problem)
        await self.engine.clock.sleep(STORE_PAUSE)
        self.engine.turn(self.lane, "running")

    async def _claim(self) -> Delivery | None:
        return await self.engine.store.claim(
            self.lane.project,
            self.lane.key,
            owner=self.engine.owner,
            lease=self.engine.lease,
            session_id=new_session_id(self.lane.config.name),
            now=self.engine.clock.now(),
        )

    async def _idle(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.lane.wake.wait()

    async def _handle(self, delivery: Delivery) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                renewing = group.create_task(self._renew(delivery))
                attempt = group.create_task(self._attempt(delivery))
                self.lane.running[delivery.delivery_id] = AtWork(delivery, attempt)
                await asyncio.wait({attempt})
                renewing.cancel()
        except* StaleEpoch as stale:
            logger.info("%s", stale.exceptions[0])
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
            capabilities={TREE: Tree(prepared.bundle.spawn, observers=[self.lane.own_writes.observe])},
        )
        if config.runner is not None:
            spawn.runner = self.engine.plugins.runners.get(config.runner)()
        if config.fork_from is not None:
            await self._remember(spawn, config.fork_from, delivery)
        await prepare_spawn(spawn, resume=True)
        return spawn

    async def _remember(self, spawn: Spawn, source: str, delivery: Delivery) -> None:
        """Have the session begin with the history of another: of `source`, or of the last one of this lane."""
        if source == "last":
            done = await self.engine.store.deliveries(
                project=self.lane.project, lane=self.lane.key, state="done", limit=1
            )
            if not done or done[0].session_id is None:
                return
            source = done[0].session_id
        record = await self.engine.store.get(source)
        transcript = stored_transcript(self.engine.store, record)
        spawn.transcript = transcript.fork(transcript.settled())
        spawn.shares = source

    def _instruction(self, delivery: Delivery) -> str:
        config = self.lane.config
        trigger = self.lane.declared.get(delivery.trigger)
        template = (trigger.instruction_template if trigger else None) or config.instruction_template
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
        changes = record_changes(spawn, outcome)
        await store.update(spawn.request.session_id, **{**changes, "status": "interrupted"})
        try:
            await store.retry(delivery, reason="interrupted", available_at=self.engine.clock.now())
        except StaleEpoch:  # another one is handled in its place
            await store.update(spawn.request.session_id, status="cancelled")
            raise
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
        retry = self.lane.config.retry
        delay = self.engine.backoff(delivery.attempts, base=retry.delay, cap=retry.max_delay)
        due = self.engine.clock.now() + timedelta(seconds=delay)
        await self.engine.store.retry(delivery, reason=reason, available_at=due)
        self.engine.tell("retried", self.lane, delivery=delivery, reason=reason, delay=delay)

    async def _bury(self, delivery: Delivery, reason: str, emits: list[SessionEvent] | None = None) -> None:
        for event in await self.engine.store.bury(delivery, reason=reason, emits=emits or []):
            self.engine.router.publish(event)
        self.engine.tell("dead", self.lane, delivery=delivery, reason=reason)
        await self.engine.plugins.after_trigger(replace(delivery, state="dead", reason=reason))
