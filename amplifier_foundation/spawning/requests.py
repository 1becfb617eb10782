"""Execute the request for a session in a process that has nothing else of it: no parent, no bundle's file.

Everything is in the request: its plan, its instruction, its folder. So any process with a store can run it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from amplifier_core.hook_data import RunResult
from amplifier_core.session import AmplifierSession
from amplifier_core.shared_stores import SharedStore
from amplifier_core.storage import Delivery
from amplifier_core.transcript import Transcript

from ..bundle.model import Bundle
from ..bundle.prepared import PreparedBundle, with_default_session
from ..sessions.session_storage import as_session_store
from .child import Spawn, prepare_spawn
from .life import run_spawn, settle_spawn
from .own_loops import FencedStore
from .runners import InProcessRunner

if TYPE_CHECKING:
    from amplifier_core.approval import ApprovalSystem
    from amplifier_core.display import DisplaySystem
    from amplifier_core.hook_data import Runner, SpawnRequest
    from amplifier_core.storage import SessionStorage, SessionStore

    from .own_loops import Fence


async def execute_request(
    request: SpawnRequest, store: SessionStore | SessionStorage | None = None, fence: Fence | Delivery | None = None
) -> RunResult:
    """Run the session of a request in this process, and return what came of it; its failure is the `error`.

    With a `store`, a stored session takes the instruction as its next turn, or goes on with its last turn if that had
    the same one, and each message is durable before the next step. The `turns` are those of this call alone. The
    `fence` is a delivery as it was claimed from a `SharedStore`: as soon as another claim has it, nothing more is
    stored, and `StaleEpoch` is raised. Or it is a `Fence`, whose closing ends the right to store anything.

    Raises `SpawnRefused`, `SessionConflict`, the errors of the store, and `ValueError` for a delivery without a store
    that several hosts share.
    """
    store = as_session_store(store) if store is not None else None
    if isinstance(fence, Delivery):
        if not isinstance(store, SharedStore):
            raise ValueError("a delivery fences only a store that several hosts share, such as storage-postgres")
        store = cast("SessionStore", store.fenced(fence))
    elif store is not None and fence is not None:
        store = cast("SessionStore", FencedStore(store, fence))
    spawn = spawn_of(request, store=store)
    await prepare_spawn(spawn, resume=True, anew=bool(request.instruction), again=True)
    before = spawn.turns
    outcome = await run_spawn(spawn)
    await settle_spawn(spawn, outcome)
    if spawn.error is not None and not isinstance(spawn.error, Exception):
        raise spawn.error  # this task is cancelled
    return RunResult(outcome.output, spawn.turns - before, outcome.usage, spawn.error)


def spawn_of(
    request: SpawnRequest,
    *,
    store: SessionStore | None = None,
    prepared: PreparedBundle | None = None,
    approval_system: ApprovalSystem | None = None,
    display_system: DisplaySystem | None = None,
    runner: Runner | None = None,
) -> Spawn:
    """Return the spawn of a request below a session that is not here; its modules are those of the plan."""
    parent = AmplifierSession(
        with_default_session(request.config),
        session_id=request.parent_id or None,
        approval_system=approval_system,
        display_system=display_system,
    )
    return Spawn(
        prepared=prepared or PreparedBundle.of(Bundle(request.bundle or "session")),
        request=request,
        parent=parent,
        transcript=Transcript(),
        store=store,
        runner=runner or InProcessRunner(),
    )
