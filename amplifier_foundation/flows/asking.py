"""Ask people about tasks, in the approvals inbox or at an approval system; hear them when they cancel a run."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import StoreUnavailable
from amplifier_core.permissions.gate import DENY, ONCE

from ..sessions.asked import AskedCall
from .errors import CANCELLED, FlowError

if TYPE_CHECKING:
    from amplifier_core.approval import ApprovalSystem
    from amplifier_core.clock import Clock
    from amplifier_core.storage import DurableStore

    from ..background.approval_inbox import ApprovalInbox
    from ..background.approvals import Approval
    from .tasks import Task

TOOL = "flow"
"""The name that questions about tasks have in the place of a tool's."""
LOOK = 1.0
"""Seconds between two looks whether a person has cancelled the run."""


class InboxApprovals:
    """Puts questions about tasks into the approvals inbox of a run."""

    def __init__(self, inbox: ApprovalInbox, run_id: str, folder: str) -> None:
        self._inbox = inbox
        self._run_id = run_id
        self._folder = folder

    async def ask(self, key: str, task: Task, question: str) -> dict[str, Any] | None:
        """Return the answer in the inbox, or put the question there and return None."""
        call = AskedCall(
            session_id=self._run_id,
            call_id=key,
            key=sha256(f"{self._run_id}:{key}".encode()).hexdigest(),
            tool=TOOL,
            arguments={"run": self._run_id, "task": key, "question": question},
            commands=[],
            folder=self._folder,
            question=question,
            reason=f"the task '{task.id}' needs approval",
            options=[ONCE, DENY],
            continues=False,
        )
        answer = await self._inbox.find(call)
        if answer.state == "pending":
            await self._inbox.keep(answer.id, [])
            return None
        found = next((each for each in await self._inbox.read() if each.id == answer.id), None)
        said = found.said if found is not None else ""
        if found is not None and found.state == "expired":
            said = f"nobody answered before {found.expires:%Y-%m-%d %H:%M} UTC"
        return {"approved": answer.state == "approved", "said": said}


class DirectApprovals:
    """Asks an approval system, and waits for its answer."""

    def __init__(self, system: ApprovalSystem) -> None:
        self._system = system

    async def ask(self, key: str, task: Task, question: str) -> dict[str, Any] | None:
        """Return the answer."""
        from amplifier_core.hook_results import allows

        chosen = await self._system.request_approval(f"{key}: {question}", [ONCE, DENY], 300.0, "deny")
        return {"approved": allows(chosen), "said": ""}


def task_of(question: Approval) -> str | None:
    """Return the key of the task that a question is about; None: it is about the tool call of an agent."""
    return str(question.arguments.get("task")) if question.tool == TOOL else None


def _state_key(run_id: str) -> str:
    return f"flow:{run_id}#cancelled"


async def ask_to_cancel(store: DurableStore, project: str, run_id: str, *, wish: bool = True) -> None:
    """Have the process of a run end it; with `wish=False`, take that back."""
    await store.save_trigger_state(project, _state_key(run_id), {"wish": wish})


async def forget_cancel(store: DurableStore, project: str, run_id: str) -> None:
    """Forget a wish that nobody heard: a person goes on with the run."""
    if (await store.trigger_state(project, _state_key(run_id))).get("wish"):
        await ask_to_cancel(store, project, run_id, wish=False)


async def watch_for_cancel(store: DurableStore, project: str, run_id: str, clock: Clock) -> None:
    """Raise `FlowError` when a person cancels the run; look once a second."""
    while True:
        try:
            if (await store.trigger_state(project, _state_key(run_id))).get("wish"):
                await ask_to_cancel(store, project, run_id, wish=False)
                raise FlowError(CANCELLED, f"a person has cancelled the run {run_id}")
        except StoreUnavailable:
            await asyncio.sleep(0)  # the run itself meets the problem, and says so
        await clock.sleep(LOOK)
