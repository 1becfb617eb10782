"""Carry out a hook's result: add to the context, ask the user, show a message."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from .events import APPROVAL_DENIED, APPROVAL_GRANTED, APPROVAL_REQUIRED, TOOL_PRE
from .models import ContextInjection, HookResult
from .previews import CHANGED, preview_call

if TYPE_CHECKING:
    from .coordinator import ModuleCoordinator

logger = logging.getLogger(__name__)

_ALLOWING = ("allow", "yes", "approve", "approved", "ok", "always")


async def process(coordinator: ModuleCoordinator, result: HookResult, event: str, hook_name: str) -> HookResult:
    """Carry out `result`; return it, or the outcome of its question. A question shows no message."""
    if result.action == "inject_context":
        for injection in result.context_injections or [_single(result, event, hook_name)]:
            await _inject(coordinator, injection)
    elif result.action == "ask_user":
        about = _describe_question(result, event, hook_name)
        await coordinator.hooks.emit(APPROVAL_REQUIRED, about)
        answer = await _ask(coordinator, result, event, hook_name)
        if not (answer.data or {}).get("held"):  # its answer comes later
            outcome = APPROVAL_GRANTED if answer.action == "continue" else APPROVAL_DENIED
            await coordinator.hooks.emit(outcome, {**about, "reason": answer.reason})
        return answer
    if result.user_message:
        _show(coordinator, result, hook_name)
    return result


def _single(result: HookResult, event: str, hook_name: str) -> ContextInjection:
    return ContextInjection(
        content=result.context_injection or "",
        role=result.context_injection_role,
        ephemeral=result.ephemeral,
        append_to_last_tool_result=result.append_to_last_tool_result,
        hook_name=hook_name,
        event=event,
    )


async def _inject(coordinator: ModuleCoordinator, injection: ContextInjection) -> None:
    content, limit = injection.content, coordinator.injection_size_limit
    if not content:
        return
    if limit is not None and len(content) > limit:
        raise ValueError(
            f"Context injection exceeds {limit} characters: hook '{injection.hook_name}' sent {len(content)}"
        )
    coordinator._current_turn_injections += len(content) // 4
    budget = coordinator.injection_budget_per_turn
    if budget is not None and coordinator._current_turn_injections > budget:
        logger.warning("hooks injected more than %d tokens in this turn, last '%s'", budget, injection.hook_name)
    context = coordinator.get("context")
    if injection.ephemeral or context is None:
        return
    about = {"source": "hook", "hook_name": injection.hook_name, "event": injection.event}
    about["timestamp"] = datetime.now(UTC).isoformat()
    await context.add_message({"role": injection.role, "content": content, "metadata": about})


def _describe_question(result: HookResult, event: str, hook_name: str) -> dict[str, Any]:
    """Return the data of the events about a question."""
    data = result.data or {}
    call: dict[str, Any] = {key: data[key] for key in ("tool_name", "tool_call_id") if key in data}
    return {**call, "event": event, "hook": hook_name, "prompt": result.approval_prompt, "reason": result.reason}


async def _ask(coordinator: ModuleCoordinator, result: HookResult, event: str, hook_name: str) -> HookResult:
    """Return the outcome of a question; a call is refused when it would change something else than was shown."""
    system = coordinator.approval_system
    if system is None:
        return HookResult(action="deny", reason="No approval system available")
    is_shown = event == TOOL_PRE and getattr(system, "shows_previews", True)
    preview = await preview_call(coordinator, result.data) if is_shown else ""
    if preview:
        result = result.model_copy(update={"approval_preview": preview})
    answer = await _put(coordinator, result, event, hook_name)
    if preview and answer.action == "continue" and await preview_call(coordinator, result.data) != preview:
        return HookResult(action="deny", reason=CHANGED)
    return answer


async def _put(coordinator: ModuleCoordinator, result: HookResult, event: str, hook_name: str) -> HookResult:
    """Put a question to the approval system, and return its outcome."""
    from .approval import ApprovalTimeoutError

    system: Any = coordinator.approval_system
    prompt = result.approval_prompt or "Allow this operation?"
    options = result.approval_options or ["Allow", "Deny"]
    shown = f"{prompt}\n{result.approval_preview}" if result.approval_preview else prompt
    try:
        if event == TOOL_PRE and hasattr(system, "answer_call"):
            verdict: HookResult = await system.answer_call(coordinator, result)
            return verdict
        answer = await system.request_approval(shown, options, result.approval_timeout, result.approval_default)
    except ApprovalTimeoutError:
        if not allows(result.approval_default):
            return HookResult(action="deny", reason=f"Approval timeout - denied by default: {prompt}")
        answer = result.approval_default
    except Exception as error:
        logger.error("the approval system failed for hook '%s': %s", hook_name, error)
        return HookResult(action="deny", reason=f"Approval failed: {error}")
    if coordinator.permissions is not None:
        coordinator.permissions.hear(prompt, str(answer))
    if allows(str(answer)):
        return HookResult(action="continue", data=result.data)
    return HookResult(action="deny", reason=f"User denied: {prompt}")


def allows(answer: str) -> bool:
    """Return whether the answer begins like a yes; "always" alone is one, "always deny" is not."""
    words = answer.lower().split()
    decisive = words[1:] if words[:1] == ["always"] and len(words) > 1 else words
    return bool(decisive) and decisive[0] in _ALLOWING


def _show(coordinator: ModuleCoordinator, result: HookResult, hook_name: str) -> None:
    source = f"hook:{result.user_message_source or hook_name}"
    if coordinator.display_system is None:
        logger.info("%s: %s", source, result.user_message)
        return
    try:
        coordinator.display_system.show_message(result.user_message or "", result.user_message_level, source=source)
    except Exception as error:
        logger.warning("the display failed to show a message of %s: %s", source, error)
