"""Prepare the session of one attempt at a delivery, and put it aside when the attempt is cut."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from amplifier_core.errors import AmplifierError, SessionNotFound, SpawnRefused, StaleEpoch
from amplifier_core.transcript import Transcript

from ..bundle.overrides import DAY
from ..bundle.sections import WORKFLOW_RUNNER
from ..bundle.templates import input_of, instruction_for
from ..paths import find_absence
from ..security import NotTrusted, TrustUnreadable
from ..security.trust_content import find_bundle_scripts
from ..sessions.accounts import queue_account
from ..sessions.lock import holder_of
from ..sessions.origins import ORIGIN, origin_of_delivery
from ..sessions.runs import RUN
from ..sessions.untrusted import UNTRUSTED, find_reason
from ..spawning.child import Spawn, prepare_spawn, spawn_request
from ..spawning.family import TREE, Tree
from ..spawning.inheritance import child_config
from ..spawning.own_loops import run_in_own_loop
from ..spawning.runners import InProcessRunner, find_runner
from .approval_inbox import ApprovalInbox
from .giving_back import give_back
from .keys import declared_key
from .shared_history import share_history
from .worktree_steps import forget_worktree, give_up_worktree, open_worktree

if TYPE_CHECKING:
    from amplifier_core.storage import Delivery

    from .state import BackgroundSessionState, Engine

logger = logging.getLogger(__name__)

LONGEST_WAIT = 1e9
"""Seconds that a question waits for an answer at the most."""
BACKGROUND = "session.background"
"""The capability with the name of the background session; sessions below it lack it."""
CODE = "code of the bundle"
"""The component that has a problem while changed code waits for trust, or cannot be read."""
FOLDER = "working folder"
"""The component that has a problem while the folder of the project is away: moved, or not mounted, or unreachable."""
PERMISSIONS = "permissions"
"""The component that has a problem while the permissions of the settings cannot be read."""


class QueueBlocked(AmplifierError):
    """No event of the background session can be handled for now: all wait, in their order."""


def make_inbox(engine: Engine, background: BackgroundSessionState, delivery: Delivery) -> ApprovalInbox:
    """Return the approval system of the delivery's sessions."""
    lifetime = min(background.config.approval_timeout or DAY, LONGEST_WAIT)
    digest = background.prepared.bundle.digest
    return ApprovalInbox(engine.store, delivery, digest, lifetime, engine.clock, engine.parent)


async def prepare_attempt(
    engine: Engine, background: BackgroundSessionState, delivery: Delivery, approvals: ApprovalInbox
) -> Spawn:
    """Return the prepared spawn of the delivery's session. Raises the errors of `prepare_spawn`.

    Raises those of `check_queue`, `SpawnRefused` while another process talks in its session, and `WorkNotWanted` for
    work that others do, or have settled.
    """
    config, parent, prepared = background.config, engine.parent, background.prepared
    check_queue(engine, background)
    if delivery.epoch > 1 and (process := holder_of(str(delivery.session_id))) is not None:
        raise SpawnRefused(parent.session_id, f"process {process} talks in session '{delivery.session_id}'")
    event = await background.tracking.begin(delivery)
    untrusted = await find_reason(engine.store, event, background.project)
    declared = background.declared.get(declared_key(delivery.trigger))
    spawn = Spawn(
        prepared=prepared,
        request=spawn_request(
            parent,
            prepared,
            instruction_for(event, config, declared, untrusted=bool(untrusted)),
            child_config(prepared.mount_plan, parent.config, providers=True, tools=False, hooks=True),
            delivery.session_id,
            config.name,
        ),
        parent=parent,
        transcript=Transcript(),
        store=engine.store_for(background.running[delivery.delivery_id]),
        router=engine.router,
        plugins=engine.plugins,
        cause=delivery.event,
        observe=lambda session: engine.notify("session", background, session=session),
        approvals=None if parent.coordinator.approval_system is not None else approvals,
        accepts_unfinished=config.accept_unfinished,
        needs_answer=not config.accept_unfinished,
        acts=config.untrusted == "act",
        metadata={UNTRUSTED: untrusted} if untrusted else {},
        capabilities={
            TREE: _make_tree(engine, background, delivery),
            BACKGROUND: config.name,
            ORIGIN: await origin_of_delivery(engine.store, delivery),
        },
    )
    if config.runner is not None:
        spawn.runner = find_runner(engine.plugins, config.runner)
    if config.workflow is not None:
        spawn.runner, spawn.is_conversation = find_runner(engine.plugins, WORKFLOW_RUNNER), False
        run = {"name": config.workflow, "input": input_of(event)}
        spawn.metadata = {**spawn.metadata, RUN: run}
    if config.fork_from is not None:
        await share_history(spawn, engine.store, background, config.fork_from)
    await open_worktree(engine, background, delivery, spawn)
    await prepare_spawn(spawn, resume=delivery.epoch > 1)  # the first claim made the id up
    if engine.loops is not None and isinstance(spawn.runner, InProcessRunner):
        run_in_own_loop(spawn, engine.loops, partial(_report_stall, engine, background, spawn.request.session_id))
    return spawn


