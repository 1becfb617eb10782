"""Make a session from a session.

`spawn_bundle` has three steps, each usable alone: `prepare_spawn` asks the plugins and stores the record, `run_spawn`
runs the child, `settle_spawn` stores and announces the outcome. A background session settles its delivery in the same
transaction, and shares the rest.
"""

from __future__ import annotations

import asyncio
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

from amplifier_core.errors import BundleLoadError, SessionConflict, SessionExists
from amplifier_core.frozen import frozen
from amplifier_core.ids import new_session_id
from amplifier_core.storage import SessionStorage

from .bundle.load import load_bundle
from .bundle.model import Bundle
from .bundle.prepared import PreparedBundle, spawners
from .paths import project_of
from .sessions.recording import shield_to_completion
from .sessions.session_storage import as_session_store
from .sessions.working_dir import find_project_folder
from .spawning.child import Spawn, prepare_spawn, spawn_request
from .spawning.family import TREE, Family, end_tasks, has_ended
from .spawning.inheritance import Depth, Inherit, Scope, child_config, inherit_history
from .spawning.life import failure_event, run_spawn, settle_spawn
from .spawning.limits import time_limit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_core.plugins import Plugins
    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import SessionStore

    from .events import EventRouter

__all__ = [
    "SessionStorage",
    "Spawn",
    "SpawnHandle",
    "SpawnOptions",
    "SpawnResult",
    "describe_result",
    "prepare_spawn",
    "prepared_bundle",
    "run_spawn",
    "settle_spawn",
    "spawn_bundle",
    "spawn_in_background",
    "spawn_prepared",
]


@frozen
class SpawnResult:
    """The result of a spawned session; `duration` in seconds, `usage` of its requests to models.

    `turn_count` is the number of turns that the session has executed: also those before it was resumed, and none of the
    history that it inherited.
    """

    output: str
    session_id: str
    turn_count: int
    status: str = "completed"
    duration: float = 0.0
    usage: Mapping[str, Any] = field(default_factory=dict)

    @property
    def cost(self) -> float | None:
        """The cost of its requests to models in USD; None when it is unknown."""
        cost = self.usage.get("cost_usd")
        return None if cost is None else float(cost)


def describe_result(result: SpawnResult, **metadata: Any) -> dict[str, Any]:
    """Return a result in the form of the capability `session.spawn` and of `PreparedBundle.spawn`."""
    return {
        "output": result.output,
        "session_id": result.session_id,
        "status": result.status,
        "turn_count": result.turn_count,
        "metadata": {**metadata, "usage": dict(result.usage), "duration": result.duration},
    }


class SpawnHandle:
    """A session in the background of its parent; it ends with the parent at the latest."""

    def __init__(self, spawn: Spawn, task: asyncio.Task[SpawnResult]) -> None:
        self.session_id = spawn.request.session_id
        self._spawn = spawn
        self._task = task

    @property
    def status(self) -> str:
        """`running`, `completed`, `failed` or `cancelled`."""
        if not self._task.done():
            return "running"
        if self._task.cancelled() or isinstance(self._task.exception(), asyncio.CancelledError):
            return "cancelled"
        return "failed" if self._task.exception() is not None else self._task.result().status

    async def wait(self) -> SpawnResult:
        """Return the result. Raises the errors of `spawn_bundle`. Cancelling this wait does not cancel the session."""
        return await asyncio.shield(self._task)

    async def cancel(self, *, immediate: bool = False) -> None:
        """Stop it when its running tools have finished, or at once, and wait until it is stored."""
        self._spawn.ask_to_stop()
        await (end_tasks({self._task}) if immediate else asyncio.wait({self._task}))


class SpawnOptions(TypedDict, total=False):
    """The named options of `spawn_bundle`."""

    inherit_providers: bool
    inherit_tools: Inherit
    inherit_hooks: Inherit
    context_depth: Depth
    context_scope: Scope
    context_turns: int
    session_id: str | None
    session_name: str | None
    session_storage: SessionStore | SessionStorage | None
    timeout: float | None
    event_router: EventRouter | None
    resume: bool
    plugins: Plugins | None


