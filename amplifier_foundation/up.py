"""Bring up what bundles declare in the background, and take it down again."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from amplifier_core.clock import SystemClock
from amplifier_core.errors import BundleValidationError, SessionNotFound
from amplifier_core.ids import session_id_of

from .background.lane import lane_key
from .background.manager import BackgroundSessionManager
from .control import NoSuchBackgroundSession, answering, socket_path
from .events import EventRouter
from .lock import owner_lock
from .paths import project_of
from .retention import kept_small
from .spawning.agents import AgentSpawner
from .spawning.records import new_record, taken_up

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from pathlib import Path

    from amplifier_core.plugins import Plugins
    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import DurableStore

    from .background.lane import Activity
    from .bundles.model import Bundle, PreparedBundle
    from .retention import Retention

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Up:
    """A bundle whose background sessions run; `root` is the session that they are children of."""

    bundle: Bundle
    project: str
    root: AmplifierSession
    manager: BackgroundSessionManager

    async def reconcile(self, bundle: Bundle) -> list[str]:
        """Run what the changed bundle declares; return the names of the background sessions that this concerned."""
        from .bundles.prepared import with_default_session

        prepared = await bundle.prepare()
        self.bundle = bundle
        self.root.config.update(with_default_session(prepared.mount_plan))
        return await self.manager.reconcile(prepared)

    def status(self) -> dict[str, Any]:
        """Return how it fares, as `amplifier ps` tells it."""
        return {"bundle": self.bundle.name, "project": self.project, "sessions": self.manager.get_status()}


@dataclass(slots=True)
class Control:
    """What is asked of the process at its socket; `asked_to_stop` is called when that is to end."""

    running: list[Up] = field(default_factory=list)
    asked_to_stop: Callable[[], None] = lambda: None
    asked_to_reload: Callable[[], None] = lambda: None
    tell: Callable[[str], None] = lambda text: None
    """Called with what a person who watches the process should know of it."""

    async def handle(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        """Do what is asked. Raises `NoSuchBackgroundSession` for one that does not run."""
        if operation == "status":
            return [each.status() for each in self.running]
        if operation == "wake":
            for each in self._at(arguments):
                with suppress(SessionNotFound):  # another bundle of that folder declares it
                    each.manager.wake(str(arguments["name"]))
            return None
        if operation == "stop" and arguments.get("name"):
            return await self._stop(str(arguments["name"]), arguments)
        if operation == "stop":
            return self.asked_to_stop()
        if operation == "reload":
            return self.asked_to_reload()
        raise ValueError(f"unknown operation {operation}")

    def _at(self, arguments: Mapping[str, Any]) -> list[Up]:
        project = arguments.get("project")
        return [each for each in self.running if project in (None, each.project)]

    async def _stop(self, name: str, arguments: Mapping[str, Any]) -> list[str]:
        """Stop every background session of that name or id; return the ids."""
        rows = [(each, *row) for each in self._at(arguments) for row in each.manager.get_status().items()]
        stopped = []
        for each, session_id, row in rows:
            if name in (session_id, row["name"], lane_key(each.bundle.name, row["name"])):
                self.tell(f"{row['name']} is to stop, as another process asks")
                if await each.manager.stop(session_id):
                    stopped.append(session_id)
        if not stopped:
            raise NoSuchBackgroundSession(name, [row["name"] for _, _, row in rows])
        return stopped


@asynccontextmanager
async def brought_up(
    bundles: Sequence[Bundle],
    store: DurableStore,
    plugins: Plugins,
    *,
    working_dir: Path | None = None,
    observer: Callable[[Activity], None] | None = None,
    control: Control | None = None,
    retention: Retention | None = None,
) -> AsyncIterator[list[Up]]:
    """Run the background sessions of `bundles` while the block runs.

    A bundle's working folder is its own folder unless one is given. What an earlier process left unfinished is taken up
    first; `control` answers what other processes ask; `retention` says how long sessions that events woke are kept
    (None: for ever). Raises `SessionConflict` when another process runs background sessions with this data folder,
    `BundleValidationError` for a bundle that declares nothing to run.
    """
    for bundle in bundles:
        if not bundle.background_sessions:
            raise BundleValidationError(
                f"{bundle.source_path or bundle.name}: declares no background_sessions, nothing to bring up"
            )
    control = control or Control()
    projects = [project_of(working_dir or bundle.base_path) for bundle in bundles]
    path = socket_path()
    facts = {"bundles": [bundle.name for bundle in bundles], "projects": projects, "socket": str(path)}
    async with AsyncExitStack() as stack:
        stack.enter_context(owner_lock(facts))
        for project in sorted(set(projects)):
            await store.release(project)
        await stack.enter_async_context(kept_small(store, SystemClock(), retention))
        router = EventRouter(store)
        for bundle, project in zip(bundles, projects, strict=True):
            up = await stack.enter_async_context(_running(bundle, project, store, router, plugins, observer))
            control.running.append(up)
        await stack.enter_async_context(answering(path, control.handle))
        yield control.running


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
    return session_id_of(bundle_name, sha256(f"{project}:{bundle_name}".encode()).hexdigest()[:12])


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
