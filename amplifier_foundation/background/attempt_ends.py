"""End an attempt at a delivery: commit its result, put the delivery back for another attempt, or give it up."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import BudgetExceeded, SessionNotFound, StaleEpoch
from amplifier_core.frozen import slotted
from amplifier_core.utils.secrets import redact_text

from ..sessions.failures import describe_with_login, find_provider_error
from ..sessions.lock import holder_of
from ..sessions.records import describe_worktree
from ..spawning.life import record_changes
from .approvals import WAITS
from .attempts import close_replaced
from .budgets import BUDGET
from .cancelling import CANCELLED
from .completion import completion_events
from .git import GitError
from .giving_back import OUTAGE, POSTPONED, WITH_QUEUE, give_back, make_due
from .mistakes import find_lack, is_mistake
from .outages import MACHINE, PROVIDER, asked_wait, is_of_service, waits_for_person
from .worktree_steps import finish_worktree, forget_worktree, give_up_worktree

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from amplifier_core.errors import RefusalError
    from amplifier_core.events import SessionEvent
    from amplifier_core.hook_data import SpawnOutcome
    from amplifier_core.storage import Delivery, Status

    from ..spawning.child import Spawn
    from .approval_inbox import ApprovalInbox
    from .approvals import Approval
    from .state import ActivityKind, BackgroundSessionState, Engine, Running
    from .worktrees import Result

LONGEST_PAUSE = 60.0
"""Seconds at most until a plugin that refused a session is asked again, unless it named a time."""


@slotted
class AttemptEnd:
    """Ends one attempt; after each of its verbs the delivery is done, dead, skipped or pending again.

    Raises `StaleEpoch` when a later claim has the delivery, `StoreUnavailable` and `SessionNotFound` as the store does.
    """

    engine: Engine
    background: BackgroundSessionState
    delivery: Delivery
    lost: int = 0
    """Its claims that the store could not take back, and counts as attempts."""
    ran: tuple[Spawn, SpawnOutcome] | None = None
    """Its session and how that ended, once it has."""
    is_stored: bool = False
    """Whether its end is stored: what fails after that ends nothing."""

    @property
    def attempts(self) -> int:
        """The attempts so far with this one."""
        return max(1, self.delivery.attempts - self.lost)

    async def store(self, running: Running, approvals: ApprovalInbox, spawn: Spawn, outcome: SpawnOutcome) -> None:
        """Store how its session ended: done, held for an answer, put back or given up."""
        self.ran = spawn, outcome
        if outcome.status == "completed":
            await self.commit(spawn, outcome)
            await approvals.forget()
        elif running.cancelled_by:
            await self.cancel(running, outcome)
            await approvals.forget()
        elif outcome.status == "interrupted":
            questions = await approvals.end_attempt()
            await self.hold(approvals, questions, record_changes(spawn, outcome))
        elif outcome.status == "cancelled":
            await self.interrupt(spawn, outcome)
        else:
            await self.fail(outcome.error or "failed", spawn.error, spawn, outcome)

    async def commit(self, spawn: Spawn, outcome: SpawnOutcome) -> None:
        """Store the result, its events and the end of the delivery together, then tell everybody.

        Work that is not wanted any more is skipped: what its session has changed stays on its branch.
        """
        if (reason := await self.background.tracking.find_withdrawal(self.delivery)) is not None:
            return await self.skip(reason, spawn, outcome)
        try:
            worktree = await finish_worktree(self.engine, self.background, self.delivery, spawn, outcome)
        except (GitError, OSError) as error:
            outcome = replace(outcome, status="failed", error=str(error))
            return await self.fail(f"its worktree cannot be finished: {error}", error, spawn, outcome)
        self._end_outage()
        self.background.outage.forget(self.delivery.delivery_id)
        emits = self._make_events(spawn, outcome, worktree)
        stored = await self.background.tracking.commit(self.delivery, emits, record_changes(spawn, outcome))
        self._note_end()
        for event in stored:
            self.engine.router.publish(event)
        if worktree is not None:
            await forget_worktree(self.delivery)
        facts = {"outcome": outcome, "emitted": stored, "worktree": describe_worktree(spawn.metadata)}
        self.engine.notify("completed", self.background, delivery=self.delivery, **facts)
        await self._tell_plugins(replace(self.delivery, state="done"), outcome)

    async def interrupt(self, spawn: Spawn, outcome: SpawnOutcome) -> None:
        """Put the delivery back in its place for the next start. An interruption is no attempt that failed."""
        cut, now = isinstance(spawn.error, asyncio.CancelledError), self.engine.clock.now()
        counted = not (cut or self.background.stopping)
        try:
            await self._put_back(
                "interrupted",
                now if counted else min(self.delivery.available_at, now),
                counted=counted,
                session={**record_changes(spawn, outcome), "status": "interrupted"},
            )
        except StaleEpoch:
            await close_replaced(self.engine, self.delivery)
            raise
        if spawn.error is not None and cut:
            raise spawn.error

    async def hold(
        self,
        approvals: ApprovalInbox,
        questions: Sequence[Approval],
        changes: Mapping[str, Any] | None = None,
    ) -> None:
        """Put the delivery back until a person answers its questions, or the first of them expires.

        A wait for an answer counts no attempt. An answer that came before the delivery was put back makes it due now.
        """
        reason, due = f"{WAITS}: {'; '.join(f'{each.id} {each.tool}' for each in questions)}", approvals.due(questions)
        self.background.postponed.add(self.delivery.delivery_id)
        await self._put_back(reason, due, counted=False, session=changes)
        self.engine.notify("held", self.background, delivery=self.delivery, questions=questions, until=due)
        if any(each.is_decided for each in await approvals.read()):
            await make_due(self.engine.store, self.delivery.delivery_id, self.engine.clock.now())

    async def postpone(self, refusal: RefusalError) -> None:
        """Try a refused delivery again at the time that the plugin named, or soon; skip it when the refusal is final.

        A postponement counts no attempt: quiet hours lose no event.
        """
        if refusal.final:
            reason = redact_text(str(refusal))
            await give_up_worktree(self.delivery)
            stored = await self.background.tracking.give_up(self.delivery, reason, [], None)
            self._note_end()
            for event in stored:
                self.engine.router.publish(event)
            skipped = await self.engine.store.drop(self.delivery.delivery_id, reason=reason)
            self.engine.refuse(self.background, self.delivery.event, reason, self.delivery.trigger)
            await forget_worktree(self.delivery)
            await self._tell_plugins(skipped)
            return
        soon = timedelta(seconds=self.engine.backoff(self.delivery.epoch, base=1.0, cap=LONGEST_PAUSE))
        self.background.postponed.add(self.delivery.delivery_id)
        due, reason = refusal.not_before or self.engine.clock.now() + soon, redact_text(refusal.reason)
        await self._put_back(f"{POSTPONED}{reason}", due, counted=False)
        self.engine.notify("postponed", self.background, delivery=self.delivery, reason=reason, until=due)

    async def wait_with_queue(self, cause: str) -> None:
        """Put the delivery back in its place until the cause is over: its whole queue waits. Tell each cause once."""
        is_told, self.background.blocked = self.background.blocked == cause, cause
        self.background.blocked_at = self.engine.clock.monotonic()
        self.background.postponed.add(self.delivery.delivery_id)
        reason = redact_text(cause)
        await self._put_back(f"{WITH_QUEUE}{reason}", self.delivery.available_at, counted=False)
        if not is_told:
            self.engine.notify("postponed", self.background, delivery=self.delivery, reason=reason, until=None)

    async def fail(
        self,
        reason: str,
        error: BaseException | None,
        spawn: Spawn | None = None,
        outcome: SpawnOutcome | None = None,
    ) -> None:
        """Try the delivery again after a pause, or give it up: after `max_attempts`, or at once for a mistake.

        An attempt without a free file descriptor or process, a service that answers, or a key that it takes, is none:
        that is no failure of the delivery.
        """
        if isinstance(error, BudgetExceeded):
            return await self.deny(error, spawn, outcome)
        if spawn is not None and spawn.error is None:
            spawn.error = error  # its session has ended well, and what comes after it has failed
        problem, lack, retry = find_provider_error(error), find_lack(error), self.background.config.retry
        excusable, delay, needs_person = problem is not None and is_of_service(problem), asked_wait(problem), False
        if error is not None and waits_for_person(error):  # until then, each try is in vain
            excusable, needs_person, reason = True, True, describe_with_login(error)
            delay = max(delay or 0.0, retry.max_delay)
        is_out = excusable and self.background.outage.excuses(self.delivery.delivery_id)
        if not excusable and not lack:
            self._end_outage()
        counted = not (lack or is_out)
        is_final = is_mistake(error) and not excusable
        if counted and (is_final or self.attempts >= self.background.config.max_attempts):
            await self.give_up(reason, spawn, outcome)
            return
        tries = self.background.outage.failures + 1 if is_out else self.attempts if counted else self.delivery.epoch
        is_asked = delay is not None
        if delay is None:
            delay = self.engine.backoff(tries, base=retry.delay, cap=retry.max_delay)
        due = self.engine.clock.now() + timedelta(seconds=delay)
        changes = self._find_changes(spawn, outcome)
        noted = f"{OUTAGE}{reason}" if is_out else reason  # the next start may have a key or a provider
        await self._put_back(noted, due, counted=counted, session=changes)
        if is_out:
            self.background.places[self.delivery.delivery_id] = self.delivery.available_at
            how = {"needs_person": needs_person, "asked": is_asked}
            self.background.outage.add(self.delivery.delivery_id, self.engine.clock, delay, **how)
            until = max(due, self.background.outage.due or due)  # another failure may ask for a longer pause
            self.engine.report_problem(self.background, PROVIDER, "degraded", reason, until)
            self.engine.notify("postponed", self.background, delivery=self.delivery, reason=reason, until=due)
        else:
            if lack:
                reason = f"{reason}. {lack}"
                self.engine.report_problem(self.background, MACHINE, "degraded", reason, due)
            self.engine.notify("retried", self.background, delivery=self.delivery, reason=reason, delay=delay)

    async def deny(
        self,
        denial: BudgetExceeded,
        spawn: Spawn | None = None,
        outcome: SpawnOutcome | None = None,
    ) -> None:
        """Try a delivery again when the spent budget goes on, or give it up. A wait for a budget counts no attempt."""
        reason, until = str(denial), denial.until
        self.engine.notify("budget_spent", self.background, delivery=self.delivery, reason=reason, until=until)
        if until is None:
            await self.give_up(reason, spawn, outcome)
            return
        self.background.postponed.add(self.delivery.delivery_id)
        changes = self._find_changes(spawn, outcome)
        await self._put_back(f"{POSTPONED}{reason}", until, counted=False, session=changes)
        if self.background.allowance.hold(denial):
            self.background.places[self.delivery.delivery_id] = self.delivery.available_at
            self.engine.report_problem(self.background, BUDGET, "degraded", reason, until)
        self.engine.notify("postponed", self.background, delivery=self.delivery, reason=reason, until=until)

    async def _put_back(self, reason: str, due: datetime, **how: Any) -> None:
        await give_back(self.engine.store, self.delivery, self.engine.clock, reason, due, **how)
        self.is_stored = True

    def _end_outage(self) -> None:
        """Let sessions begin again: the provider has answered, or something else has failed."""
        self.background.outage.end()
        self.engine.clear_problem(self.background, PROVIDER)
        self.engine.clear_problem(self.background, MACHINE)

    async def cancel(self, running: Running, outcome: SpawnOutcome | None = None) -> None:
        """Skip the delivery: a person has cancelled its turn. The history of its session can be resumed."""
        await self.skip(f"{CANCELLED}{running.cancelled_by}", running.spawn, outcome, running)

    async def skip(
        self,
        reason: str,
        spawn: Spawn | None = None,
        outcome: SpawnOutcome | None = None,
        cancelled: Running | None = None,
    ) -> None:
        """Skip the delivery: its turn is `cancelled`, or its work is not wanted."""
        if outcome is not None:
            outcome = replace(outcome, status="cancelled", error=reason)
        await self._set_aside(reason, spawn, outcome, "cancelled")
        if cancelled is not None:
            cancelled.is_cancelled = True
        skipped = await self.engine.store.drop(self.delivery.delivery_id, reason=reason)
        kind: ActivityKind = "skipped" if cancelled is None else "cancelled"
        self.engine.notify(kind, self.background, delivery=self.delivery, reason=reason)
        await self._tell_plugins(skipped)

    async def give_up(
        self,
        reason: str,
        spawn: Spawn | None = None,
        outcome: SpawnOutcome | None = None,
    ) -> None:
        """Make a dead letter of the delivery."""
        await self._set_aside(reason, spawn, outcome, "failed")
        self.background.given_up += 1
        self.engine.notify("dead", self.background, delivery=self.delivery, reason=reason)
        await self._tell_plugins(replace(self.delivery, state="dead", reason=reason))

    def _note_end(self) -> None:
        self.is_stored = True
        self.engine.lost.forget(self.delivery.delivery_id)

    async def _tell_plugins(self, ended: Delivery, outcome: SpawnOutcome | None = None) -> None:
        """Tell of an end that is stored: the claim is over, and no renewal cuts the plugins off."""
        if (running := self.background.running.get(ended.delivery_id)) is not None:
            running.is_stored = True
        if outcome is not None:
            await self.engine.plugins.after_spawn(outcome)
        await self.engine.plugins.after_trigger(ended)

    async def _set_aside(self, reason: str, spawn: Spawn | None, outcome: SpawnOutcome | None, status: Status) -> None:
        worktree = await give_up_worktree(self.delivery, spawn)
        changes = self._find_changes(spawn, outcome)
        if not changes and await self._is_left_running():
            changes = {"status": status, "error": reason}
        emits: list[SessionEvent] = []
        if spawn is not None and outcome is not None:
            emits = self._make_events(spawn, outcome, worktree)
        stored = await self.background.tracking.give_up(self.delivery, reason, emits, changes)
        self._note_end()
        for event in stored:
            self.engine.router.publish(event)
        await forget_worktree(self.delivery)
        self.background.outage.forget(self.delivery.delivery_id)

    async def _is_left_running(self) -> bool:
        """Return whether an earlier attempt has left its session as running: nobody goes on with it.

        Who talks in it holds it.
        """
        session_id = str(self.delivery.session_id)
        try:
            return (await self.engine.store.get(session_id)).status == "running" and holder_of(session_id) is None
        except SessionNotFound:
            return False

    def _make_events(self, spawn: Spawn, outcome: SpawnOutcome, worktree: Result | None) -> list[SessionEvent]:
        facts = worktree.facts() if worktree is not None else {}
        return completion_events(self.background.config, self.delivery, spawn, outcome, self.engine.clock.now(), facts)

    def _find_changes(self, spawn: Spawn | None, outcome: SpawnOutcome | None) -> dict[str, Any]:
        return record_changes(spawn, outcome) if spawn is not None and outcome is not None else {}
