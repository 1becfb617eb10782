"""Bring up what a bundle declares in the background, and take it down again."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from amplifier_core.errors import BundleError, SessionNotFound

from .background.manager import BackgroundSessionManager
from .events import EventRouter
from .lock import project_lock
from .paths import project_of
from .spawn import new_record

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from amplifier_core.plugins import Plugins
    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import DurableStore

    from .background.lane import Activity
    from .bundles.model import Bundle, PreparedBundle


@dataclass(frozen=True, slots=True)
class Up:
    """A bundle whose background sessions run."""

    bundle: Bundle
    prepared: PreparedBundle
    root: AmplifierSession
    manager: BackgroundSessionManager
    store: DurableStore
    project: str


@asynccontextmanager
async def brought_up(
    bundle: Bundle,
    store: DurableStore,
    plugins: Plugins,
    *,
    working_dir: Path | None = None,
    observer: Callable[[Activity], None] | None = None,
) -> AsyncIterator[Up]:
    """Run the background sessions of `bundle` while the block runs.

    The working folder is the bundle's own unless one is given. What an earlier process left unfinished is taken up
    first. Raises `SessionConflict` when another process runs this project, `BundleError` when there is nothing to run.
    """
    if not bundle.background_sessions:
        raise BundleError(f"{bundle.source_path or bundle.name}: declares no background_sessions, nothing to bring up")
    project = project_of(working_dir or bundle.base_path)
    with project_lock(project, {"bundle": bundle.name, "source": str(bundle.source_path or "")}):
        await store.release(project)
        prepared = await bundle.prepare()
        root = await _root_session(prepared, store, plugins, project)
        router = EventRouter(store)
        manager = BackgroundSessionManager(root, router, store, plugins, bundle=prepared, observer=observer)
        try:
            async with manager:
                for config in bundle.background_sessions:
                    if config.start_on_parent_start:
                        await manager.start(config)
                yield Up(bundle, prepared, root, manager, store, project)
        finally:
            await root.cleanup()
            await store.update(root.session_id, status="idle")


def root_id(bundle_name: str, project: str) -> str:
    """Return the id of the session that stands above a bundle's background sessions, the same at every start."""
    return f"{bundle_name}-{sha256(f'{project}:{bundle_name}'.encode()).hexdigest()[:12]}"


async def _root_session(
    prepared: PreparedBundle, store: DurableStore, plugins: Plugins, project: str
) -> AmplifierSession:
    session_id = root_id(prepared.bundle.name, project)
    try:
        await store.get(session_id)
        await store.update(session_id, status="running", bundle_digest=prepared.bundle.digest)
    except SessionNotFound:
        await store.create(new_record(prepared, session_id, name=prepared.bundle.name, project=project))
    return await prepared.create_session(session_id=session_id, session_cwd=project, plugins=plugins)

