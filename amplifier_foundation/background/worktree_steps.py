"""Give the sessions of a background session worktrees, and finish these with their deliveries.

Three calls do this: `open_worktree` before an attempt, `finish_worktree` before the store commits a result, and
`give_up_worktree` before it gives a delivery up. The store is told afterwards, so a killed process repeats a step and
never loses one; `forget_worktree` ends what the store knows. Worktrees of deliveries that ended otherwise are released
at the next start.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import SessionNotFound
from amplifier_core.permissions import Access, Call, Layer, Policy
from amplifier_core.permissions.calls import find_reader
from amplifier_core.process_forks import close_in_forks

from ..bundle.permissions import bundle_layer
from ..bundle.templates import fill_key
from ..paths import data_home
from ..sessions.recording import shield_to_completion
from ..sessions.records import WORKTREE
from .git import GitError, find_checkout, find_git
from .worktree_files import WorktreeRemoved
from .worktree_merges import name_files
from .worktrees import has_worktree, list_worktrees, plan_worktree, read_worktree, renew_note

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from amplifier_core.hook_data import SpawnOutcome
    from amplifier_core.storage import Delivery, DurableStore

    from ..spawning.child import Spawn
    from .state import BackgroundSessionState, Engine
    from .worktree_merges import Announce, MayWrite
    from .worktrees import Result, Worktree

logger = logging.getLogger(__name__)

LOOK_EVERY = 0.05
"""Seconds."""
TORN = 3600.0
"""Seconds after which a half-written note is nobody's: a write takes none of them."""


async def begin_worktrees(engine: Engine, background: BackgroundSessionState) -> None:
    """Release what earlier processes have left, and tell where there will be no worktrees. Raises `GitError`."""
    find_git()
    await asyncio.to_thread(sweep_notes)
    await release_leftovers(engine.store, background.project)
    checkout = await asyncio.to_thread(find_checkout, background.project)
    if isinstance(checkout, str):
        text = f"{checkout}: its sessions work in {background.project} itself"
        logger.info("background session '%s': %s", background.config.name, text)
        engine.notify("unversioned", background, text=text)


async def open_worktree(engine: Engine, background: BackgroundSessionState, delivery: Delivery, spawn: Spawn) -> None:
    """Have a session work in its worktree, made now or by an earlier attempt. Raises `GitError` and `OSError`."""
    config, session_id = background.config.worktree, str(delivery.session_id)
    if config is None:
        return
    if background.config.mode == "restart":  # nobody has run the replaced ones meanwhile
        await release_leftovers(engine.store, background.project)
    worktree = await _read(delivery)
    if worktree is not None and not worktree.is_ready:
        await asyncio.to_thread(worktree.undo)
        worktree = None
    earlier: dict[str, Any] = {}
    if worktree is None and delivery.epoch > 1:
        with suppress(SessionNotFound):
            earlier = (await engine.store.get(session_id)).metadata.get(WORKTREE) or {}
        worktree = await _read(delivery, earlier)
    if worktree is None:
        checkout = await asyncio.to_thread(find_checkout, background.project)
        if isinstance(checkout, str):
            return
        branch = fill_key(config.branch or "", delivery.event)
        async with _lock_repository(checkout.common):
            planned = await shield_to_completion(
                asyncio.to_thread(plan_worktree, session_id, background.project, branch, earlier)
            )
        if isinstance(planned, str):
            return
        worktree = planned
        await shield_to_completion(asyncio.to_thread(worktree.make))
    await asyncio.to_thread(worktree.check_folder)
    spawn.request = replace(spawn.request, working_dir=worktree.folder)
    spawn.metadata = {**spawn.metadata, WORKTREE: worktree.metadata()}


async def finish_worktree(
    engine: Engine, background: BackgroundSessionState, delivery: Delivery, spawn: Spawn, outcome: SpawnOutcome
) -> Result | None:
    """Commit what a completed session has changed, merge it if asked, and remove the worktree; None without one.

    Raises `GitError` and `OSError`; the worktree is as it was, then, or further. `WorktreeRemoved` is such an error.
    """
    if background.config.worktree is None and delivery.epoch == 1:
        return None  # an earlier attempt may have made one, under another configuration
    noted = spawn.metadata.get(WORKTREE)
    worktree = await _read(delivery, noted)
    if worktree is None:
        if noted and "merged" not in noted:
            raise WorktreeRemoved(noted["path"])
        return None
    said = next(filter(None, map(str.strip, outcome.output.splitlines())), "")
    subject = said or str(delivery.event.data.get("title") or "")
    config = background.config.worktree
    merges = config is not None and config.finish == "merge"
    if merges:
        with engine.files.watch_merge(delivery, worktree.top) as announce:
            may_write = _find_writable(engine, background, worktree)
            result = await shield_to_completion(_finish(worktree, subject, announce=announce, may_write=may_write))
    else:
        result = await shield_to_completion(_finish(worktree, subject))
    if worktree.ignored:
        text = f"session {worktree.session_id}: git ignores {name_files(worktree.ignored)}, so they are not kept"
        engine.notify("unversioned", background, text=text)
    spawn.metadata = {**spawn.metadata, WORKTREE: worktree.metadata()}
    return result


