"""Cancel the turn of a running session, on this host or on another one of a shared store."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import AmplifierError, SessionConflict

from ..background.keys import run_of
from .acting import record_act

if TYPE_CHECKING:
    from amplifier_core.storage import SessionStore

    from ..background.approvals import Approval
    from .acting import Actor


class NotRunning(AmplifierError, LookupError):
    """Nobody runs the session, or `process` does, for a person there; or it waits for the answer to `asked`."""

    def __init__(self, session_id: str, process: str | None, asked: Approval | None = None) -> None:
        self.session_id, self.process = session_id, process
        told = f"session '{session_id}' has no turn to cancel: nobody runs it"
        if process:
            where = "Ctrl-C at a terminal, the stop button of an editor or a page"
            told = f"process {process} works in session '{session_id}', and a turn is stopped there: {where}"
        if asked is not None:
            drop = f"amplifier trigger drop {asked.delivery_id}"
            end = f"amplifier flow cancel {run}" if (run := run_of(asked)) else drop
            told = (
                f"session '{session_id}' waits for your approval. Answer: amplifier approvals show {asked.id}; or {end}"
            )
        super().__init__(told)


async def cancel_turn(store: SessionStore, actor: Actor, session_id: str) -> bool:
    """End the running turn of a session as cancelled, with the sessions below it; return whether that is done.

    Running tools get 3 seconds to finish. The delivery of a background session's turn is skipped for good, and the
    history stays. False: the turn had ended by itself. Raises `NotRunning` for a session that nobody runs,
    `SessionNotFound`, and `SessionConflict` for a process or a host that does not answer.
    """
    record = await store.get(session_id)
    answer = await asyncio.to_thread(_ask_here, session_id, record.project, actor.name)
    if answer is None and hasattr(store, "fenced"):  # other hosts share the store
        from ..background.hosts.people import cancel_elsewhere

        answer = await cancel_elsewhere(store, session_id, actor.name)  # type: ignore[arg-type]  # it is a shared one
    if answer is None:
        from ..sessions.lock import holder_of
        from ..sessions.presence import KEY, describe, is_running
        from .approvals import find_question

        if (asked := await find_question(store, session_id)) is not None:
            raise NotRunning(session_id, None, asked)
        runs = record.metadata.get(KEY) if is_running(record) else None
        raise NotRunning(session_id, holder_of(session_id) or (describe(str(runs)) if runs else None))
    if answer["cancelled"]:
        await record_act(
            store,
            actor,
            "session.cancel",
            session_id,
            project=record.project,
            queue=str(answer["queue"]),
            session_id=session_id,
        )
    return bool(answer["cancelled"])


def _ask_here(session_id: str, project: str, by: str) -> dict[str, Any] | None:
    """Return the answer of the process that runs a session, None when none of this host does."""
    from ..background.asking import AT_ONCE, PATIENCE, ask
    from ..sessions.lock import running_owners

    refusal: SessionConflict | None = None
    for owner in sorted(running_owners(), key=lambda owner: project not in (owner.get("projects") or ())):
        try:
            answer: dict[str, Any] | None = ask(
                owner, "cancel", patience=PATIENCE + AT_ONCE, session_id=session_id, by=by
            )
        except SessionConflict as error:
            refusal = refusal or error
            continue
        if answer is not None:
            return answer
    if refusal is not None:
        raise refusal
    return None
