"""Handle a background session's deliveries: claim one, run its session, commit the result.

The states of a delivery, and the verbs of the store that change them:

                          ┌──────────── nack: due at `available_at` ───────────┐
                          ▼                                                    │
    enqueue ─────────▶ PENDING ───────────── claim ────────────────────▶ CLAIMED ─── commit ──────▶ DONE
       │                │  ▲                                     renew ◀──┘ │ │
       │                │  │                  claim after the lease: epoch+1┘ ├── dead_letter ──▶ DEAD
       │                │  └── redeliver ◀── from REFUSED, SKIPPED, DEAD       │                   │
       │                └───── drop, or replaced by a newer one ──▶ SKIPPED ◀──┘ replaced    drop ─┘
       ├── refused by its gate ──▶ REFUSED
       └── skipped by its admission (`mode: single`) ──▶ SKIPPED

Invariants. The workers keep them, and the store enforces the first three:

* Lease and epoch. A claim holds for `Engine.lease` seconds and is renewed each third of that. After it, any worker may
  claim the delivery again; each claim raises the epoch.
* Fencing. `renew`, `commit`, `nack` and `dead_letter` carry the epoch of their claim. An older epoch gets `StaleEpoch`,
  and nothing of the call happens: of two workers on one delivery, one writes.
* One transaction. `commit` and `dead_letter` write the session's record, the emitted events and the new state of the
  delivery together; `nack` the record and the state. Subscribers see events after that, never before.
* One session. The first claim sets `session_id`; later claims keep it and resume the turn from its last durable
  message.
* Attempts. A claim counts one; `nack(counted=False)` takes it back. Interruptions, postponements, outages of a
  provider, spent daily budgets, waits for approval and failures of the store are no attempts.
* Approvals. A question is stored before its delivery is put back; an answer or its expiry makes that due (`approvals`).
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from amplifier_core.clock import wait_for
from amplifier_core.errors import BudgetExceeded, SessionNotFound, SpawnRefused, StaleEpoch, StoreUnavailable
from amplifier_core.ids import new_session_id
from amplifier_core.utils.secrets import redact_text

from ..sessions.failures import describe_failure, find_provider_error
from ..sessions.recording import shield_to_completion
from ..spawning.life import record_changes, run_spawn
from .approvals import WAITS, make_due
from .attempts import close_replaced, make_inbox, prepare_attempt, put_aside
from .budgets import BUDGET
from .completion import completion_events
from .mistakes import is_exhausted, is_mistake
from .outages import PROVIDER, asked_wait
from .state import Running
from .watch import STORE_PAUSE, first_cause

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from amplifier_core.events import SessionEvent
    from amplifier_core.hook_data import SpawnOutcome
    from amplifier_core.storage import Delivery

    from ..spawning.child import Spawn
    from .approval_inbox import ApprovalInbox
    from .approvals import Approval
    from .state import BackgroundSessionState, Engine

logger = logging.getLogger(__name__)

STORE = "store"
"""The component with the problem when the store cannot be used."""
POSTPONED = 60.0
"""Seconds at most until a plugin that refused a session is asked again, unless it named a time."""


@dataclass(slots=True)
class Worker:
    """One of a background session's `pool_size` workers."""

    engine: Engine
    background: BackgroundSessionState

    async def run(self) -> None:
        """Handle deliveries until the background session stops; while the store cannot be used, wait for it."""
        while not self.background.stopping:
            self.background.wake.clear()
            self.engine.report_refusals(self.background)
            try:
                delivery = await self._claim_next()
                if delivery is not None:
                    await self._handle(delivery)
            except StoreUnavailable as error:
                await self._wait_for_store(str(error))

    async def _claim_next(self) -> Delivery | None:
        """Return the next delivery to handle; None after a while without one."""
        now = self.engine.clock.now()
        held, left = self.background.allowance.until, self.background.outage.seconds_left(now)
        if held is not None and held > now:
            await wait_for(self.engine.clock, self.background.wake, held)
            return None
        if self.background.paused or left > 0:
            await self._rest(now, left)
            return None
        if held is not None:
            self.background.allowance.until = None
            self.engine.clear_problem(self.background, BUDGET)
        throttle = self.background.throttle
        async with self.background.claiming if throttle is not None else nullcontext():
            # One `now` for both questions: a delivery that comes due between them is in the answer to the second.
            now = self.engine.clock.now()
            delivery = await self._claim(now) if throttle is None or throttle.wait() <= 0 else None
            if throttle is not None and delivery is not None:
                throttle.add()
        if delivery is not None:
            self.background.wake.set()  # another one may be due for another worker
            return delivery
        due = await self.engine.store.next_due(self.background.project, self.background.queue, now=now)
        await self._rest(now, throttle.wait() if throttle is not None else 0.0, due)
        return None

    async def _rest(self, since: datetime, throttled: float = 0.0, due: datetime | None = None) -> None:
        """Wait for new work, until the next look, the end of the throttle or the next due delivery."""
        until = since + timedelta(seconds=min(self.engine.poll, throttled or self.engine.poll))
        await wait_for(self.engine.clock, self.background.wake, until if due is None else min(until, due))

    async def _wait_for_store(self, problem: str) -> None:
        self.engine.report_problem(self.background, STORE, "degraded", problem)
        self.engine.notify("store_failed", self.background, error=problem)
        self.background.wake.clear()  # new work is no reason to ask a store that does not answer
        due = self.engine.clock.now() + timedelta(seconds=STORE_PAUSE)
        await wait_for(self.engine.clock, self.background.wake, due)

    async def _claim(self, now: datetime) -> Delivery | None:
        claiming = asyncio.ensure_future(
            self.engine.store.claim(
                self.background.project,
                self.background.queue,
                owner=self.engine.owner,
                lease=self.engine.lease,
                session_id=new_session_id(self.background.config.name),
                now=now,
            )
        )
        try:
            delivery = await asyncio.shield(claiming)
        except asyncio.CancelledError:
            # The store may have claimed one all the same: give it back, or it waits for the end of its lease.
            await asyncio.wait({claiming})
            if not claiming.cancelled() and claiming.exception() is None and (claimed := claiming.result()) is not None:
                await self._give_back(claimed, "interrupted")
            raise
        self.engine.clear_problem(self.background, STORE)
        return delivery

    async def _give_back(self, delivery: Delivery, reason: str) -> None:
        await self.engine.store.nack(delivery, reason=reason, available_at=self.engine.clock.now(), counted=False)

    async def _handle(self, delivery: Delivery) -> None:
        """Handle a delivery: before, the claim is ours; after, it is done, dead, skipped or pending again.

        Or a later claim has it. This holds also for a cancellation at any moment, with a store that works.
        """
        try:
            await self._handle_claimed(delivery)
        except asyncio.CancelledError:
            with suppress(StaleEpoch, StoreUnavailable, SessionNotFound):  # it is stored how the attempt ended
                await shield_to_completion(put_aside(self.engine, delivery))
            raise

    async def _handle_claimed(self, delivery: Delivery) -> None:
        """Make one attempt, and renew the claim meanwhile."""
        problem = ""
        await self.background.cancel_stale(delivery)
        try:
            async with asyncio.TaskGroup() as group:
                renewing = group.create_task(self._renew(delivery))
                attempt = group.create_task(self._attempt(delivery))
                self.background.running[delivery.delivery_id] = Running(delivery, attempt)
                self.background.postponed.discard(delivery.delivery_id)
                await asyncio.wait({attempt})
                renewing.cancel()
        except* StaleEpoch as stale:
            logger.info("%s", first_cause(stale))
        except* StoreUnavailable as errors:
            problem = str(first_cause(errors))
        finally:
            self.background.finish(delivery)
        if problem:
            await self._put_back(delivery, problem)

    async def _put_back(self, delivery: Delivery, problem: str) -> None:
        """Give a delivery back once the store can be written, or leave it to the next start.

        This counts no attempt: the store failed, not the delivery.
        """
        while not self.background.stopping:
            await self._wait_for_store(problem)
            try:
                await self._give_back(delivery, problem)
            except StaleEpoch:  # the write had succeeded, or the lease is over
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
        if delivery.attempts > self.background.config.max_attempts:
            await self._give_up(delivery, f"the process ended {delivery.attempts - 1} times while it was handled")
            return
        approvals = make_inbox(self.engine, self.background, delivery)
        if questions := await approvals.begin():
            await self._hold(delivery, approvals, questions)
            return
        allowance = self.background.allowance
        denial = await allowance.find_denial(str(delivery.session_id), self.engine.store, self.engine.clock)
        if denial is not None:
            await self._deny(delivery, denial)
            return
        try:
            spawn = await prepare_attempt(self.engine, self.background, delivery, approvals)
        except StoreUnavailable:
            raise
        except SpawnRefused as refusal:
            await self._postpone(delivery, refusal)
            return
        except Exception as error:
            await self._fail(delivery, describe_failure(error), error)
            return
        self.engine.notify("started", self.background, delivery=delivery, resumed=spawn.resumed)
        outcome = await run_spawn(spawn, self.background.config.time_limit)
        if isinstance(spawn.error, StoreUnavailable):
            raise spawn.error
        try:
            if outcome.status == "completed":
                await self._commit(delivery, spawn, outcome)
                await approvals.forget()
            elif outcome.status == "interrupted":
                questions = await approvals.end_attempt()
                await self._hold(delivery, approvals, questions, record_changes(spawn, outcome))
            elif outcome.status == "cancelled":
                await self._interrupt(delivery, spawn, outcome)
            else:
                await self._fail(delivery, outcome.error or "failed", spawn.error, spawn, outcome)
        except SessionNotFound as error:  # somebody deleted the session while it ran
            await self._fail(delivery, str(error), error)

    async def _commit(self, delivery: Delivery, spawn: Spawn, outcome: SpawnOutcome) -> None:
        self._end_outage()
        self.background.outage.forget(delivery.delivery_id)
        emits = self._completion_events(delivery, spawn, outcome)
        stored = await self.engine.store.commit(delivery, emits=emits, session=record_changes(spawn, outcome))
        # Durable from here on: what fails below is reported, and the delivery stays done.
        for event in stored:
            self.engine.router.publish(event)
        self.engine.notify("completed", self.background, delivery=delivery, outcome=outcome, emitted=stored)
        await self.engine.plugins.after_spawn(outcome)
        await self.engine.plugins.after_trigger(replace(delivery, state="done"))

    def _completion_events(self, delivery: Delivery, spawn: Spawn, outcome: SpawnOutcome) -> list[SessionEvent]:
        return completion_events(self.background.config, delivery, spawn, outcome, self.engine.clock.now())

    async def _interrupt(self, delivery: Delivery, spawn: Spawn, outcome: SpawnOutcome) -> None:
        """Put the delivery back for the next start. An interruption is no attempt that failed."""
        cut = isinstance(spawn.error, asyncio.CancelledError)
        try:
            await self.engine.store.nack(
                delivery,
                reason="interrupted",
                available_at=self.engine.clock.now(),
                counted=not (cut or self.background.stopping),
                session={**record_changes(spawn, outcome), "status": "interrupted"},
            )
        except StaleEpoch:
            await close_replaced(self.engine, delivery)
            raise
        if spawn.error is not None and cut:
            raise spawn.error

    async def _hold(
        self,
        delivery: Delivery,
        approvals: ApprovalInbox,
        questions: Sequence[Approval],
        changes: Mapping[str, Any] | None = None,
    ) -> None:
        """Put the delivery back until a person answers its questions, or the first of them expires.

        A wait for an answer counts no attempt. An answer that came before the delivery was put back makes it due now.
        """
        reason, due = f"{WAITS}: {'; '.join(f'{each.id} {each.tool}' for each in questions)}", approvals.due(questions)
        self.background.postponed.add(delivery.delivery_id)
        await self.engine.store.nack(delivery, reason=reason, available_at=due, counted=False, session=changes)
        self.engine.notify("held", self.background, delivery=delivery, questions=questions, until=due)
        if any(each.is_decided for each in await approvals.read()):
            await make_due(self.engine.store, delivery.delivery_id, self.engine.clock.now())

    async def _postpone(self, delivery: Delivery, refusal: SpawnRefused) -> None:
        """Try a refused delivery again at the time that the plugin named, or soon; skip it when the refusal is final.

        A postponement counts no attempt: quiet hours lose no event.
        """
        reason = redact_text(str(refusal))
        if refusal.final:
            await self.engine.store.dead_letter(delivery, reason=reason)
            skipped = await self.engine.store.drop(delivery.delivery_id, reason=reason)
            self.engine.refuse(self.background, delivery.event, reason, delivery.trigger)
            await self.engine.plugins.after_trigger(skipped)
            return
        soon = timedelta(seconds=self.engine.backoff(delivery.epoch, base=1.0, cap=POSTPONED))
        self.background.postponed.add(delivery.delivery_id)
        due = refusal.not_before or self.engine.clock.now() + soon
        await self.engine.store.nack(delivery, reason=reason, available_at=due, counted=False)
        self.engine.notify("postponed", self.background, delivery=delivery, reason=reason, until=due)

    async def _fail(
        self,
        delivery: Delivery,
        reason: str,
        error: BaseException | None,
        spawn: Spawn | None = None,
        outcome: SpawnOutcome | None = None,
    ) -> None:
        """Try the delivery again after a pause, or give it up: after `max_attempts`, or at once for a mistake.

        An attempt without a free file descriptor, or without a service that answers, is none: the machine or the
        service failed, not the delivery.
        """
        changes, emits = {}, []
        if spawn is not None and outcome is not None:
            changes, emits = record_changes(spawn, outcome), self._completion_events(delivery, spawn, outcome)
        if isinstance(error, BudgetExceeded):
            return await self._deny(delivery, error, emits, changes)
        problem, exhausted, retry = find_provider_error(error), is_exhausted(error), self.background.config.retry
        is_out = problem is not None and problem.retryable and self.background.outage.excuses(delivery.delivery_id)
        if problem is None or not problem.retryable:
            self._end_outage()
        counted = not (exhausted or is_out)
        if counted and (is_mistake(error) or delivery.attempts >= self.background.config.max_attempts):
            await self._give_up(delivery, reason, emits, changes)
            return
        tries = self.background.outage.failures + 1 if is_out else delivery.attempts if counted else delivery.epoch
        delay = asked_wait(problem)
        if delay is None:
            delay = self.engine.backoff(tries, base=retry.delay, cap=retry.max_delay)
        due = (now := self.engine.clock.now()) + timedelta(seconds=delay)
        await self.engine.store.nack(delivery, reason=reason, available_at=due, counted=counted, session=changes)
        if is_out:
            self.background.outage.add(delivery.delivery_id, now, delay)
            self.engine.report_problem(self.background, PROVIDER, "degraded", reason, due)
            self.engine.notify("postponed", self.background, delivery=delivery, reason=reason, until=due)
        else:
            self.engine.notify("retried", self.background, delivery=delivery, reason=reason, delay=delay)

    async def _deny(
        self,
        delivery: Delivery,
        denial: BudgetExceeded,
        emits: Sequence[SessionEvent] = (),
        changes: Mapping[str, Any] | None = None,
    ) -> None:
        """Try a delivery again when the spent budget goes on, or give it up. A wait for a budget counts no attempt."""
        reason, until = str(denial), denial.until
        if until is None:
            await self._give_up(delivery, reason, emits, changes)
            return
        self.background.postponed.add(delivery.delivery_id)
        await self.engine.store.nack(delivery, reason=reason, available_at=until, counted=False, session=changes)
        if self.background.allowance.hold(denial):
            self.engine.report_problem(self.background, BUDGET, "degraded", reason, until)
        self.engine.notify("postponed", self.background, delivery=delivery, reason=reason, until=until)

    def _end_outage(self) -> None:
        """Let sessions begin again: the provider has answered, or something else has failed."""
        self.background.outage.end()
        self.engine.clear_problem(self.background, PROVIDER)

    async def _give_up(
        self,
        delivery: Delivery,
        reason: str,
        emits: Sequence[SessionEvent] = (),
        changes: Mapping[str, Any] | None = None,
    ) -> None:
        for event in await self.engine.store.dead_letter(delivery, reason=reason, emits=emits, session=changes):
            self.engine.router.publish(event)
        self.background.outage.forget(delivery.delivery_id)
        self.background.given_up += 1
        self.engine.notify("dead", self.background, delivery=delivery, reason=reason)
        await self.engine.plugins.after_trigger(replace(delivery, state="dead", reason=reason))