async def give_up_worktree(delivery: Delivery, spawn: Spawn | None = None) -> Result | None:
    """Commit what a session has changed that will not go on, and remove its worktree; None without one.

    A failure is logged: the worktree stays for the next start.
    """
    try:
        worktree = await _read(delivery, spawn.metadata.get(WORKTREE) if spawn is not None else None)
    except (GitError, OSError) as error:
        logger.warning("session %s: its worktree cannot be found: %s", delivery.session_id, error)
        return None
    if worktree is None:
        return None
    result = await _release(worktree, str(delivery.event.data.get("title") or delivery.event.source))
    if spawn is not None and result is not None:
        spawn.metadata = {**spawn.metadata, WORKTREE: worktree.metadata()}
    return result


async def forget_worktree(delivery: Delivery) -> None:
    """Remove the note about a worktree once the store knows what has become of it."""
    worktree = await _read(delivery)
    if worktree is not None and worktree.result is not None:
        await asyncio.to_thread(worktree.forget)


async def release_leftovers(store: DurableStore, project: str) -> None:
    """Release the worktrees of a project's sessions that no waiting or running delivery has."""
    noted = [read_worktree(session_id) for session_id in list_worktrees()]
    for worktree in noted:
        if worktree is not None and worktree.project == project:
            found = await store.deliveries(session_id=worktree.session_id, limit=1)
            if not found or found[0].state not in ("pending", "claimed"):
                await release_worktrees([worktree.session_id])


def sweep_notes() -> None:
    """Delete what a kill in the middle of a write left beside the notes an hour ago, or longer."""
    for path in (data_home() / "worktrees").glob(".new-*"):
        with suppress(FileNotFoundError):  # another process sweeps, too
            if time.time() - path.stat().st_mtime > TORN:
                path.unlink()


async def release_worktrees(session_ids: Iterable[str]) -> None:
    """Commit the changes of sessions that are over on their branches, and remove their worktrees.

    A failure is logged: the worktree stays for the next start.
    """
    for session_id in sorted(set(session_ids).intersection(list_worktrees())):
        worktree = await asyncio.to_thread(read_worktree, session_id)
        if worktree is not None and await _release(worktree, f"session {session_id}") is not None:
            await asyncio.to_thread(worktree.forget)


async def _release(worktree: Worktree, subject: str) -> Result | None:
    """Commit what there is, and remove the worktree; None for one that no session has seen, and after a failure."""
    try:
        if worktree.is_ready:
            return await shield_to_completion(_finish(worktree, subject, is_finished=False))
        await asyncio.to_thread(worktree.undo)
    except (GitError, OSError) as error:
        logger.warning("the worktree %s stays until the next start: %s", worktree.path, error)
    return None


async def _read(delivery: Delivery, known: Mapping[str, Any] | None = None) -> Worktree | None:
    """Return the worktree of a delivery's session; None without one.

    `known` is the member of the session's record: it renews a note that somebody has removed. Raises `GitError`.
    """
    session_id = str(delivery.session_id)
    if has_worktree(session_id):
        return await asyncio.to_thread(read_worktree, session_id)
    return await asyncio.to_thread(renew_note, session_id, delivery.project, known) if known else None


async def _finish(
    worktree: Worktree,
    subject: str,
    *,
    announce: Announce | None = None,
    may_write: MayWrite | None = None,
    is_finished: bool = True,
) -> Result:
    """Commit, merge with `announce`, and remove a worktree; each step that is done already is left out."""
    await asyncio.to_thread(worktree.commit_changes, subject, is_finished=is_finished)
    async with _lock_repository(worktree.common):
        result = await asyncio.to_thread(worktree.settle, announce, may_write)
        await asyncio.to_thread(worktree.remove)
    return result


def _find_writable(engine: Engine, background: BackgroundSessionState, worktree: Worktree) -> MayWrite | None:
    """Return whether nothing denies a write to a path of the repository; None for sessions without rules.

    The path counts as in a call of `write_file` in the project, for which rules with a pattern hold, and the modes. A
    refusal of the whole tool leaves others to a session, so it closes no path. git follows no link, so none is followed
    here.
    """
    gate = engine.parent.coordinator.permissions
    if gate is None:
        return None
    layer, project = bundle_layer(background.prepared.bundle), background.project
    policy = Policy(
        Layer(
            each.source,
            [rule for rule in each.rules if rule.pattern or rule.effect != "deny"],
            each.mode,
            is_own=each.is_own,
        )
        for each in (gate.policy.below(layer) if layer is not None else gate.policy).layers
    )

    def may_write(name: str) -> bool:
        whole = f"{worktree.top}/{name}"
        access = Access("write", whole.removeprefix(f"{project}/"), reader=find_reader(whole, project))
        return policy.decide(Call("write_file", (access,), {})).effect != "deny"

    return may_write


@asynccontextmanager
async def _lock_repository(common: str) -> AsyncIterator[None]:
    """Hold a repository for one session at a time, in all processes, while the block runs."""
    # A FIFO at this place, of an unpacked repository, would wait for a reader.
    descriptor = os.open(f"{common}/amplifier.lock", os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    with os.fdopen(descriptor, "w") as file:
        close_in_forks(file)
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(LOOK_EVERY)
        yield
