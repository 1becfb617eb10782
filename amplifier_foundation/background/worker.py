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

    A turn that a person cancels makes a dead letter, which is dropped at once: SKIPPED.

Invariants. The workers keep them, and the store enforces the first three:

* Lease and epoch. A claim holds for `Engine.lease` seconds and is renewed each third of that. After it, any worker may
  claim the delivery again; each claim raises the epoch.
* Fencing. `renew`, `commit`, `nack` and `dead_letter` carry the epoch of their claim. An older epoch gets `StaleEpoch`,
  and nothing of the call happens: of two workers on one delivery, one writes. On a shared store, a session whose claim
  is given up here stores nothing more.
* One transaction. `commit` and `dead_letter` write the session's record, the emitted events and the new state of the
  delivery together; `nack` the record and the state. Subscribers see events after that, never before.
* One session. The first claim sets `session_id`; later claims keep it and resume the turn from its last durable
  message.
* Attempts. A claim counts one; `nack(counted=False)` takes it back. Interruptions, postponements, outages of a
  provider, missing and refused keys, spent daily budgets, waits for approval and failures of the store are no attempts:
  a process remembers the claims that it could not give back (`Engine.lost`), and other hosts hear of them.
* Places. A queue handles its deliveries in the order of their acceptance. A wait of the whole queue, as for its folder,
  a provider or a budget, leaves each in its place, and so does an interruption. A failed attempt, or a refusal by a
  plugin, puts one behind those due before, unless they have its key.
* Approvals. A question is stored before its delivery is put back; an answer or its expiry makes that due (`approvals`).
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import nullcontext, suppress
from dataclasses import field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from amplifier_core.cancellation import call_guarded
from amplifier_core.clock import wait_for
from amplifier_core.errors import SessionNotFound, StaleEpoch, StoreUnavailable
from amplifier_core.frozen import slotted
from amplifier_core.ids import new_session_id
from amplifier_core.raised import describe_raised

from ..sessions.recording import shield_to_completion
from .budgets import BUDGET
from .giving_back import give_back, make_due
from .renewing import Renewing
from .state import Running
from .tasks import first_cause, see_through
from .watch import STORE_PAUSE

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Any

    from amplifier_core.storage import Delivery

    from .state import BackgroundSessionState, Engine

logger = logging.getLogger(__name__)

BOUNDED_LOOK = 1.0
"""Seconds between two looks of an idle worker at a queue with bounds that count on all hosts."""
LONGEST_PAUSE = 60.0
"""Seconds until sessions begin again, at the most, after a store could not take what others did."""
MOST_TRIES = 5
"""Tries to give back a delivery that the store refuses for another cause than that it cannot be used."""
STORE = "store"
"""The component with the problem when the store cannot be used."""


