"""Change the life of a background session from the command line, and record who did it."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import click

from amplifier_core.errors import AmplifierError, BundleNotFoundError, SessionConflict

from ..operations import running
from ..operations.acting import record_act
from ..operations.running import Changed, change_here, record_change
from .app import (
    choose_bundle,
    load_bundle_at,
    person,
    plugins_of,
    project_here,
    read_settings_here,
    storage_plugins,
    storage_setting,
    use_inbox,
    use_store,
)
from .loops import run_async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from amplifier_core.storage import SessionStore

    from ..background.lifecycle import Wish
    from ..bundle import Bundle
    from ..operations.running import Verb

logger = logging.getLogger(__name__)


class ChangedBeforeUp(Changed):
    """One that nothing runs: the change holds from its next start on."""

    __slots__ = ()


def change_background_session(verb: Verb, name: str) -> list[Changed]:
    """Change the background session of that name, queue or id; return the changed ones.

    Those of this folder come first, then those of others, on this host and on others. A change of one of the bundle
    here holds from the next `up` on while nothing runs this folder. Raises `NothingRuns`, `NoSuchBackgroundSession`,
    `SessionConflict` for several to choose from, and the errors of a bundle here that cannot be loaded, where nothing
    of that name runs elsewhere.
    """
    from ..background.asking import NoSuchBackgroundSession, NothingRuns
    from ..sessions.lock import running_owner
    from ..sessions.storages import DEFAULT_STORAGE

    ctx = click.get_current_context()
    broken: AmplifierError | None = None
    if running_owner(project_here()) is None:
        try:
            bundle = run_async(_load_here(ctx))
        except AmplifierError as error:  # the one that is meant may run elsewhere
            bundle, broken = None, error
        if bundle is not None and (declared := run_async(_change_declared(ctx, bundle, verb, name))) is not None:
            return [declared]
    try:
        if storage_setting() != DEFAULT_STORAGE and (found := run_async(_change_shared(ctx, verb, name))) is not None:
            return found
        changed = change_here(verb, name, first=project_here())
    except (NothingRuns, NoSuchBackgroundSession):
        if broken is not None:
            raise broken from None
        raise
    run_async(_record(ctx, verb, lambda store: record_change(store, person(), verb, changed)))
    return changed


async def _change_shared(ctx: click.Context, verb: Verb, name: str) -> list[Changed] | None:
    """Do so on a store that hosts may share; None when it cannot be opened: the processes here have theirs open."""
    from ..sessions.lock import running_owners

    async with AsyncExitStack() as stack:
        try:
            store = await stack.enter_async_context(use_inbox(storage_plugins(ctx)))
        except AmplifierError:
            if not running_owners():
                raise
            return None  # it is told when the change cannot be recorded
        return await running.change_background_session(store, person(), verb, name, first=project_here())


async def _load_here(ctx: click.Context) -> Bundle | None:
    """Return the bundle of this folder, if it has one. Raises the errors of one that cannot be loaded."""
    try:
        return await load_bundle_at(choose_bundle(None, read_settings_here()), plugins_of(ctx), runs=False)
    except BundleNotFoundError:
        return None


async def _change_declared(ctx: click.Context, bundle: Bundle, verb: Verb, name: str) -> Changed | None:
    """Change a background session of the bundle of this folder before it is started.

    None without one of this name, or while a process runs it. Raises `SessionConflict` for a `restart`, a `pause` or
    `resume` of one that is stopped, and a `resume` of one that is not paused.
    """
    from ..background.hosts.people import find_elsewhere
    from ..background.hosts.sharing import shared_store
    from ..background.keys import queue_key
    from ..background.lifecycle import read_wish, save_wish
    from ..paths import project_of
    from ..sessions.lock import running_owner

    project = project_of(bundle.base_path)
    queues = [queue_key(bundle.name, each.name) for each in bundle.background_sessions]
    queue = next((each for each in queues if name in (each, each.rpartition("/")[2])), None)
    if queue is None or running_owner(project) is not None:
        return None
    async with use_inbox(plugins_of(ctx)) as store:
        shared = shared_store(store)
        if shared is not None and (project, queue) in await find_elsewhere(shared, queue):
            return None
        wish = await read_wish(store, project, queue)
        if verb == "restart":
            raise SessionConflict(name, f"nothing runs {queue}. Start it with: amplifier up")
        if verb in ("pause", "resume") and wish == "stopped":
            raise SessionConflict(name, f"{queue} is stopped. Start it with: amplifier up; amplifier start {name}")
        if verb == "resume" and wish != "paused":
            raise SessionConflict(name, f"{queue} is not paused, and nothing runs it. Start it with: amplifier up")
        wishes: dict[str, Wish] = {"pause": "paused", "stop": "stopped"}
        await save_wish(store, project, queue, wishes.get(verb, "running"))
        changed = ChangedBeforeUp(project, queue)
        await record_change(store, person(), verb, [changed])
    return changed


def record_stop(owner: dict[str, Any]) -> None:
    """Record that the process `owner` was stopped, for each of its projects."""

    async def record(store: SessionStore) -> None:
        for project in owner.get("projects") or [None]:
            await record_act(store, person(), "process.stop", str(owner["pid"]), project=project)

    run_async(_record(click.get_current_context(), "stop", record))


async def _record(ctx: click.Context, verb: str, record: Callable[[SessionStore], Awaitable[None]]) -> None:
    try:
        async with use_store(storage_plugins(ctx)) as store:
            await record(store)
    except AmplifierError as error:  # it is done, all the same
        logger.warning("%s is done, and could not be recorded: %s", verb, error)
