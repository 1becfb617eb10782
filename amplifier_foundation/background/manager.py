"""Start, stop and reconcile the background sessions of one parent session."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from functools import partial
from typing import TYPE_CHECKING, Any

from amplifier_core.cancellation import call_guarded
from amplifier_core.clock import Clock, SystemClock
from amplifier_core.errors import SessionConflict, SessionNotFound, StoreUnavailable
from amplifier_core.plugins import load_plugins
from amplifier_core.triggers import TriggerEvent, TriggerType

from ..paths import project_of
from ..spawning.family import has_ended
from .accepting import accept
from .file_causes import FileCauses
from .keys import MANUAL, manual_key, queue_key
from .lifecycle import read_wish, save_wish
from .partial_store import complete_store
from .starting import (
    find_declaration,
    has_work,
    keep_running,
    make_watches,
    prepare_state,
    skip_waiting_events,
    take_up_work,
    wait_until_armed,
)
from .state import Activity, BackgroundSessionState, Engine
from .tasks import end_task, gather_all
from .worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from amplifier_core.plugins import Plugins
    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import DurableStore, SessionStorage, SessionStore

    from ..bundle.background_config import BackgroundSessionConfig
    from ..bundle.model import PreparedBundle
    from ..events import EventRouter
    from ..spawning.own_loops import SessionLoops
    from .hosts.sharing import Share
    from .lifecycle import Wish
    from .state import Running
    from .trigger_making import TriggerLoader
    from .watch import Watch

logger = logging.getLogger(__name__)

TOGETHER = 32
"""Background sessions that are armed at a time."""
STORE_FILE = "store file"
"""The component with the problem when the store was damaged or lost; workers may still be able to use it."""


class BackgroundSessionManager:
    """Starts, watches and stops the background sessions of one parent session.

    Parent and router suffice. `session_storage` keeps the accepted events until they are handled: durably in a full
    store, in memory beside a small storage (save, load, exists) or without one. `trigger_loader` makes triggers in
    place of `plugins`, which default to the parent's, or the installed ones. `bundle` is the prepared bundle that
    declares the background sessions; one without a `bundle` of its own runs it. Managers with the same `files` see the
    loops between them; `check_folder` raises `StoreUnavailable` when events can be stored no more. With `loops`, each
    running session has an event loop and a thread of its own, unless its runner comes from a package. With `share`,
    other hosts work on the store.

    When the parent ends, background sessions with `stop_on_parent_stop` are stopped; `stop_all`, or leaving the manager
    as a context manager, stops all of them.
    """

    def __init__(
        self,
        parent_session: AmplifierSession,
        event_router: EventRouter,
        session_storage: DurableStore | SessionStore | SessionStorage | None = None,
        trigger_loader: TriggerLoader | None = None,
        *,
        plugins: Plugins | None = None,
        bundle: PreparedBundle | None = None,
        clock: Clock | None = None,
        observer: Callable[[Activity], None] | None = None,
        session_observers: Sequence[Callable[[AmplifierSession], None]] = (),
        files: FileCauses | None = None,
        check_folder: Callable[[], None] = lambda: None,
        loops: SessionLoops | None = None,
        share: Share | None = None,
    ) -> None:
        self._engine = Engine(
            parent=parent_session,
            store=complete_store(session_storage),
            router=event_router,
            plugins=plugins or parent_session.plugins or load_plugins(),
            trigger_loader=trigger_loader,
            owner=f"{os.getpid()}-{secrets.token_hex(4)}",
            clock=clock or SystemClock(),
            observers=[observer] if observer else [],
            session_observers=session_observers,
            files=files or FileCauses(),
            check_folder=check_folder,
            loops=loops,
            share=share,
        )
        self._bundle = bundle
        self._project = project_of(parent_session.coordinator.get_capability("session.working_dir"))
        self._sessions: dict[str, BackgroundSessionState] = {}
        self._named: dict[str, BackgroundSessionState] = {}  # the same ones
        self._watches: dict[str, list[Watch]] = {}
        self._started = 0
        parent_session.coordinator.register_cleanup(self._on_parent_stop)

    async def start(self, config: BackgroundSessionConfig) -> str:
        """Start a background session; return its id when its triggers are armed.

        One that a person paused starts paused; one that a person stopped stays `stopped`: see `change`. Raises
        `SessionConflict` for a running name or an ended parent, `UnknownName`, `TriggerConfigError` and `BundleError`.
        """
        [session_id] = await self.start_all([config])
        return session_id

    async def start_all(self, configs: Sequence[BackgroundSessionConfig]) -> list[str]:
        """Start background sessions in their order; return their ids when the triggers of all are armed.

        Some are armed at a time, so that what they store shares its way to the disk. Raises as `start` does.
        """
        ids = []
        for first in range(0, len(configs), TOGETHER):
            started = [await self._start(config) for config in configs[first : first + TOGETHER]]
            await wait_until_armed(self._engine, started, self._watches)
            ids += [each.session_id for each in started]
        return ids

    async def _start(self, config: BackgroundSessionConfig, *, catches_up: bool = True) -> BackgroundSessionState:
        self._refuse_start(config.name)
        self._started += 1
        background = await prepare_state(self._engine, config, self._bundle, self._project, self._started)
        watches = make_watches(self._engine, background)
        for watch in watches:
            await watch.prepare()
        if (wish := await self._read_wish(background.queue)) != "stopped" and catches_up:
            await skip_waiting_events(self._engine, background)
        self._refuse_start(config.name)
        await self._forget(config.name)
        self._sessions[background.session_id] = self._named[config.name] = background
        if wish == "stopped":
            self._stand_by(background)
            return background
        background.paused = wish == "paused"
        self._watches[background.session_id] = watches
        running = keep_running(self._engine, background, partial(self._run_once, background, watches))
        background.task = asyncio.create_task(running, name=f"background-{config.name}")
        return background

    async def change(self, name: str, wish: Wish, *, grace: float = 10.0, save: bool = True) -> str:
        """Have a background session run, pause or be stopped from now on; return its id.

        The wish is durable: it holds over restarts and edits of the bundle. A paused one accepts events and handles
        none. A stopped one accepts none, and keeps its waiting events. A declared one that does not run yet is started.
        Without `save`, the wish is stored already.
        Raises `SessionNotFound`, and as `start` does.
        """
        background = next((each for each in self._sessions.values() if each.is_called(name)), None)
        config = background.config if background is not None else find_declaration(self._bundle, name)
        if save:
            await save_wish(self._engine.store, self._project, self._queue(config.name, background), wish)
        if background is None:
            return await self.start(config)
        if wish == "stopped":
            await self.stop(background.session_id, grace=grace)
            self._stand_by(background)
        elif background.status == "stopped":
            return await self.start(config)
        else:
            background.paused = wish == "paused"
            background.wake.set()
            self._engine.update_status(background)
        return background.session_id

    async def restart(self, name: str, *, grace: float = 10.0) -> str:
        """Stop a background session, and start it anew, also one that was stopped or paused; return its new id.

        It is not stopped where that cannot be stored, as on a full disk. Raises as `change` does.
        """
        background = self._find(name)
        await save_wish(self._engine.store, self._project, background.queue, "running")
        await self.stop(background.session_id, grace=grace)
        return await self.change(name, "running", save=False)

    async def is_wanted(self, config: BackgroundSessionConfig) -> bool:
        """Return whether it starts with its parent: its bundle says so, or a person started it before."""
        return config.start_on_parent_start or await self._read_wish(self._queue(config.name)) in ("running", "paused")

    def _queue(self, name: str, background: BackgroundSessionState | None = None) -> str:
        if background is not None:
            return background.queue
        return queue_key(self._bundle.bundle.name, name) if self._bundle is not None else name

    async def follow_wishes(self) -> None:
        """Do what people asked on other hosts. Raises as `change` does."""
        for name, queue, *_ in self.names:
            background = next((each for each in self._sessions.values() if each.config.name == name), None)
            wish = await self._read_wish(queue)
            if wish not in (None, background.wish if background is not None else "stopped"):
                await self.change(name, wish, save=False)

    async def _read_wish(self, queue: str) -> Wish | None:
        try:
            return await read_wish(self._engine.store, self._project, queue)
        except StoreUnavailable:  # the triggers and workers wait for it
            return None

    def _refuse_start(self, name: str) -> None:
        if has_ended(self._engine.parent):
            problem = f"background session '{name}' cannot start: its parent has ended; begin another"
            raise SessionConflict(name, problem)
        if (known := self._named.get(name)) is not None and known.status != "stopped":
            raise SessionConflict(name, f"background session '{name}' runs already; stop it first")

    async def _forget(self, name: str) -> None:
        """Forget the stopped background session of that name."""
        if (known := self._named.pop(name, None)) is not None:
            await self._end_standby(known.session_id)
            del self._sessions[known.session_id]

    def _stand_by(self, background: BackgroundSessionState) -> None:
        """Let the triggers of a stopped background session that can do so say that it is stopped."""
        self._engine.set_status(background, "stopped", f"start it with: amplifier start {background.config.name}")
        watches = make_watches(self._engine, background)
        self._watches[background.session_id] = watches
        name = f"standby-{background.config.name}"
        background.task = asyncio.create_task(gather_all([watch.stand_by() for watch in watches]), name=name)

    async def _end_standby(self, session_id: str) -> None:
        watches = self._watches.pop(session_id, [])
        await asyncio.gather(*(watch.stop() for watch in watches))
        task = self._sessions[session_id].task
        if task is not None:
            await end_task(task, 0.0)

    async def _run_once(self, background: BackgroundSessionState, watches: list[Watch]) -> None:
        await take_up_work(self._engine, background)
        async with self._engine.lookout.serving(background), asyncio.TaskGroup() as group:
            for watch in watches:
                watch.task = group.create_task(call_guarded(watch.run), name=f"trigger {watch.name}")
            for _ in range(background.config.workers):
                group.create_task(call_guarded(Worker(self._engine, background).run))

    async def _on_parent_stop(self) -> None:
        leaving = [session_id for session_id, each in self._sessions.items() if each.config.stop_on_parent_stop]
        await asyncio.gather(*(self.stop(session_id) for session_id in leaving))

    async def stop(self, session_id: str, *, grace: float = 10.0) -> bool:
        """Stop a background session; return whether it was running.

        Its triggers stop. Running sessions get `grace` seconds to finish; then they are interrupted, and the next start
        resumes them. The row of its status stays, as `stopped`.
        """
        background = self._sessions.get(session_id)
        if background is None or background.task is None:
            return False
        if background.status == "stopped":
            await self._end_standby(session_id)
            return False
        self._engine.set_status(background, "stopping")
        background.wake.set()
        await asyncio.gather(*(watch.stop() for watch in self._watches.get(session_id, ())))
        await end_task(background.task, grace)
        self._engine.set_status(background, "stopped")
        await background.status_log.write()
        self._engine.report_refusals(background, now=True)
        self._watches.pop(session_id, None)  # a second `stop` may have come here first
        return True

    async def reconcile(self, bundle: PreparedBundle, *, grace: float = 10.0) -> list[str]:
        """Run the declarations of `bundle` from now on: start new ones, stop old ones, restart changed ones.

        Accepted events stay accepted, whatever `catch_up` says. Returns the names of the background sessions concerned.
        An error of `start` is raised when all others are started.
        """
        before, self._bundle = self._bundle, bundle
        same_bundle = before is not None and before.bundle.digest == bundle.bundle.digest
        wanted = {each.name: each for each in bundle.bundle.background_sessions if await self.is_wanted(each)}
        sessions = {background.config.name: background for background in self._sessions.values()}
        gone = [each for name, each in sessions.items() if wanted.get(name) != each.config or not same_bundle]
        await asyncio.gather(*(self.stop(background.session_id, grace=grace) for background in gone))
        for background in gone:
            await self._forget(background.config.name)
        failures, started = list[Exception](), list[BackgroundSessionState]()
        fresh = [config for name, config in wanted.items() if name not in sessions or sessions[name] in gone]
        for config in fresh:
            try:
                started.append(await self._start(config, catches_up=False))
            except Exception as error:
                failures.append(error)
        await wait_until_armed(self._engine, started, self._watches)
        if failures:
            raise failures[0]
        return sorted({background.config.name for background in gone} | {config.name for config in fresh})

    async def is_idle(self, *, caught_up: bool = False) -> bool:
        """Return whether no accepted event waits or is at work, and with `caught_up` also none is still to be yielded.

        Postponed events do not count, nor events that wait for a budget or trust, or triggers with a problem: all may
        take any time.
        """
        if caught_up and not await self._engine.router.is_read():
            return False
        if caught_up and not all(each.is_settled for each in self.list_watches()):
            return False
        at_work = [each for each in self._sessions.values() if not each.stopping and not each.paused]
        held = self._engine.held_by
        running = [each for each in at_work if each.running or (each.allowance.until is None and not held)]
        return not any([await has_work(self._engine, each) for each in running])

    async def stop_triggers(self) -> None:
        """Stop every trigger; the workers go on."""
        await asyncio.gather(*(watch.stop() for watch in self.list_watches()))

    def list_watches(self) -> list[Watch]:
        """Return those of all background sessions."""
        return [watch for watches in self._watches.values() for watch in watches]

    @property
    def has_trouble(self) -> bool:
        """Whether an event was given up, or a component has a problem."""
        return any(each.given_up or each.problems for each in self._sessions.values())

    def report_shared(self, component: str, problem: str, *, holds: bool = False) -> None:
        """Show the problem of a component that all share in every status; '' for none. With `holds`, events wait."""
        (self._engine.held_by.add if holds else self._engine.held_by.discard)(component)
        for background in self._sessions.values():
            if problem:
                self._engine.report_problem(background, component, "degraded", problem)
            else:
                self._engine.clear_problem(background, component)

    def report_stall(self, text: str) -> None:
        """Record that the loop of the manager was blocked, for all background sessions of the bundle."""
        for background in list(self._sessions.values())[:1]:
            self._engine.report_stall(background, text, f"{background.queue.rpartition('/')[0]}/")

    def wake(self, name: str | None = None) -> None:
        """Have a background session, or all, look for events of other processes. Raises `SessionNotFound`."""
        for background in self._sessions.values() if name is None else [self._find(name)]:
            background.look_again()

    async def stop_all(self, *, grace: float = 10.0) -> None:
        """Stop every background session, all at once."""
        await asyncio.gather(*(self.stop(session_id, grace=grace) for session_id in list(self._sessions)))

    def interrupt(self) -> None:
        """Interrupt the running sessions; the next start resumes them."""
        for background in self._sessions.values():
            if background.task is not None:
                background.task.cancel()

    async def fire(self, name: str, data: Mapping[str, Any] | None = None) -> bool:
        """Wake a background session by hand; return whether the event was accepted. Raises `SessionNotFound`."""
        background = self._find(name)
        event = TriggerEvent(TriggerType.MANUAL, MANUAL, timestamp=self._engine.clock.now(), data=dict(data or {}))
        return await accept(self._engine, background, manual_key(background.queue, background.config.triggers), event)

    def find_running(self, session_id: str) -> Running | None:
        """Return the work on the delivery of a session, None unless it is running."""
        running = (work for each in self._sessions.values() for work in each.running.values())
        return next((work for work in running if work.delivery.session_id == session_id), None)

    def _find(self, name: str) -> BackgroundSessionState:
        if (named := self._named.get(name)) is not None:
            return named
        for background in self._sessions.values():
            if background.is_called(name):
                return background
        raise SessionNotFound(name)

    @property
    def names(self) -> list[tuple[str, ...]]:
        """The name, queue and id of each background session; of one that never ran, without an id."""
        known = {each.config.name: (each.config.name, each.queue, key) for key, each in self._sessions.items()}
        declared = self._bundle.bundle.background_sessions if self._bundle is not None else []
        return [(each.name, self._queue(each.name)) for each in declared if each.name not in known] + [*known.values()]

    def get_status(self, session_id: str | None = None) -> dict[str, Any]:
        """Return the state of every background session by id, or of one."""
        if session_id is not None:
            return self._find(session_id).status_row()
        return {session_id: background.status_row() for session_id, background in self._sessions.items()}

    async def __aenter__(self) -> BackgroundSessionManager:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        await self.stop_all(grace=10.0 if kind is None else 0.0)
