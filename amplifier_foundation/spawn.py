"""The one way to make a session from a session.

`spawn_bundle` is three steps, each usable alone: `prepare_spawn` decides everything, `run_spawn` lives the child's
life, `settle_spawn` keeps and tells the outcome. A background session settles differently (with its delivery, in one
transaction), and shares the rest.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

from amplifier_core.errors import BundleLoadError, SessionExists
from amplifier_core.ids import new_session_id

from .bundles.load import load_bundle
from .bundles.model import Bundle, PreparedBundle
from .recording import carried_out
from .session_storage import as_session_store
from .spawning.child import Spawn, prepare_spawn, spawn_request
from .spawning.family import TREE, Family, end_tasks
from .spawning.inheritance import Depth, Inherit, Scope, child_config, inherited
from .spawning.life import failure_event, run_spawn, settle_spawn
from .spawning.limits import time_limit

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from amplifier_core.plugins import Plugins
    from amplifier_core.session import AmplifierSession
    from amplifier_core.storage import SessionStorage, SessionStore

    from .events import EventRouter


@dataclass(frozen=True, slots=True)
class SpawnResult:
    """What a spawned session gave back; `duration` in seconds, `usage` what its model calls took."""

    output: str
    session_id: str
    turn_count: int
    status: str = "completed"
    duration: float = 0.0
    usage: Mapping[str, Any] = field(default_factory=dict)

    @property
    def cost(self) -> float | None:
        """What its model calls cost in USD; None when nobody says."""
        cost = self.usage.get("cost_usd")
        return None if cost is None else float(cost)


class SpawnHandle:
    """A session that runs in the background of its parent, which ends it when it ends itself."""

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
        """Return what it gives. Raises as `spawn_bundle` does; cancelling the waiting does not cancel the session."""
        return await asyncio.shield(self._task)

    async def cancel(self, *, immediate: bool = False) -> None:
        """Stop it when its running tools have finished, or at once, and wait until it is stored."""
        self._spawn.ask_to_stop()
        await (end_tasks({self._task}) if immediate else asyncio.wait({self._task}))


class SpawnOptions(TypedDict, total=False):
    """What `spawn_bundle` takes by name."""

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
    """Run `instruction` in a new session made from `bundle`, a child of `parent_session`; return what it answered.

    The child takes the parent's session section and providers where it has none of its own, the tools and hooks that
    `inherit_*` names (True: all), and the part of the history that `context_depth` (none, recent: `context_turns`
    turns, all) and `context_scope` (conversation, agents, full) say. With a `session_storage` every message is durable
    before the next step is taken. `session:completed` or `session:error` is emitted once. Without a `timeout` (seconds)
    that of the bundle's `spawn` section holds; loading a bundle may take as long. The plugins are the parent's unless
    others are given. In the `background`, a `SpawnHandle` is returned once the child is admitted and stored; what it
    would have to be permitted is denied.

    Raises `BundleError`, `SpawnRefused`, `SessionExists` (an id that is stored already, without `resume`),
    `SpawnTimeout` when the time is over, and what the child's orchestrator raises.
    """
    prepared = await _loaded(bundle, parent_session, session_id, timeout, event_router)
    config = child_config(
        prepared.mount_plan,
        parent_session.config,
        providers=inherit_providers,
        tools=inherit_tools,
        hooks=inherit_hooks,
    )
    history, turns = await inherited(parent_session, context_depth, context_scope, context_turns)
    spawn = Spawn(
        prepared=prepared,
        request=spawn_request(parent_session, prepared, instruction, config, session_id, session_name),
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
    anew: bool = False,
) -> SpawnResult:
    """Do with a `Spawn` what `spawn_bundle` does; see `prepare_spawn` for `resume` and `anew`."""
    family = Family.of(spawn.parent)
    with _counted(spawn, family):
        await _admit(spawn, family, resume=resume, anew=anew)
        return await _live(spawn, _limit(family, timeout))


async def spawn_in_background(
    spawn: Spawn,
    timeout: float | None = None,  # noqa: ASYNC109 - handed on
    *,
    resume: bool = False,
) -> SpawnHandle:
    """Do what `spawn_prepared` does in a task that the parent owns; return when the child is admitted and stored."""
    family = Family.of(spawn.parent)
    spawn.unattended = True
    with _counted(spawn, family):
        await _admit(spawn, family, resume=resume)
        if spawn.error is not None:
            await _live(spawn, None)
    return SpawnHandle(spawn, family.start(_live(spawn, _limit(family, timeout)), spawn.request.session_id))


def _counted(spawn: Spawn, family: Family) -> AbstractContextManager[None]:
    """Tell the plugins of the child's family, and count it there while the block runs. Raises `SessionExists`."""
    session_id = spawn.request.session_id
    if session_id in family.running:
        raise SessionExists(session_id)
    spawn.request = replace(
        spawn.request, siblings=len(family.running), relatives=family.tree.spawned, limits=family.tree.limits
    )
    spawn.capabilities = {TREE: family.tree, **spawn.capabilities}
    return family.child(session_id)


async def _admit(spawn: Spawn, family: Family, *, resume: bool, anew: bool = False) -> None:
    """Prepare the spawn; one that was cancelled when its record was written already still has to be settled."""
    try:
        await prepare_spawn(spawn, resume=resume, anew=anew)
    except BaseException as error:
        if not spawn.is_kept:
            family.tree.spawned -= 1
            raise
        spawn.error = error


def _limit(family: Family, timeout: float | None) -> float | None:
    return time_limit(family.tree.limits) if timeout is None else timeout


async def _live(spawn: Spawn, timeout: float | None) -> SpawnResult:  # noqa: ASYNC109 - handed on
    outcome = await run_spawn(spawn, timeout)
    settling = settle_spawn(spawn, outcome)
    await (settling if spawn.store is None else carried_out(settling))
    if spawn.error is not None:
        raise spawn.error
    return SpawnResult(
        outcome.output, outcome.session_id, outcome.turn_count, outcome.status, outcome.duration, outcome.usage
    )


async def _loaded(
    bundle: PreparedBundle | Bundle | str,
    parent: AmplifierSession,
    session_id: str | None,
    timeout: float | None,  # noqa: ASYNC109 - handed on
    router: EventRouter | None,
) -> PreparedBundle:
    """Return `bundle` prepared, within the time that its session would have; a failure is told as that session's."""
    if isinstance(bundle, PreparedBundle):
        return bundle
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
            await router.emit(*failure_event(session_id, parent.session_id, name, cause), session_id)
        raise cause from None


async def prepared_bundle(bundle: PreparedBundle | Bundle | str) -> PreparedBundle:
    """Return `bundle` ready to make sessions from: loaded when it is a path, prepared when it is not."""
    if isinstance(bundle, str):
        bundle = await load_bundle(bundle)
    return await bundle.prepare() if isinstance(bundle, Bundle) else bundle
