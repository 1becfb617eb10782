"""Prepare a background session for its start: its bundle, its waiting events, its triggers."""

from __future__ import annotations

import asyncio
import logging
import math
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from amplifier_core.cancellation import call_guarded
from amplifier_core.clock import wait_for
from amplifier_core.errors import BundleValidationError, DeliveryConflict, SessionNotFound, StoreUnavailable
from amplifier_core.raised import describe_raised
from amplifier_core.utils.secrets import redact_text

from ..bundle.sections import WORKFLOW_RUNNER
from ..documents.local_paths import is_remote
from ..paths import fetched_root
from .admission import Gate, SlidingCount
from .approvals import resume_answered
from .budgets import Allowance
from .cancelling import CANCELLED
from .giving_back import resume_postponed
from .keys import queue_key
from .state import BackgroundSessionState
from .status_log import StatusLog
from .tasks import ending_program, first_cause, run_apart
from .tracking import Tracking
from .watch import LONGEST_PAUSE, Watch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from ..bundle.background_config import BackgroundSessionConfig
    from ..bundle.model import PreparedBundle
    from .state import Engine

MOST_DEAD = 100
"""The newest dead letters in which a start looks for cancelled ones."""
ARMING = 60.0
"""Seconds until a start stops waiting for the triggers to be armed."""
NAME_AFTER = 10.0
"""Seconds until the log names those that it waits for."""

logger = logging.getLogger(__name__)


async def prepare_state(
    engine: Engine, config: BackgroundSessionConfig, declared_in: PreparedBundle | None, project: str, number: int
) -> BackgroundSessionState:
    """Return the state of a background session before its start. Raises `UnknownName`, `BundleError`, `GitError`."""
    if config.runner is not None:
        from ..spawning.runners import find_runner

        find_runner(engine.plugins, config.runner)  # now, and not at the first event
    base = declared_in.bundle.base_path if declared_in is not None else None
    prepared = declared_in
    if config.bundle:
        from ..bundle.registry import BundleRegistry
        from ..spawn import prepared_bundle

        await _fetch_worker(config.bundle, declared_in)
        is_beside = base is not None and config.bundle.startswith(("./", "../"))
        names = BundleRegistry(plugins=engine.plugins).names()
        prepared = await prepared_bundle(f"{base}/{config.bundle}" if is_beside else config.bundle, names)
        if declared_in is not None and (guard := declared_in.bundle.guard) is not None:
            guard.check_bundle(prepared.bundle)
            prepared = await prepared.bundle.prepare()  # its code is guarded from now on
    if prepared is None:
        raise BundleValidationError(f"background session '{config.name}' has no bundle: give its `bundle`")
    if config.workflow is not None:
        from ..spawning.runners import find_runner

        find_runner(engine.plugins, WORKFLOW_RUNNER).check(prepared.bundle, config.workflow)  # type: ignore[attr-defined]
    session_id, queue = f"bg-{config.name}-{number:04d}", queue_key((declared_in or prepared).bundle.name, config.name)
    background = BackgroundSessionState(
        session_id=session_id,
        queue=queue,
        project=project,
        config=config,
        prepared=prepared,
        gate=Gate(config, engine.clock),
        clock=engine.clock,
        status_log=StatusLog(engine.router, engine.clock, session_id),
        tracking=Tracking.of(engine, project, config),
        declared_in=declared_in.bundle if declared_in is not None else None,
        allowance=Allowance.of(config, prepared.bundle, project, queue),
        throttle=SlidingCount(config.throttle, engine.clock) if config.throttle else None,
    )
    if config.worktree is not None:
        from .worktree_steps import begin_worktrees

        with suppress(StoreUnavailable):  # the triggers and workers wait for it
            await begin_worktrees(engine, background)
    return background


async def _fetch_worker(source: str, declared_in: PreparedBundle | None) -> None:
    """Fetch the bundle of a background session from public addresses alone, where a fetched bundle named it."""
    layers = declared_in.bundle.layers or [declared_in.bundle] if declared_in is not None else []
    named_by = [each for each in layers if any(one.bundle == source for one in each.background_sessions)]
    if is_remote(source) and any(fetched_root(each.base_path) is not None for each in named_by):
        from ..sources import default_cache

        await asyncio.to_thread(default_cache().fetch, source, public_only=True)


def make_watches(engine: Engine, background: BackgroundSessionState) -> list[Watch]:
    """Return a watch for each trigger; none in a process that leaves triggers to others."""
    if engine.share is not None and engine.leadership is None:
        return []
    return [Watch(engine, background, key, trigger) for key, trigger in background.declared.items()]


async def skip_waiting_events(engine: Engine, background: BackgroundSessionState) -> None:
    """Skip waiting events as `catch_up` says, unless another host has worked on them meanwhile.

    A delivery with a session was begun: it is always finished.
    """
    if background.config.catch_up == "all":
        return
    if engine.member is not None and await engine.member.has_company(background.project):
        return
    kept: set[str | None] = set()
    for each in await engine.store.deliveries(
        project=background.project, queue=background.queue, state="pending", limit=1_000_000
    ):
        if each.session_id is not None or (background.config.catch_up == "latest" and each.key not in kept):
            kept.add(each.key)
            continue
        reason = f"it waited while nothing ran (catch_up: {background.config.catch_up})"
        await engine.store.drop(each.delivery_id, reason=reason)


