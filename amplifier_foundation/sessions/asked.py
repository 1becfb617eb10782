"""Put a question about a tool call to an inbox: the call is held, and the session ends, until a person has answered."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from amplifier_core.errors import StoreError
from amplifier_core.frozen import frozen

from .held import CAPABILITY
from .history import text_of

if TYPE_CHECKING:
    from amplifier_core.coordinator import ModuleCoordinator
    from amplifier_core.models import HookResult

    from .held import HeldCalls

MESSAGES, LONGEST = 6, 500
"""The last messages that an approval shows, and the characters of each."""


@frozen
class AskedCall:
    """A question about a tool call, in plain data."""

    session_id: str
    call_id: str
    key: str
    """Names the call also when its session goes on in another process."""
    tool: str
    arguments: dict[str, Any]
    commands: list[str]
    """The commands that the tool runs for it."""
    folder: str
    question: str
    reason: str
    options: list[str]
    continues: bool
    """Whether the call goes on with a session that it began."""
    preview: str = ""
    """What the call would change, as its tool says."""


@frozen
class Answer:
    """What an inbox says of a call now: `state` is `pending`, `approved` or `denied`; `reason` is for the model."""

    id: str
    state: str
    reason: str = ""
    said: str = ""
    """The chosen option, to be told to the gate where it holds for good."""


class CallInbox(Protocol):
    """Keeps questions about calls until they are answered."""

    async def find(self, call: AskedCall) -> Answer:
        """Return the answer to a question; a new question is `pending`, and not kept yet."""
        ...

    async def keep(self, approval_id: str, messages: list[dict[str, str]]) -> None:
        """Keep a question that was found pending, with the last messages of its session."""
        ...


async def answer_or_hold(inbox: CallInbox, coordinator: ModuleCoordinator, question: HookResult) -> HookResult:
    """Return the answer to a question about a call, or hold the call."""
    from amplifier_core.models import HookResult as Result

    held: HeldCalls | None = coordinator.get_capability(CAPABILITY)
    if held is None or not getattr(coordinator.get("orchestrator"), "holds_calls", False):
        return Result(action="deny", reason="No approval system available")
    call = _describe(coordinator, question, held)
    try:
        answer = await inbox.find(call)
        if answer.state == "pending":
            await held.hold(call.call_id, call.tool)  # first: without an approval, the call is asked about anew
            await inbox.keep(answer.id, await _read_last(coordinator))
            return Result(action="deny", reason=answer.reason, data={"held": answer.id})
    except StoreError as error:
        held.fail(error)
        return Result(action="deny", reason=f"the question cannot be stored: {error}", data={"held": True})
    if answer.state != "approved":
        return Result(action="deny", reason=answer.reason)
    if answer.said and coordinator.permissions is not None:
        # Not for the session: the gate would forget that the scripts must be the same.
        coordinator.permissions.hear(question.approval_prompt or "", answer.said)
    return Result(action="continue", data=question.data)


def _describe(coordinator: ModuleCoordinator, question: HookResult, held: HeldCalls) -> AskedCall:
    from amplifier_core.permissions import Call

    data: Any = question.data or {}
    tool, arguments, call_id = str(data.get("tool_name")), data.get("tool_input") or {}, str(data.get("tool_call_id"))
    accesses = getattr((coordinator.get("tools") or {}).get(tool), "accesses", None)
    folder = str(coordinator.get_capability("session.working_dir") or Path.cwd())
    declared = accesses if isinstance(accesses, dict) or callable(accesses) else {}
    return AskedCall(
        session_id=coordinator.session_id,
        call_id=call_id,
        key=str(data.get("idempotency_key") or call_id),
        tool=tool,
        arguments=arguments,
        commands=Call.of(tool, arguments, folder, declared).find_commands(folder),
        folder=folder,
        question=question.approval_prompt or "Allow this operation?",
        reason=question.reason or "a hook asks",
        options=list(question.approval_options or ["Allow", "Deny"]),
        continues=held.session_of(call_id) is not None,
        preview=question.approval_preview or "",
    )


async def _read_last(coordinator: ModuleCoordinator) -> list[dict[str, str]]:
    from amplifier_core.utils.secrets import redact_text

    assert coordinator.session is not None  # it makes the call
    history = await coordinator.session.history()
    texts = [(str(each.get("role")), redact_text(text_of(each))) for each in history[-MESSAGES:]]
    return [{"role": role, "text": text if len(text) <= LONGEST else f"{text[:LONGEST]}…"} for role, text in texts]