def check_queue(engine: Engine, background: BackgroundSessionState) -> None:
    """Raise `QueueBlocked` while the folder is away, the code is not as it was trusted, or permissions are unreadable.

    The status shows it.
    """
    _check_folder(engine, background)
    _check_code(engine, background)
    _refresh_permissions(engine, background)


def _check_folder(engine: Engine, background: BackgroundSessionState) -> None:
    """Raise `QueueBlocked` while the folder is away, and show it in the status: its tools would find nothing there."""
    if absence := find_absence(background.project):
        folder = f"the folder {background.project} {absence}"
        reason = f"{folder}. Bring it back: its events wait for it, and for no other place"
        engine.report_problem(background, FOLDER, "degraded", reason)
        raise QueueBlocked(reason)
    engine.clear_problem(background, FOLDER)


def _check_code(engine: Engine, background: BackgroundSessionState) -> None:
    """Raise `QueueBlocked` for code that is not as it was trusted, or out of reach, and show it in the status."""
    bundle = background.prepared.bundle
    if bundle.guard is None:
        return
    try:
        for source in bundle.local_sources.values():
            bundle.guard.check_code(source.path)
        for script in find_bundle_scripts(bundle):
            bundle.guard.check_code(Path(script))
    except (NotTrusted, TrustUnreadable, OSError) as error:
        reason = str(error) if isinstance(error, AmplifierError) else f"the code of the bundle cannot be read: {error}"
        engine.report_problem(background, CODE, "degraded", reason)
        raise QueueBlocked(reason) from error
    engine.clear_problem(background, CODE)


def _refresh_permissions(engine: Engine, background: BackgroundSessionState) -> None:
    """Take over changed permissions. Raises `QueueBlocked` for unreadable ones, and shows them in the status."""
    gate = engine.parent.coordinator.permissions
    if gate is None or gate.policy.refresh is None:
        return
    try:
        gate.policy = gate.policy.refresh() or gate.policy
    except (AmplifierError, OSError) as error:
        reason = f"the permissions cannot be read: {error}"
        engine.report_problem(background, PERMISSIONS, "degraded", reason)
        raise QueueBlocked(reason) from error
    engine.clear_problem(background, PERMISSIONS)


def _make_tree(engine: Engine, background: BackgroundSessionState, delivery: Delivery) -> Tree:
    """Return the tree of the delivery's session, charged to the background session and its budget."""
    own = background.allowance.own
    return Tree.below(
        str(delivery.session_id),
        background.prepared.bundle,
        delivery.created,
        queue=(queue_account(background.project, background.queue), own.copy() if own is not None else None),
        observers=[engine.files.observer(delivery), *engine.session_observers],
        clock=engine.clock,
    )


def _report_stall(engine: Engine, background: BackgroundSessionState, session_id: str, text: str) -> None:
    text = f"session {session_id} {text}"
    logger.warning("background session '%s': %s", background.config.name, text)
    engine.report_stall(background, text)


async def put_aside(engine: Engine, delivery: Delivery) -> None:
    """Give back a delivery, in its place, that was cut before its session ran.

    Raises `StaleEpoch` when its end is stored already.
    """
    due = min(delivery.available_at, engine.clock.now())
    put_back = partial(give_back, engine.store, delivery, engine.clock, "interrupted", due, counted=False)
    try:
        await put_back(session={"status": "interrupted"})
    except SessionNotFound:  # it was cut before its session was stored
        await put_back()
    except StaleEpoch:
        await close_replaced(engine, delivery)
        raise


async def close_replaced(engine: Engine, delivery: Delivery) -> None:
    """Mark the session of a replaced delivery as cancelled; after a later claim, the session is that claim's."""
    session_id = str(delivery.session_id)
    found = await engine.store.deliveries(session_id=session_id, limit=1)
    if found and (found[0].delivery_id, found[0].state) == (delivery.delivery_id, "skipped"):
        await give_up_worktree(delivery)
        await engine.store.update(session_id, status="cancelled")
        await forget_worktree(delivery)