async def has_work(engine: Engine, background: BackgroundSessionState) -> bool:
    """Return whether an event is at work here, or waits and is not postponed, nor for another host or a key."""
    if background.running:
        return True
    if background.outage.needs_person or background.blocked:
        return False
    place, host = (background.project, background.queue), engine.member.host if engine.member is not None else None
    limit = len(background.postponed) + 1 if host is None else 10_000
    pending = await engine.store.deliveries(project=place[0], queue=place[1], state="pending", limit=limit)
    mine = [each for each in pending if getattr(each, "only_on", None) in (None, host)]
    return any(each.delivery_id not in background.postponed for each in mine)


async def take_up_work(engine: Engine, background: BackgroundSessionState) -> None:
    """Free lost work of the tracker, skip what a killed process was cancelling, and make deliveries due.

    Those are the answered and the postponed ones. The others that wait for an answer count as postponed.
    """
    with suppress(StoreUnavailable):  # the triggers and workers wait for it
        for each in await background.tracking.recover(background.queue):
            logger.info("background session '%s': %s was begun by a session that is gone", background.config.name, each)
        place, now = (background.project, background.queue), engine.clock.now()
        for dead in await engine.store.deliveries(project=place[0], queue=place[1], state="dead", limit=MOST_DEAD):
            if str(dead.reason).startswith(CANCELLED):
                with suppress(DeliveryConflict):  # a person was faster
                    await engine.store.drop(dead.delivery_id, reason=str(dead.reason))
        background.postponed |= await resume_answered(engine.store, *place, now, background.prepared.bundle.digest)
        background.postponed |= await resume_postponed(engine.store, *place, now)


async def wait_until_armed(
    engine: Engine, started: Sequence[BackgroundSessionState], watches: Mapping[str, Sequence[Watch]]
) -> None:
    """Wait until the triggers of some background sessions are armed, all at once; `watches` are those of each id."""
    running = [each for each in started if each.status != "stopped"]
    await asyncio.gather(*(_wait_until_armed(engine, each, watches.get(each.session_id, ())) for each in running))


async def _wait_until_armed(engine: Engine, background: BackgroundSessionState, watches: Sequence[Watch]) -> None:
    """Wait for the triggers, and name the late ones; after `ARMING` seconds, a late trigger is the reason."""
    name = background.config.name
    arming = {asyncio.ensure_future(watch.armed.wait()): watch for watch in watches}
    if arming:
        try:
            _, late = await asyncio.wait(arming, timeout=min(NAME_AFTER, ARMING))
            if late:
                modules = ", ".join(sorted({arming[each].declared.module for each in late}))
                logger.warning(
                    "background session '%s' waits for the ready() of %s, as `up --once` does", name, modules
                )
                _, late = await asyncio.wait(late, timeout=max(0.0, ARMING - NAME_AFTER))
        finally:
            for each in arming:
                each.cancel()
        for each in late:
            reason = f"not armed after {ARMING:g} s: {arming[each].declared.module}"
            engine.report_problem(background, arming[each].name, "running", reason)
            logger.warning("background session '%s': %s", name, reason)
    engine.update_status(background)


async def keep_running(
    engine: Engine, background: BackgroundSessionState, run_once: Callable[[], Awaitable[None]]
) -> None:
    """Run triggers and workers until a stop; whatever ends them before, run them again after a pause."""
    failures, problem = 0, ""

    async def run_all() -> None:
        async with asyncio.TaskGroup() as group:
            logging_changes = group.create_task(call_guarded(background.status_log.run))
            await run_once()
            logging_changes.cancel()

    while not background.stopping:
        try:
            with ending_program():
                await run_apart(run_all(), background.queue, math.inf)
        except Exception as error:
            problem = redact_text(describe_raised(first_cause(error)))
        if not background.stopping:
            failures += 1
            await _pause_after_failure(engine, background, problem, failures)


async def _pause_after_failure(engine: Engine, background: BackgroundSessionState, problem: str, failures: int) -> None:
    """Report that the triggers and workers ended by themselves, and wait before the next try."""
    pause = timedelta(seconds=engine.backoff(failures, base=0.5, cap=LONGEST_PAUSE))
    next_try = engine.clock.now() + pause
    engine.report_problem(background, background.queue, "degraded", problem, next_try)
    engine.notify("failed", background, reason=problem)
    logger.error("background session '%s' failed, and is tried again: %s", background.config.name, problem)
    await wait_for(engine.clock, background.wake, next_try)
    engine.clear_problem(background, background.queue)


def find_declaration(prepared: PreparedBundle | None, name: str) -> BackgroundSessionConfig:
    """Return the declaration of a background session in its bundle. Raises `SessionNotFound`."""
    for each in prepared.bundle.background_sessions if prepared is not None else ():
        if each.name == name:
            return each
    raise SessionNotFound(name)
