"""Make one attempt at a delivery: prepare its session, run it, and store how it ended.

The worker imports this with the first delivery; `later.py` imports it before, once all triggers are armed.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from amplifier_core.cancellation import call_guarded
from amplifier_core.errors import RefusalError, SessionNotFound, StaleEpoch, StoreUnavailable

from ..sessions.failures import describe_failure
from ..sessions.recording import shield_to_completion
from ..spawning.life import run_spawn
from .attempt_ends import AttemptEnd
from .attempts import QueueBlocked, make_inbox, prepare_attempt
from .tracking import WorkNotWanted

if TYPE_CHECKING:
    from amplifier_core.storage import Delivery

    from .state import BackgroundSessionState, Engine, Running

logger = logging.getLogger(__name__)


async def attempt_delivery(engine: Engine, background: BackgroundSessionState, delivery: Delivery) -> None:
    """Make one attempt at a claimed delivery, and store how it ended. Raises `StaleEpoch`, `StoreUnavailable`."""
    running, end = background.running[delivery.delivery_id], AttemptEnd(engine, background, delivery)
    try:
        await call_guarded(_try_once, engine, background, delivery, running, end)
    except asyncio.CancelledError:
        if not running.cancelled_by:
            raise
        await shield_to_completion(end.cancel(running))  # its session did not run yet
    except Exception as error:  # of a store, or of a module before or after its session
        reason = describe_failure(error)
        if end.is_stored:
            logger.error("delivery %s has ended, and what comes after it failed: %s", delivery.delivery_id, reason)
        elif isinstance(error, StaleEpoch | StoreUnavailable):
            raise
        elif end.ran is None or isinstance(error, SessionNotFound):  # somebody deleted the session
            await end.fail(reason, error)
        else:
            spawn, outcome = end.ran
            await end.fail(reason, error, spawn, replace(outcome, status="failed", error=reason))


async def _try_once(
    engine: Engine, background: BackgroundSessionState, delivery: Delivery, running: Running, end: AttemptEnd
) -> None:
    end.lost = engine.lost.counts[delivery.delivery_id]
    if engine.member is not None and delivery.attempts > 1:
        end.lost = await engine.member.count_lost(delivery)
    if end.attempts > background.config.max_attempts:
        frozen = ", or did not renew its claim in time" if engine.member is not None else ""
        await end.give_up(f"the process ended {end.attempts - 1} times while it was handled{frozen}")
        return
    approvals = make_inbox(engine, background, delivery)
    if questions := await approvals.begin():
        await end.hold(approvals, questions)
        return
    allowance = background.allowance
    denial = await allowance.find_denial(str(delivery.session_id), engine.store, engine.clock)
    if denial is not None:
        await end.deny(denial)
        return
    try:
        spawn = await prepare_attempt(engine, background, delivery, approvals)
    except QueueBlocked as blocked:
        await end.wait_with_queue(str(blocked))
        return
    except RefusalError as refusal:
        await end.postpone(refusal)
        return
    except WorkNotWanted as error:
        await end.skip(str(error))
        return
    running.spawn, spawn.stopping = spawn, spawn.stopping or bool(running.cancelled_by)
    engine.notify("started", background, delivery=delivery, resumed=spawn.resumed)
    outcome = await run_spawn(spawn, background.config.time_limit)
    running.is_over = True
    if isinstance(spawn.error, StoreUnavailable):
        raise spawn.error
    await end.store(running, approvals, spawn, outcome)
