"""Ask the person at the editor: `session/request_permission`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal

from amplifier_core.approval import ApprovalTimeoutError
from amplifier_core.permissions.gate import ALWAYS, SESSION

from .contents import make_text
from .peer import RpcError
from .tool_calls import LONGEST_TITLE, describe_call, make_diff

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_core.coordinator import ModuleCoordinator
    from amplifier_core.models import HookResult

    from .peer import Peer


async def ask(
    peer: Peer, session_id: str, call: dict[str, Any], options: Sequence[str], seconds: float | None = None
) -> str | None:
    """Return the chosen option; None: the question was withdrawn. Raises `ApprovalTimeoutError`.

    Options that begin with "Allow" allow; an editor that cannot ask denies.
    """
    offered = [
        {"optionId": str(number), "name": option, "kind": _kind_of(option)} for number, option in enumerate(options)
    ]
    try:
        async with asyncio.timeout(seconds):
            told = {"sessionId": session_id, "toolCall": call, "options": offered}
            answer = await peer.request("session/request_permission", told)
    except TimeoutError:
        raise ApprovalTimeoutError(str(call.get("title"))) from None
    except RpcError:
        return None
    outcome = answer.get("outcome")
    chosen = outcome.get("optionId") if isinstance(outcome, dict) and outcome.get("outcome") == "selected" else None
    return next((option for number, option in enumerate(options) if str(number) == chosen), None)


class EditorApprovals:
    """Puts the questions of a session, and of those below it, to the person at the editor.

    `serving` is the event loop of the editor; the questions come from the loop of the session.
    """

    def __init__(self, peer: Peer, session_id: str, folder: str, serving: asyncio.AbstractEventLoop) -> None:
        self._peer = peer
        self._session_id = session_id
        self._folder = folder
        self._serving = serving
        self._count = 0

    async def answer_call(self, coordinator: ModuleCoordinator, question: HookResult) -> HookResult:
        """Return `continue` for an allowed call, else `deny`; the answer may hold for the session, or for good."""
        from amplifier_core.hook_results import allows
        from amplifier_core.models import HookResult

        data, prompt = question.data or {}, question.approval_prompt or "Allow this operation?"
        call = describe_call(
            str(data.get("tool_call_id")), str(data.get("tool_name")), data.get("tool_input"), self._folder
        )
        options = question.approval_options or ["Allow", "Deny"]
        try:
            shown = await asyncio.to_thread(self._show_change, data, getattr(question, "approval_preview", None))
            answer = await self._ask({**call, **shown}, prompt, options, question.approval_timeout)
        except ApprovalTimeoutError:
            return HookResult(action="deny", reason=f"nobody answered in time: {prompt}")
        if coordinator.permissions is not None:
            coordinator.permissions.hear(prompt, answer)
        if allows(answer):
            update = {"sessionUpdate": "tool_call_update", "toolCallId": call["toolCallId"], "status": "in_progress"}
            self._peer.update(self._session_id, update)
            return HookResult(action="continue", data=question.data)
        return HookResult(action="deny", reason=f"the person denied: {prompt}")

    def _show_change(self, data: dict[str, Any], preview: str | None) -> dict[str, Any]:
        """Return what a call would change as content: a diff of the editor's own, else the text of its tool."""
        if not preview:
            return {}
        diff = make_diff(str(data.get("tool_name")), data.get("tool_input"), self._folder)
        text = {"type": "content", "content": make_text(f"```diff\n{preview.replace('```', '`` `')}\n```")}
        return {"content": [diff or text]}

    async def request_approval(
        self,
        prompt: str,
        options: list[str],
        timeout: float | None,  # noqa: ASYNC109 - a published signature
        default: Literal["allow", "deny"],
    ) -> str:
        """Return the chosen option. Raises `ApprovalTimeoutError`."""
        self._count += 1
        title = prompt.partition("\n")[0][:LONGEST_TITLE]
        return await self._ask({"toolCallId": f"question-{self._count}", "title": title}, prompt, options, timeout)

    async def _ask(self, call: dict[str, Any], prompt: str, options: list[str], seconds: float | None) -> str:
        content = [{"type": "content", "content": make_text(prompt)}, *call.get("content", ())]
        told = {**call, "status": "pending", "content": content}
        asking = ask(self._peer, self._session_id, told, options, seconds)
        answer = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asking, self._serving))
        return answer or "Deny"


def _kind_of(option: str) -> str:
    if not option.lower().startswith(("allow", "trust")):
        return "reject_once"
    return "allow_always" if option.startswith((SESSION, ALWAYS, "Trust")) else "allow_once"
