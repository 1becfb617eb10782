"""Bring up what bundles declare in the background, and take it down again."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from amplifier_core.clock import SystemClock
from amplifier_core.errors import BundleValidationError, SessionNotFound

from .background.manager import BackgroundSessionManager
from .events import EventRouter
from .lock import project_lock
from .paths import project_of
from .retention import kept_small
from .spawning.agents import AgentSpawner
from .spawning.records import new_record, taken_up

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from amplifier_core.plugins import Plugins
    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import DurableStore

    from .background.lane import Activity
    from .bundles.model import Bundle, PreparedBundle


@dataclass(frozen=True, slots=True)
class Up:
    """A bundle whose background sessions run; `root` is the session that they are children of."""

    bundle: Bundle
    project: str
    root: AmplifierSession
    manager: BackgroundSessionManager


@asynccontextmanager
async def brought_up(
    bundles: Sequence[Bundle],
    store: DurableStore,
    plugins: Plugins,
    *,
    working_dir: Path | None = None,
    observer: Callable[[Activity], None] | None = None,
) -> AsyncIterator[list[Up]]:
    """Run the background sessions of `bundles` while the block runs.

    A bundle's working folder is its own folder unless one is given. What an earlier process left unfinished is taken up
    first. Raises `SessionConflict` when another process runs one of these projects, `BundleValidationError` for a
    bundle that declares nothing to run.
    """
    for bundle in bundles:
        if not bundle.background_sessions:
            raise BundleValidationError(
                f"{bundle.source_path or bundle.name}: declares no background_sessions, nothing to bring up"
            )
    router = EventRouter(store)
    async with AsyncExitStack() as stack:
        projects = {bundle.name: project_of(working_dir or bundle.base_path) for bundle in bundles}
        for project in sorted(set(projects.values())):
            names = [bundle.name for bundle in bundles if projects[bundle.name] == project]
            stack.enter_context(project_lock(project, {"bundles": names}))
            await store.release(project)
        await stack.enter_async_context(kept_small(store, SystemClock()))
        yield [
            await stack.enter_async_context(_running(bundle, projects[bundle.name], store, router, plugins, observer))
            for bundle in bundles
        ]


@asynccontextmanager
async def _running(
    bundle: Bundle,
    project: str,
    store: DurableStore,
    router: EventRouter,
    plugins: Plugins,
    observer: Callable[[Activity], None] | None,
) -> AsyncIterator[Up]:
    prepared = await bundle.prepare()
    root = await _root_session(prepared, store, router, plugins, project)
    try:
        async with BackgroundSessionManager(
            root, router, store, plugins, bundle=prepared, observer=observer
        ) as manager:
            for config in bundle.background_sessions:
                if config.start_on_parent_start:
                    await manager.start(config)
            yield Up(bundle, project, root, manager)
    finally:
        await root.cleanup()
        await store.update(root.session_id, status="idle")


def root_id(bundle_name: str, project: str) -> str:
    """Return the id of the session above a bundle's background sessions: the same at every start."""
    return f"{bundle_name}-{sha256(f'{project}:{bundle_name}'.encode()).hexdigest()[:12]}"


async def _root_session(
    prepared: PreparedBundle, store: DurableStore, router: EventRouter, plugins: Plugins, project: str
) -> AmplifierSession:
    session_id = root_id(prepared.bundle.name, project)
    try:
        record = await store.get(session_id)
        await store.update(session_id, **taken_up(record), bundle_digest=prepared.bundle.digest)
    except SessionNotFound:
        await store.create(new_record(prepared, session_id, name=prepared.bundle.name, project=project))
    agents = AgentSpawner(prepared, store, router, plugins)
    session = await prepared.create_session(
        session_id=session_id, session_cwd=project, plugins=plugins, capabilities=agents.capabilities_of(session_id)
    )
    agents.take(session)
    return session
