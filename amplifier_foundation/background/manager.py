"""Run background sessions: each wakes on its triggers and handles what they accepted, once, whatever is killed when."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from typing import TYPE_CHECKING, Any

from amplifier_core.clock import Clock, SystemClock
from amplifier_core.errors import SessionConflict, SessionNotFound
from amplifier_core.triggers import TriggerEvent, TriggerType

from ..paths import project_of
from ..spawn import prepared_bundle
from .admission import Gate, SlidingCount
from .lane import MANUAL, Activity, Engine, Lane, lane_key, manual_key
from .watch import Watch, accept, first_cause
from .worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from amplifier_core.plugins import Plugins
    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import DurableStore

    from ..bundles.model import PreparedBundle
    from ..events import EventRouter
    from .config import BackgroundSessionConfig

ARMING = 60.0
"""Seconds that a start waits for the triggers of a background session to be armed."""

logger = logging.getLogger(__name__)


class BackgroundSessionManager:
    """Starts, watches and stops the background sessions of one parent session.

    `bundle` is the prepared bundle that declares them: a background session that names none of its own runs that one.
    What their triggers accept is in `session_storage` before it is handled, and stays there until it was. When the
    parent ends, those with `stop_on_parent_stop` are stopped; `stop_all`, or leaving the manager as a context manager,
    stops every one.
    """

    def __init__(
        self,
        parent_session: AmplifierSession,
        event_router: EventRouter,
        session_storage: DurableStore,
        plugins: Plugins,
        *,
        bundle: PreparedBundle,
        clock: Clock | None = None,
        observer: Callable[[Activity], None] | None = None,
    ) -> None:
        self._engine = Engine(
            parent=parent_session,
            store=session_storage,
            router=event_router,
            plugins=plugins,
            owner=f"{os.getpid()}-{secrets.token_hex(4)}",
            clock=clock or SystemClock(),
            observers=[observer] if observer else [],
        )
        self._bundle = bundle
        self._project = project_of(parent_session.coordinator.get_capability("session.working_dir"))
        self._lanes: dict[str, Lane] = {}
        self._watches: dict[str, list[Watch]] = {}
        self._started = 0
        parent_session.coordinator.register_cleanup(self._on_parent_stop)

    async def start(self, config: BackgroundSessionConfig) -> str:
        """Start a background session; return its id when its triggers are armed.

        Raises `SessionConflict` for a name that runs already, `UnknownName` and `TriggerConfigError` for a trigger or
        runner that cannot be made, `BundleError` for a bundle that cannot.
        """
        return await self._start(config)

    async def _start(self, config: BackgroundSessionConfig, *, catches_up: bool = True) -> str:
        self._refuse_a_second(config.name)
        lane = await self._lane(config)
        watches = [Watch(self._engine, lane, key, trigger) for key, trigger in lane.declared.items()]
        for watch in watches:
            await watch.configured()
        if catches_up:
            await self._catch_up(lane)
        self._refuse_a_second(config.name)
        self._lanes[lane.session_id] = lane
        self._watches[lane.session_id] = watches
        lane.task = asyncio.create_task(self._live(lane, watches), name=f"background-{config.name}")
        await self._armed(lane, watches)
        return lane.session_id

    def _refuse_a_second(self, name: str) -> None:
        if any(lane.config.name == name for lane in self._lanes.values()):
            raise SessionConflict(name, f"background session '{name}' runs already; stop it first")

    async def _armed(self, lane: Lane, watches: Sequence[Watch]) -> None:
        """Wait until the triggers are armed; one that is not after `ARMING` seconds is named as the lane's reason."""
        for watch in await _late(watches):
            reason = f"not armed after {ARMING:g} s: {watch.declared.module}"
            self._engine.troubled(lane, watch.name, "running", reason)
            logger.warning("background session '%s': %s", lane.config.name, reason)
        self._engine.judge(lane)

    async def _catch_up(self, lane: Lane) -> None:
        """Skip those of the events that waited which are not to be handled any more."""
        if lane.config.catch_up == "all":
            return
        kept: set[str | None] = set()
        for each in await self._engine.store.deliveries(
            project=lane.project, lane=lane.key, state="pending", limit=1_000_000
        ):
            if each.session_id is not None or (lane.config.catch_up == "latest" and each.key not in kept):
                kept.add(each.key)
                continue
            reason = f"it waited while nothing ran (catch_up: {lane.config.catch_up})"
            await self._engine.store.drop(each.delivery_id, reason=reason)

    async def _lane(self, config: BackgroundSessionConfig) -> Lane:
        if config.runner is not None:
            self._engine.plugins.runners.get(config.runner)  # now, and not at the first event
        prepared = await prepared_bundle(self._source(config.bundle)) if config.bundle else self._bundle
        self._started += 1
        return Lane(
            session_id=f"bg-{config.name}-{self._started:04d}",
            key=lane_key(self._bundle.bundle.name, config.name),
            project=self._project,
            config=config,
            prepared=prepared,
            gate=Gate(config, self._engine.clock),
            throttle=SlidingCount(config.throttle, self._engine.clock) if config.throttle else None,
        )

    def _source(self, bundle: str) -> str:
        base = self._bundle.bundle.base_path
        return str(base / bundle) if base is not None and bundle.startswith(("./", "../")) else bundle

    async def _live(self, lane: Lane, watches: list[Watch]) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for watch in watches:
                    watch.task = group.create_task(watch.run())
                for _ in range(lane.config.pool_size):
                    group.create_task(Worker(self._engine, lane).run())
        except* Exception as errors:
            cause = first_cause(errors)
            self._engine.troubled(lane, lane.key, "failed", str(cause) or type(cause).__name__)
            self._engine.tell("failed", lane, reason=lane.reason)
            logger.error("background session '%s' failed: %s", lane.config.name, lane.reason)

    async def _on_parent_stop(self) -> None:
        leaving = [session_id for session_id, lane in self._lanes.items() if lane.config.stop_on_parent_stop]
        await asyncio.gather(*(self.stop(session_id) for session_id in leaving))

    async def stop(self, session_id: str, *, grace: float = 10.0) -> bool:
        """Stop a background session; return whether it was running.

        Its triggers stop, sessions at work get `grace` seconds to finish, and what is not finished then is interrupted
        and gone on with at the next start.
        """
        lane = self._lanes.get(session_id)
        if lane is None or lane.task is None:
            return False
        self._engine.turn(lane, "stopping")
        lane.wake.set()
        await asyncio.gather(*(watch.stop() for watch in self._watches[session_id]))
        await _ended(lane.task, grace)
        self._engine.turn(lane, "stopped")
        self._lanes.pop(session_id, None)  # who was cancelled meanwhile may have asked a second time
        self._watches.pop(session_id, None)
        return True

    async def reconcile(self, bundle: PreparedBundle, *, grace: float = 10.0) -> list[str]:
        """Run what `bundle` declares from now on: start what is new, end what is gone, and begin anew what is changed.

        What is accepted stays so: an ended session goes on where it was. Returns the names of what changed; one that
        cannot be started raises as `start` does, when the others are.
        """
        before, self._bundle = self._bundle, bundle
        same_bundle = before.bundle.digest == bundle.bundle.digest
        wanted = {each.name: each for each in bundle.bundle.background_sessions if each.start_on_parent_start}
        lanes = {lane.config.name: lane for lane in self._lanes.values()}
        gone = [lane for name, lane in lanes.items() if wanted.get(name) != lane.config or not same_bundle]
        await asyncio.gather(*(self.stop(lane.session_id, grace=grace) for lane in gone))
        failures: list[Exception] = []
        fresh = [config for name, config in wanted.items() if name not in lanes or lanes[name] in gone]
        for config in fresh:
            try:
                await self._start(config, catches_up=False)
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return sorted({lane.config.name for lane in gone} | {config.name for config in fresh})

    def wake(self, name: str) -> None:
        """Have a background session look for what was accepted by another process. Raises `SessionNotFound`."""
        self._find(name).wake.set()

    async def stop_all(self, *, grace: float = 10.0) -> None:
        """Stop every background session, all at once."""
        await asyncio.gather(*(self.stop(session_id, grace=grace) for session_id in list(self._lanes)))

    def interrupt(self) -> None:
        """Interrupt what is at work now; it is gone on with at the next start."""
        for lane in self._lanes.values():
            if lane.task is not None:
                lane.task.cancel()

    async def fire(self, name: str, data: Mapping[str, Any] | None = None) -> bool:
        """Wake a background session by hand; return whether the event was accepted. Raises `SessionNotFound`."""
        lane = self._find(name)
        event = TriggerEvent(TriggerType.MANUAL, MANUAL, timestamp=self._engine.clock.now(), data=dict(data or {}))
        return await accept(self._engine, lane, manual_key(lane.key, lane.config.triggers), event)

    def _find(self, name: str) -> Lane:
        for session_id, lane in self._lanes.items():
            if name in (session_id, lane.config.name):
                return lane
        raise SessionNotFound(name)

    def get_status(self, session_id: str | None = None) -> dict[str, Any]:
        """Return the state of every background session by id, or of one."""
        if session_id is not None:
            return self._find(session_id).status_row()
        return {session_id: lane.status_row() for session_id, lane in self._lanes.items()}

    async def __aenter__(self) -> BackgroundSessionManager:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        await self.stop_all(grace=10.0 if kind is None else 0.0)


async def _late(watches: Sequence[Watch]) -> list[Watch]:
    """Wait until the triggers are armed; return those that are not after `ARMING` seconds."""
    if not watches:
        return []
    arming = {asyncio.ensure_future(watch.armed.wait()): watch for watch in watches}
    try:
        _, waiting = await asyncio.wait(arming, timeout=ARMING)
    finally:
        for each in arming:
            each.cancel()
    return [watch for each, watch in arming.items() if each in waiting]


async def _ended(task: asyncio.Task[None], grace: float) -> None:
    done, _ = await asyncio.wait({task}, timeout=grace)
    if not done:
        task.cancel()
        await asyncio.wait({task})
    if not task.cancelled() and task.exception() is not None:
        logger.error("a background session ended badly: %s", task.exception())