@overload
async def spawn_bundle(
    bundle: PreparedBundle | Bundle | str,
    instruction: str,
    parent_session: AmplifierSession,
    *,
    background: Literal[False] = False,
    **options: Unpack[SpawnOptions],
) -> SpawnResult: ...
@overload
async def spawn_bundle(
    bundle: PreparedBundle | Bundle | str,
    instruction: str,
    parent_session: AmplifierSession,
    *,
    background: Literal[True],
    **options: Unpack[SpawnOptions],
) -> SpawnHandle: ...
@overload
async def spawn_bundle(
    bundle: PreparedBundle | Bundle | str,
    instruction: str,
    parent_session: AmplifierSession,
    *,
    background: bool,
    **options: Unpack[SpawnOptions],
) -> SpawnResult | SpawnHandle: ...
async def spawn_bundle(
    bundle: PreparedBundle | Bundle | str,
    instruction: str,
    parent_session: AmplifierSession,
    inherit_providers: bool = True,
    inherit_tools: Inherit = False,
    inherit_hooks: Inherit = False,
    context_depth: Depth = "none",
    context_scope: Scope = "conversation",
    context_turns: int = 5,
    session_id: str | None = None,
    session_name: str | None = None,
    session_storage: SessionStore | SessionStorage | None = None,
    timeout: float | None = None,  # noqa: ASYNC109 - a published signature
    background: bool = False,
    event_router: EventRouter | None = None,
    *,
    resume: bool = False,
    plugins: Plugins | None = None,
) -> SpawnResult | SpawnHandle:
    """Run `instruction` in a new session made from `bundle`, a child of `parent_session`; return its answer.

    The child inherits the parent's session section and providers unless it has its own, the tools and hooks named by
    `inherit_*` (True: all), and the history selected by `context_depth` (none, recent: `context_turns` turns, all) and
    `context_scope` (conversation, agents, full). With a `session_storage` every message is durable before the next
    step. `session:completed` or `session:error` is emitted once. The default `timeout` (seconds) is the bundle's, of
    its section `spawn`; loading a bundle may take as long. The default plugins are the parent's. In the `background`,
    a `SpawnHandle` is returned once the child is admitted and stored, and all questions for approval are denied. With
    `resume`, the stored session `session_id` takes the instruction as its next turn; a cut turn goes on when the
    instruction is the same, or empty.

    Raises `BundleError`, `SpawnRefused`, `ForkRefused`, `SessionExists` (a stored id without `resume`, and the
    parent's), `SessionNotFound` (with `resume`), `SessionConflict` (a parent that has ended, in the `background`),
    `SpawnTimeout`, `BudgetExceeded`, and the errors of the child's orchestrator. Raises `ValueError` for an unknown
    `context_depth` or `context_scope` and for `resume` without an id or a storage, and `TypeError` for an instruction
    that is not text, a `timeout` that is no number, and modules to inherit that are no list.
    """
    if resume and session_id is None:
        raise ValueError("resume: give the session_id of a stored session, too")
    if isinstance(bundle, PreparedBundle):
        prepared = bundle
    else:
        prepared = await _load_in_time(bundle, parent_session, session_id, timeout, event_router)
    own, above = prepared.mount_plan, parent_session.config
    config = child_config(own, above, providers=inherit_providers, tools=inherit_tools, hooks=inherit_hooks)
    history, turns = await inherit_history(parent_session, context_depth, context_scope, context_turns)
    spawn = Spawn(
        prepared=prepared,
        request=spawn_request(parent_session, prepared, instruction, config, session_id, session_name, counts=True),
        parent=parent_session,
        transcript=history,
        turns=turns,
        store=as_session_store(session_storage) if session_storage is not None else None,
        router=event_router,
        plugins=plugins if plugins is not None else parent_session.plugins,
    )
    if background:
        return await spawn_in_background(spawn, timeout, resume=resume)
    return await spawn_prepared(spawn, timeout, resume=resume)


async def spawn_prepared(
    spawn: Spawn,
    timeout: float | None = None,  # noqa: ASYNC109 - handed on
    *,
    resume: bool = False,
) -> SpawnResult:
    """Prepare, run and settle a `Spawn`, as `spawn_bundle` does."""
    family = Family.of(spawn.parent)
    seconds = _limit(family, timeout)
    _count_in(spawn, family)
    try:
        await _admit(spawn, family, resume=resume)
        return await _live(spawn, seconds)
    finally:
        family.discount(spawn.request.session_id)


