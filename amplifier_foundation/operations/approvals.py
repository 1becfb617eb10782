"""Read and answer the questions of background sessions and runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_core.errors import SessionConflict
from amplifier_core.storage import Inbox

from .acting import record_act
from .sessions import LAST

if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Literal

    from amplifier_core.storage import Delivery, DurableStore, SessionStore

    from ..background.approvals import Approval, Scope
    from .acting import Actor

SHORTEST = 4
"""Characters of an id that are enough to name an approval."""


async def read_approvals(store: DurableStore, *, finished: bool = False) -> list[Approval]:
    """Return the approvals of unfinished deliveries, the oldest first; with `finished`, also the kept answers."""
    from ..background.approvals import read_all

    return await read_all(store, finished=finished)


async def find_approval(store: DurableStore, text: str, project: str | None = None) -> Approval:
    """Return the approval with this id, or the only one whose id begins with it.

    `last` is the newest one of `project`, of those that wait if any does. Raises `ApprovalNotFound`, and
    `SessionConflict` when several ids begin so.
    """
    from ..background.approvals import ApprovalNotFound

    found: list[Approval] = []
    for finished in (False, True) if len(text) >= SHORTEST else ():
        known = await read_approvals(store, finished=finished)
        found = [each for each in known if each.id.startswith(text)]
        if text == LAST:
            found = [each for each in known if each.project == project][-1:]
        if found:
            break
    if not found:
        raise ApprovalNotFound(text, SHORTEST)
    if len(found) > 1:
        ids = ", ".join(each.id for each in found[:5])
        raise SessionConflict(text, f"'{text}' begins the ids of several approvals: {ids}. Type more of the id")
    return found[0]


async def find_question(store: SessionStore, session_id: str) -> Approval | None:
    """Return the question that a session waits for, its own or one of a session below that its event woke."""
    for each, delivery in await _read_questions(store):
        woken = delivery.session_id if delivery is not None else None
        if each.state == "pending" and session_id in (each.session_id, woken):
            return each
    return None


async def withdraw_questions(store: SessionStore, actor: Actor, session_ids: Collection[str]) -> None:
    """Take back what sessions wait for before they are deleted: the event that woke one of them is skipped.

    Where one below such a session is deleted alone, the event goes on without it.
    """
    from ..background.approvals import save
    from ..background.giving_back import make_due
    from .deliveries import drop_deliveries

    for each, delivery in await _read_questions(store):
        assert isinstance(store, Inbox)
        if delivery is not None and delivery.session_id in session_ids:
            async for _ in drop_deliveries(store, actor, [delivery], f"its session {delivery.session_id} was deleted"):
                pass  # of a conflict, an answer was faster, or another question of the same event
        elif each.session_id in session_ids:
            await make_due(store, each.delivery_id)
        else:
            continue
        await save(store, each.project, each.queue, {each.id: None})


async def _read_questions(store: SessionStore) -> list[tuple[Approval, Delivery | None]]:
    """Return the questions of unfinished events, each with the delivery of its event."""
    if not isinstance(store, Inbox):
        return []
    found = []
    for each in await read_approvals(store):
        deliveries = await store.find_deliveries(each.delivery_id)
        found.append((each, next((one for one in deliveries if one.delivery_id == each.delivery_id), None)))
    return found


async def answer_approval(
    store: DurableStore,
    actor: Actor,
    approval: Approval,
    state: Literal["approved", "denied"],
    scope: Scope = "once",
    said: str = "",
    *,
    noun: str = "approvals",
) -> Approval:
    """Give a person's answer, and remember a rule for good; `said` is the reason.

    `noun` is that of the command. Raises `WithinSession` in a process of a session, and `SessionConflict` for an
    approval that is answered otherwise.
    """
    from ..background.approvals import decide
    from ..security.session_mark import refuse_in_session

    verb = "approve" if state == "approved" else "deny"
    refuse_in_session(f"{noun} {verb}")
    decided = await decide(store, approval, state, scope, said)
    await record_act(
        store,
        actor,
        f"{noun}.{verb}",
        decided.id,
        project=decided.project,
        queue=decided.queue,
        delivery_id=decided.delivery_id,
        session_id=decided.session_id,
        tool=decided.tool,
        scope=scope,
        reason=said,
    )
    if scope == "always" and decided.rule is not None:
        from asyncio import to_thread

        from ..security.policies import remember_rule

        await to_thread(remember_rule, decided.rule)
    return decided
