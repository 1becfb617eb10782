"""Handle a lane's deliveries: claim one, run its session, commit what came of it."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import SessionNotFound, StaleEpoch, StoreUnavailable
from amplifier_core.events import SessionEvent
from amplifier_core.ids import new_session_id
from amplifier_core.transcript import Transcript

from ..spawning.child import Spawn, prepare_spawn, spawn_request
from ..spawning.family import TREE, Tree
from ..spawning.inheritance import child_config
from ..spawning.life import outcome_event, record_changes, run_spawn
from ..stored_history import stored_transcript
from .instruction import instruction_for
from .lane import AtWork
from .watch import STORE_PAUSE, first_cause

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from amplifier_core.moments import SpawnOutcome
    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import Delivery

    from .lane import Engine, Lane

logger = logging.getLogger(__name__)

STORE = "store"
"""The part of a lane that is ailing when the store is."""


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
            except StoreUnavailable as error:
                await self._without_store(str(error))

    async def _next(self) -> Delivery | None:
        """Return the next delivery to handle, None after a while without one."""
        seconds = self.engine.poll
        if self.lane.throttle is None:
            delivery = await self._claim()
        else:
            async with self.lane.claiming:
                delivery = await self._claim() if self.lane.throttle.wait() <= 0 else None
                if delivery is not None:
                    self.lane.throttle.add()
                seconds = min(seconds, self.lane.throttle.wait() or seconds)
        if delivery is None:
            await self._idle(min(seconds, await self._until_due(seconds)))
            return None
        self.lane.wake.set()  # another one may be due for another worker
        return delivery

    async def _without_store(self, problem: str) -> None:
        self.engine.troubled(self.lane, STORE, "backing_off", problem)
        self.engine.tell("store_failed", self.lane, error=problem)
        self.lane.wake.clear()  # that there is work is no reason to ask a store that does not answer
        await self._idle(STORE_PAUSE)

    async def _claim(self) -> Delivery | None:
        claiming = asyncio.ensure_future(
            self.engine.store.claim(
                self.lane.project,
                self.lane.key,
                owner=self.engine.owner,
                lease=self.engine.lease,
                session_id=new_session_id(self.lane.config.name),
                now=self.engine.clock.now(),
            )
        )
        try:
            delivery = await asyncio.shield(claiming)
        except asyncio.CancelledError:
            await self._unclaimed(claiming)
            raise
        self.engine.well(self.lane, STORE)
        return delivery

    async def _unclaimed(self, claiming: asyncio.Future[Delivery | None]) -> None:
        """Give back what is claimed by a worker that ends meanwhile."""
        await asyncio.wait({claiming})
        delivery = None if claiming.cancelled() or claiming.exception() is not None else claiming.result()
        if delivery is not None:
            now = self.engine.clock.now()
            await self.engine.store.retry(delivery, reason="interrupted", available_at=now, counted=False)

    async def _until_due(self, most: float) -> float:
        """Return in how many seconds a delivery that is not due yet will be, or `most`."""
        now = self.engine.clock.now()
        due = await self.engine.store.next_due(self.lane.project, self.lane.key, now=now)
        return most if due is None else (due - now).total_seconds()

    async def _idle(self, seconds: float) -> None:
        """Return when there may be something to do, or that many seconds have passed."""
        async with asyncio.TaskGroup() as group:
            waking = group.create_task(self.lane.wake.wait())
            sleeping = group.create_task(self.engine.clock.sleep(seconds))
            await asyncio.wait({waking, sleeping}, return_when=asyncio.FIRST_COMPLETED)
            waking.cancel()
            sleeping.cancel()

    async def _handle(self, delivery: Delivery) -> None:
        problem = ""
        await self.lane.outlived(delivery)
        try:
            async with asyncio.TaskGroup() as group:
                renewing = group.create_task(self._renew(delivery))
                attempt = group.create_task(self._attempt(delivery))
                self.lane.running[delivery.delivery_id] = AtWork(delivery, attempt)
                await asyncio.wait({attempt})
                renewing.cancel()
        except* StaleEpoch as stale:
            logger.info("%s", first_cause(stale))
        except* StoreUnavailable as errors:
            problem = str(first_cause(errors))
        finally:
            self.lane.over(delivery)
        if problem:
            await self._put_back(delivery, problem)

    async def _put_back(self, delivery: Delivery, problem: str) -> None:
        """Give back what the store's failure has cut, once it can be written; when the lane stops, the next start does.

        That was no attempt: it says nothing against the delivery.
        """
        while not self.lane.stopping:
            await self._without_store(problem)
            try:
                now = self.engine.clock.now()
                await self.engine.store.retry(delivery, reason=problem, available_at=now, counted=False)
            except StaleEpoch:  # what seemed to fail was done, or its lease is over
                return
            except StoreUnavailable as error:
                problem = str(error)
            else:
                return

    async def _renew(self, delivery: Delivery) -> None:
        while True:
            await self.engine.clock.sleep(self.engine.lease / 3)
            try:
                await self.engine.store.renew(delivery, lease=self.engine.lease, now=self.engine.clock.now())
            except StoreUnavailable as error:  # the lease holds for two more tries
                logger.warning("the claim on %s was not renewed: %s", delivery.delivery_id, error)

    async def _attempt(self, delivery: Delivery) -> None:
        if delivery.attempts > self.lane.config.max_attempts:
            await self._bury(delivery, f"the process ended {delivery.attempts - 1} times while it was handled")
            return
        try:
            spawn = await self._prepare(delivery)
        except StoreUnavailable:
            raise
        except Exception as error:
            await self._failed(delivery, f"{type(error).__name__}: {error}")
            return
        self.engine.tell("started", self.lane, delivery=delivery, resumed=spawn.resumed)
        outcome = await run_spawn(spawn, self.lane.config.timeout)
        if isinstance(spawn.error, StoreUnavailable):
            raise spawn.error
        try:
            await self._settle(delivery, spawn, outcome)
        except SessionNotFound as error:  # somebody has deleted it while it ran
            await self._failed(delivery, str(error))

    async def _settle(self, delivery: Delivery, spawn: Spawn, outcome: SpawnOutcome) -> None:
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
                instruction_for(delivery.event, config, self.lane.declared.get(delivery.trigger)),
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
            await self._remember(spawn, config.fork_from)
        await prepare_spawn(spawn, resume=delivery.epoch > 1)  # the first claim has made the id up
        return spawn

    async def _remember(self, spawn: Spawn, source: str) -> None:
        """Have the session begin with the history of another: of `source`, or of the last one of this lane."""
        try:
            record = await self.engine.store.get(await self._last() if source == "last" else source)
        except SessionNotFound:
            if source == "last":  # there is none yet, or somebody has deleted it: nothing to remember
                return
            raise
        transcript = stored_transcript(self.engine.store, record)
        spawn.transcript = transcript.fork(transcript.settled())
        spawn.shares = record.session_id

    async def _last(self) -> str:
        done = await self.engine.store.deliveries(project=self.lane.project, lane=self.lane.key, state="done", limit=1)
        if not done or done[0].session_id is None:
            raise SessionNotFound("last")
        return done[0].session_id

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
        """Put the delivery back, to be gone on with at the next start; to be interrupted is no attempt that failed."""
        cut = isinstance(spawn.error, asyncio.CancelledError)
        try:
            await self.engine.store.retry(
                delivery,
                reason="interrupted",
                available_at=self.engine.clock.now(),
                counted=not (cut or self.lane.stopping),
                session={**record_changes(spawn, outcome), "status": "interrupted"},
            )
        except StaleEpoch:
            await self._displaced(delivery, spawn)
            raise
        if spawn.error is not None and cut:
            raise spawn.error

    async def _displaced(self, delivery: Delivery, spawn: Spawn) -> None:
        """End the session of a delivery in whose place another one is handled; who claimed it since has its session."""
        session_id = spawn.request.session_id
        found = await self.engine.store.deliveries(session_id=session_id, limit=1)
        if found and (found[0].delivery_id, found[0].state) == (delivery.delivery_id, "skipped"):
            await self.engine.store.update(session_id, status="cancelled")

    async def _failed(
        self, delivery: Delivery, reason: str, spawn: Spawn | None = None, outcome: SpawnOutcome | None = None
    ) -> None:
        changes, emits = {}, []
        if spawn is not None and outcome is not None:
            changes, emits = record_changes(spawn, outcome), self._events(delivery, spawn, outcome)
        if delivery.attempts >= self.lane.config.max_attempts:
            await self._bury(delivery, reason, emits, changes)
            return
        retry = self.lane.config.retry
        delay = self.engine.backoff(delivery.attempts, base=retry.delay, cap=retry.max_delay)
        due = self.engine.clock.now() + timedelta(seconds=delay)
        await self.engine.store.retry(delivery, reason=reason, available_at=due, session=changes)
        self.engine.tell("retried", self.lane, delivery=delivery, reason=reason, delay=delay)

    async def _bury(
        self,
        delivery: Delivery,
        reason: str,
        emits: Sequence[SessionEvent] = (),
        changes: Mapping[str, Any] | None = None,
    ) -> None:
        for event in await self.engine.store.bury(delivery, reason=reason, emits=emits, session=changes):
            self.engine.router.publish(event)
        self.engine.tell("dead", self.lane, delivery=delivery, reason=reason)
        await self.engine.plugins.after_trigger(replace(delivery, state="dead", reason=reason))