async def spawn_in_background(
    spawn: Spawn,
    timeout: float | None = None,  # noqa: ASYNC109 - handed on
    *,
    resume: bool = False,
) -> SpawnHandle:
    """Do the same as `spawn_prepared` in a task of the parent's; return once the child is admitted and stored.

    Raises `SessionConflict` for a parent that has ended: nothing would end the child with it.
    """
    parent_id = spawn.parent.session_id
    if has_ended(spawn.parent):
        raise SessionConflict(parent_id, f"session '{parent_id}' has ended: it spawns nothing in the background")
    family = Family.of(spawn.parent)
    seconds = _limit(family, timeout)
    spawn.unattended = True
    _count_in(spawn, family)
    try:
        await _admit(spawn, family, resume=resume)
        if spawn.error is not None:
            await _live(spawn, None)
    finally:
        family.discount(spawn.request.session_id)
    return SpawnHandle(spawn, family.start(_live(spawn, seconds), spawn.request.session_id))


def _count_in(spawn: Spawn, family: Family) -> None:
    """Count the child in its family, for the plugins and their limits. Raises `SessionExists`."""
    request, tree = spawn.request, family.tree
    if request.session_id == request.parent_id or family.has(request.session_id):
        raise SessionExists(request.session_id)
    counts = (family.size, tree.spawned, tree.limits)
    if (request.siblings, request.relatives, request.limits) != counts:
        siblings, relatives, limits = counts
        spawn.request = replace(request, siblings=siblings, relatives=relatives, limits=limits)
    spawn.capabilities = {TREE: tree, **spawn.capabilities}
    family.count(request.session_id)


async def _admit(spawn: Spawn, family: Family, *, resume: bool) -> None:
    """Prepare the spawn; to `resume`, it must be stored. Raises `SessionNotFound`, `ValueError`.

    A cancellation after its record is written goes to `spawn.error`: it must be settled.
    """
    try:
        if resume:
            if spawn.store is None:
                raise ValueError("resume: give the session_storage that has the session, too")
            await spawn.store.get(spawn.request.session_id)
        await prepare_spawn(spawn, resume=resume, anew=True)
    except BaseException as error:
        if not spawn.is_kept:
            family.tree.spawned -= 1
            raise
        spawn.error = error


def _limit(family: Family, timeout: float | None) -> float | None:
    """Return the time limit in seconds. Raises `TypeError`."""
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, (int, float))):
        raise TypeError(f"timeout: must be a number of seconds, not {timeout!r}")
    return time_limit(family.tree.limits) if timeout is None else timeout


async def _live(spawn: Spawn, timeout: float | None) -> SpawnResult:  # noqa: ASYNC109 - handed on
    outcome = await run_spawn(spawn, timeout)
    if spawn.store is not None:
        await shield_to_completion(settle_spawn(spawn, outcome))
    elif spawn.router is not None or spawn.plugins is not None:
        await settle_spawn(spawn, outcome)
    if spawn.error is not None:
        raise spawn.error
    return SpawnResult(
        outcome.output, outcome.session_id, outcome.turn_count, outcome.status, outcome.duration, outcome.usage
    )


async def _load_in_time(
    bundle: Bundle | str,
    parent: AmplifierSession,
    session_id: str | None,
    timeout: float | None,  # noqa: ASYNC109 - handed on
    router: EventRouter | None,
) -> PreparedBundle:
    """Return `bundle` prepared, within the time limit of its session; a failure is emitted as that session's."""
    seconds = _limit(Family.of(parent), timeout)
    try:
        async with asyncio.timeout(seconds) as limit:
            return await prepared_bundle(bundle)
    except Exception as error:
        name = bundle if isinstance(bundle, str) else bundle.name
        late = BundleLoadError(f"{name}: it was not loaded within {seconds} s; give it a longer 'timeout'")
        cause = late if limit.expired() else error
        if router is not None:
            session_id = session_id or new_session_id("session")
            project = project_of(find_project_folder(parent.coordinator))
            await router.emit(*failure_event(session_id, parent.session_id, name, cause), session_id, project=project)
        raise cause from None


async def prepared_bundle(
    bundle: PreparedBundle | Bundle | str, names: Mapping[str, str] | None = None
) -> PreparedBundle:
    """Load a bundle from a path, or a place in one of `names`, and prepare one that is not prepared."""
    if isinstance(bundle, str):
        bundle = await load_bundle(bundle, registry=names)
    return await bundle.prepare() if isinstance(bundle, Bundle) else bundle


async def _spawn_composed(*arguments: Any, **options: Any) -> dict[str, Any]:
    from .spawning.composed import spawn_composed

    return await spawn_composed(*arguments, **options)


spawners[:] = [_spawn_composed]
