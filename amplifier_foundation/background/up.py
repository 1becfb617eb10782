"""Bring up the background sessions of bundles, and take them down again."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from amplifier_core.clock import SystemClock
from amplifier_core.errors import BundleValidationError, SessionExists, SessionNotFound
from amplifier_core.process_forks import end_forks_of

from ..events import EventRouter
from ..paths import data_home, fetched_root, find_project, project_of
from ..security import read_policy
from ..sessions.lock import owner_lock
from ..sessions.recording import shield_to_completion
from ..sessions.records import new_record, resume_changes
from ..sessions.storages import StorageUnsuitable
from ..spawning.agents import AgentSpawner
from ..spawning.own_loops import SessionLoops
from .carriers import begin_to_carry, carrying
from .commands import Control, Up
from .control import answering, socket_path
from .data_folder import watching_data_folder
from .descriptors import report_exhaustion
from .file_causes import FileCauses
from .hosts.sharing import joining, shared_store, sharing
from .keys import root_id
from .live_feed import LiveFeed
from .manager import STORE_FILE, BackgroundSessionManager
from .package_upkeep import PACKAGES, looking_at_packages
from .partial_store import complete_store
from .queue_view import QUEUES, BundleQueues
from .retention import purging
from .stalling import reporting_stalls
from .store_upkeep import looking_after
from .tasks import keep_beside
from .undeclared import declaring

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from amplifier_core.plugins import Plugins
    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import DurableStore, SessionStorage, SessionStore

    from ..bundle.model import Bundle, PreparedBundle
    from .data_folder import DataFolder
    from .hosts.member import Member
    from .retention import Retention
    from .state import Activity

__all__ = ["Control", "Up", "home_of", "root_id", "run_background"]


@asynccontextmanager
async def run_background(
    bundles: Sequence[Bundle],
    store: DurableStore | SessionStore | SessionStorage,
    plugins: Plugins,
    *,
    working_dir: Path | None = None,
    observer: Callable[[Activity], None] | None = None,
    session_observers: Sequence[Callable[[AmplifierSession], None]] = (),
    control: Control | None = None,
    retention: Retention | Callable[[str], Retention | None] | None = None,
    role: Literal["up", "worker"] = "up",
    transports: Sequence[Mapping[str, Any]] = (),
) -> AsyncIterator[list[Up]]:
    """Run the background sessions of `bundles` while the block runs.

    Beside a `store` without an inbox events wait in memory, and a warning says so. Bundles work in the folder of
    `home_of`. Unfinished work of an earlier process comes first. `session_observers` see every session when its modules
    are mounted. `control` answers other processes; `retention` bounds the age of stored sessions, also by a function of
    their project (None: keep them); `transports` is the setting of that name. A `worker` handles events of several
    hosts, and runs no triggers. Raises `SessionConflict` when another process does so in one of these folders,
    `BundleValidationError` for a bundle without any, `StorageUnsuitable` for a worker on one host's store.
    """
    _require_background_sessions(bundles)
    store, control, path = complete_store(store), control or Control(), socket_path()
    projects = [home_of(bundle, plugins, working_dir) for bundle in bundles]
    facts = {"bundles": [bundle.name for bundle in bundles], "projects": projects, "socket": str(path)}
    async with AsyncExitStack() as stack:
        member = await _take_place(stack, store, role, bundles, projects, facts, control)
        clock = SystemClock() if member is None else member.clock
        await stack.enter_async_context(purging(store, clock, retention, projects))
        await stack.enter_async_context(looking_after(store, SystemClock(), partial(control.report, STORE_FILE)))
        await stack.enter_async_context(looking_at_packages(SystemClock(), partial(control.report, PACKAGES)))
        stack.enter_context(report_exhaustion())
        folder = await stack.enter_async_context(watching_data_folder(control.lost))
        router, control.feed = EventRouter(store, clock=clock), LiveFeed(plugins)
        loops, files = stack.enter_context(SessionLoops()), _remember_files(member, bundles)
        carriers = await begin_to_carry(transports, store, router, plugins, member, control.report)
        end_forks_of(asyncio.get_running_loop())
        stack.enter_context(reporting_stalls(loops.stalls, control.running))
        for bundle, project in zip(bundles, projects, strict=True):
            prepared = await bundle.prepare()
            root = await stack.enter_async_context(_root_session(prepared, store, router, plugins, project, folder))
            manager = BackgroundSessionManager(
                *(root, router, store),
                plugins=plugins,
                bundle=prepared,
                observer=observer,
                session_observers=[*session_observers, control.feed.observe],
                files=files,
                check_folder=folder.check,
                loops=loops,
                share=await stack.enter_async_context(sharing(member, bundle, project)),
            )
            await stack.enter_async_context(manager)
            await _start_all(manager, bundle, member, router)
            control.running.append(Up(bundle, project, root, manager, router))
        await stack.enter_async_context(carrying(carriers, member, control.report))
        await stack.enter_async_context(answering(path, control.handle))
        yield control.running


def _require_background_sessions(bundles: Sequence[Bundle]) -> None:
    for bundle in bundles:
        if not bundle.background_sessions:
            where = bundle.source_path or bundle.name
            raise BundleValidationError(f"{where}: declares no background_sessions, nothing to bring up")


def _remember_files(member: Member | None, bundles: Sequence[Bundle]) -> FileCauses:
    files = FileCauses()
    if member is not None and any(each.shared_folder for bundle in bundles for each in bundle.background_sessions):
        from .hosts.writes import SharedWrites

        files.shared = SharedWrites(member.store)
    return files


async def _start_all(
    manager: BackgroundSessionManager, bundle: Bundle, member: Member | None, router: EventRouter
) -> None:
    """Start the background sessions that are wanted, and from then on hear what other hosts store and ask."""
    await manager.start_all([config for config in bundle.background_sessions if await manager.is_wanted(config)])
    if member is not None:
        member.wakers += [router.look_again, manager.wake]
        member.followers.append(manager.follow_wishes)


async def _take_place(
    stack: AsyncExitStack,
    store: DurableStore,
    role: Literal["up", "worker"],
    bundles: Sequence[Bundle],
    projects: Sequence[str],
    facts: dict[str, Any],
    control: Control,
) -> Member | None:
    """Own the background work of the folders on this host, and take up what a dead process left; return the member of a
    shared store, which `control` obeys, None for another store.
    """
    shared = shared_store(store)
    if role == "up":
        stack.enter_context(owner_lock(facts))
    elif shared is None:
        raise StorageUnsuitable(
            data_home(),
            "a worker needs a storage that several hosts share, such as storage-postgres; on one host, raise pool_size "
            "and run: amplifier up",
        )
    if shared is not None:
        member = await stack.enter_async_context(joining(shared, role, bundles, projects))
        await stack.enter_async_context(keep_beside(partial(control.take_part, member), "drain"))
        return member
    for project in sorted(set(projects)):
        await store.release(project)
    return None


def home_of(bundle: Bundle, plugins: Plugins, working_dir: Path | None = None) -> str:
    """Return the project of a bundle's background sessions: the given folder, or that of the bundle.

    A bundle of an installed package, or a fetched one, has no folder to work in: it works in the current project.
    """
    from ..bundle.registry import BundleRegistry

    base = bundle.base_path
    if working_dir is None and base is not None:
        packages = [Path(each).resolve() for each in BundleRegistry(plugins=plugins).folders_of_packages()]
        is_elsewhere = fetched_root(base) is not None or any(base.resolve().is_relative_to(each) for each in packages)
        return find_project() if is_elsewhere else project_of(base)
    return project_of(working_dir)


@asynccontextmanager
async def _root_session(
    prepared: PreparedBundle,
    store: DurableStore,
    router: EventRouter,
    plugins: Plugins,
    project: str,
    folder: DataFolder,
) -> AsyncIterator[AmplifierSession]:
    """Make the parent of a bundle's background sessions, or resume it; it is idle after the block, or when it fails."""
    session_id = root_id(prepared.bundle.name, project)
    try:
        await shield_to_completion(_store_root(prepared, store, session_id, project))
        agents = AgentSpawner(prepared, store, router, plugins, working_dir=project)
        session = await prepared.create_session(
            session_id=session_id,
            session_cwd=project,
            config=deepcopy(prepared.mount_plan),
            plugins=plugins,
            permissions=read_policy(project),
            capabilities={
                **agents.capabilities_of(session_id),
                QUEUES: BundleQueues(store, project, prepared.bundle.name),
            },
        )
        agents.take(session)
        try:
            yield session
        finally:
            await session.cleanup()
    finally:
        if folder.is_there:
            with suppress(SessionNotFound):
                await store.update(session_id, status="idle")


async def _store_root(prepared: PreparedBundle, store: DurableStore, session_id: str, project: str) -> None:
    try:
        changes = resume_changes(await store.get(session_id))
        changes["metadata"] = declaring(prepared.bundle, changes["metadata"])
        await store.update(session_id, **changes, bundle_digest=prepared.bundle.digest)
    except SessionNotFound:
        name, metadata = prepared.bundle.name, declaring(prepared.bundle, {})
        with suppress(SessionExists):  # another host was faster
            await store.create(new_record(prepared, session_id, name=name, project=project, metadata=metadata))