@slotted
class Worker:
    """One of a background session's `pool_size` workers."""

    engine: Engine
    background: BackgroundSessionState
    asked: float = 0.0
    """When it asked for its claim, in seconds of the monotonic clock."""
    renewing: Renewing = field(init=False)

    def __post_init__(self) -> None:
        self.renewing = Renewing(self.engine)

    async def run(self) -> None:
        """Handle deliveries until the background session stops; while the store cannot be used, wait for it."""
        try:
            while not self.background.stopping:
                self.background.wake.clear()
                try:
                    delivery = await self._claim_next()
                    if delivery is not None:
                        await self._handle(delivery)
                except StoreUnavailable as error:
                    await self._wait_for_store(str(error))
        finally:
            await self.renewing.stop()

    async def _claim_next(self) -> Delivery | None:
        """Return the next delivery to handle; None after a while without one."""
        clock = self.engine.clock
        now, held = clock.now(), self.background.allowance.until
        left = max(self.background.outage.seconds_left(clock), self.background.unstored.seconds_left(clock))
        if held is not None and held > now:
            await wait_for(clock, self.background.wake, held)
            return None
        is_draining = self.engine.member is not None and self.engine.member.draining
        if self.background.paused or self.engine.held_by or left > 0 or is_draining:
            await self._rest(now, left)
            return None
        if self.background.blocked and self._is_blocked():
            await self._rest(now, self.engine.poll)
            return None
        if held is not None:
            self.background.allowance.until = None
            self.engine.clear_problem(self.background, BUDGET)
        unstored, throttle = self.background.unstored, self.background.throttle if self.engine.member is None else None
        further = unstored.begin(clock)  # before anything is awaited: of the workers, one tries
        await self._restore_places()
        async with self.background.claiming if throttle is not None else nullcontext():
            # One `now` for both questions: a delivery that comes due between them is in the answer to the second.
            now = clock.now()
            is_full = throttle is not None and throttle.wait() > 0
            delivery = None if is_full else await self._claim(now)
            if throttle is not None and delivery is not None:
                throttle.add()
        if delivery is not None:
            self.background.wake.set()  # another one may be due for another worker
            place = self.background.places.pop(delivery.delivery_id, delivery.available_at)
            return replace(delivery, available_at=place)
        if unstored.until == further:  # nobody tries
            unstored.until = None
        if not is_full and self.background.bounds is None:  # the store has said that there is no other event to try
            self.background.outage.end_probe(clock)
            unstored.end_probe(clock)
        due = await self.engine.store.next_due(self.background.project, self.background.queue, now=now)
        held_back = throttle.wait() if throttle is not None else 0.0
        if self.engine.member is not None and self.background.bounds is not None:
            held_back = BOUNDED_LOOK
        await self._rest(now, held_back, due)
        return None

    def _is_blocked(self) -> bool:
        """Return whether all events still wait; after a pause, an attempt tells another cause."""
        from .attempts import QueueBlocked, check_queue

        try:
            check_queue(self.engine, self.background)
        except QueueBlocked as blocked:
            pause_ends = self.background.blocked_at + self.engine.poll
            if str(blocked) == self.background.blocked or self.engine.clock.monotonic() < pause_ends:
                return True
        self.background.blocked = ""
        return False

    async def _restore_places(self) -> None:
        """Make deliveries due in their places after a wait of the whole queue.

        Those wait that an outage holds.
        """
        places, now = self.background.places, self.engine.clock.now()
        held = {*self.background.outage.holds(places), *self.background.unstored.holds(places)}
        for delivery_id, due in list(places.items()):
            if delivery_id not in held:
                await make_due(self.engine.store, delivery_id, min(due, now))
                places.pop(delivery_id, None)

    async def _rest(self, since: datetime, throttled: float = 0.0, due: datetime | None = None) -> None:
        """Wait for new work, until the next look, the end of the throttle or the next due delivery.

        The lookout looks for workers that wait for nothing else.
        """
        self.renewing.rest()
        moments = [] if due is None else [due]
        if throttled or not self.engine.lookout.looks:
            moments.append(since + timedelta(seconds=min(self.engine.poll, throttled or self.engine.poll)))
        if moments:
            await wait_for(self.engine.clock, self.background.wake, min(moments))
        else:
            await self.background.wake.wait()

    async def _wait_for_store(self, problem: str, pause: float = STORE_PAUSE) -> None:
        """Report a problem of the store, and wait: new work is no reason to ask a store that does not answer."""
        self.engine.report_problem(self.background, STORE, "degraded", problem)
        self.engine.notify("store_failed", self.background, error=problem)
        due = self.engine.clock.now() + timedelta(seconds=pause)
        await wait_for(self.engine.clock, self.background.stop_asked, due)

    async def _claim(self, now: datetime) -> Delivery | None:
        self.asked = self.engine.clock.monotonic()
        place = (self.background.project, self.background.queue)
        how: dict[str, Any] = {"owner": self.engine.owner, "lease": self.engine.lease}
        how["session_id"] = new_session_id(self.background.config.name)
        if self.engine.member is None:
            claiming = asyncio.ensure_future(call_guarded(self.engine.store.claim, *place, **how, now=now))
        else:
            bounds = self.background.bounds
            claim = self.engine.member.store.claim
            claiming = asyncio.ensure_future(call_guarded(claim, *place, **how, bounds=bounds))
        try:
            delivery = await asyncio.shield(claiming)
        except asyncio.CancelledError:
            # The store may have claimed one all the same: give it back, or it waits for the end of its lease.
            await asyncio.wait({claiming})
            if not claiming.cancelled() and claiming.exception() is None and (claimed := claiming.result()) is not None:
                due = self.background.places.pop(claimed.delivery_id, claimed.available_at)
                await self._give_back(claimed, "interrupted", min(due, self.engine.clock.now()))
            raise
        self.engine.clear_problem(self.background, STORE)
        return delivery

    async def _give_back(self, delivery: Delivery, reason: str, due: datetime) -> None:
        await give_back(self.engine.store, delivery, self.engine.clock, reason, due, counted=False)

    async def _handle(self, delivery: Delivery) -> None:
        """Handle a delivery: before, the claim is ours; after, it is done, dead, skipped or pending again.

        Or a later claim has it. This holds also for a cancellation at any moment, with a store that works.
        """
        try:
            await self._handle_claimed(delivery)
        except asyncio.CancelledError:
            from .attempts import put_aside

            with suppress(StaleEpoch, StoreUnavailable, SessionNotFound):  # it is stored how the attempt ended
                await shield_to_completion(put_aside(self.engine, delivery))
            raise

    async def _handle_claimed(self, delivery: Delivery) -> None:
        """Make one attempt, and renew the claim meanwhile."""
        from .handling import attempt_delivery

        problem = ""
        await self.background.cancel_stale(delivery)
        if (left := self.engine.lost.take_left(delivery)) is not None:
            await self._put_back(delivery, left, tries=1)  # before its session is paid for again
            return
        attempting = call_guarded(attempt_delivery, self.engine, self.background, delivery)
        attempt = asyncio.Task(attempting, loop=asyncio.get_running_loop())  # never eager: it looks for itself below
        self.background.running[delivery.delivery_id] = running = Running(delivery, attempt)
        self.background.postponed.discard(delivery.delivery_id)
        self.renewing.begin(running, self.asked)
        try:
            failure = await see_through(attempt)
            if (error := running.lost or failure) is not None:
                raise error
            self.background.unstored.end()
        except* StaleEpoch as stale:
            logger.info("%s", first_cause(stale))
        except* Exception as errors:  # of the store: it could not take how the attempt ended
            problem = describe_raised(first_cause(errors))
        finally:
            self.renewing.end()
            self.background.finish(delivery)
        if problem:
            await self._put_back(delivery, problem, is_hung=running.hung and running.lost is not None)

    async def _put_back(
        self, delivery: Delivery, problem: str, *, tries: int = MOST_TRIES, is_hung: bool = False
    ) -> None:
        """Give a delivery back once the store can be written, or leave it to the next start.

        After so many `tries` with other errors of the store, it is left to the end of its lease, and others are handled
        meanwhile; its next claim gives it back first. This counts no attempt: the store failed, not the delivery. The
        claim is lost until it is given back, unless this process hung. A store that takes claims may still have no room
        for an answer, which is paid for each time: the pauses until sessions begin again grow, and they begin one by
        one, each after a pause, until one is stored.
        """
        unstored = self.background.unstored
        pause = min(LONGEST_PAUSE, STORE_PAUSE * 2.0 ** min(unstored.failures, 10))  # 2.0**1024 is no number
        unstored.add(delivery.delivery_id, self.engine.clock, pause)
        due = self.engine.clock.now() + timedelta(seconds=pause)
        if not is_hung:
            self.engine.lost.add(delivery)
        refusals = 0
        while not self.background.stopping:
            try:
                await self._wait_for_store(problem, STORE_PAUSE * 2.0**refusals)
                await call_guarded(self._give_back, delivery, problem, due)
            except asyncio.CancelledError:  # `_handle` gives it back
                if not is_hung:
                    self.engine.lost.give_back(delivery)
                raise
            except StaleEpoch:  # the write had succeeded, or the lease is over
                return
            except StoreUnavailable as error:
                problem = str(error)
            except Exception as error:
                problem, refusals = describe_raised(error), refusals + 1
                if refusals == tries:
                    left = "delivery %s cannot be given back, and waits for the end of its lease: %s"
                    logger.error(left, delivery.delivery_id, problem)
                    self.engine.lost.leave(delivery, problem)
                    return
            else:
                if not is_hung:
                    self.engine.lost.give_back(delivery)
                self.background.places[delivery.delivery_id] = delivery.available_at
                return
