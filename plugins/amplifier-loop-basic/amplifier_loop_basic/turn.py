"""One turn: from a prompt to a final text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amplifier_core.events import (
    CONTENT_BLOCK_END,
    CONTENT_BLOCK_START,
    EXECUTION_END,
    EXECUTION_START,
    ORCHESTRATOR_COMPLETE,
    PROMPT_COMPLETE,
    PROMPT_SUBMIT,
    PROVIDER_ERROR,
    PROVIDER_REQUEST,
    PROVIDER_RESPONSE,
)
from amplifier_core.message_models import ChatRequest, ChatResponse

from .calls import ToolCalls, result_message
from .interrupts import Interrupted
from .signals import MODULE, changed
from .tail import awaits_model, unanswered_calls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_core import ContextManager, Provider, Tool, ToolCall, ToolSpec

    from .interrupts import Interrupts
    from .signals import Signals

CANCELLED = "The turn was cancelled."
LOST = (
    "Error: the session ended while this tool call ran, and it was not run again. "
    "It may have had an effect: check before you repeat it."
)
PREVIEW_LENGTH = 200


@dataclass(slots=True)
class Turn:
    """The state of one turn; `run` it once."""

    context: ContextManager
    provider_name: str
    provider: Provider
    tools: dict[str, Tool]
    specs: list[ToolSpec] | None
    signals: Signals
    interrupts: Interrupts
    max_iterations: int
    iterations: int = 0
    status: str = "success"
    text: str = ""

    async def run(self, prompt: str) -> str:
        """Submit `prompt`, go round between model and tools, and return the final text."""
        submitted = await self.signals.emit(PROMPT_SUBMIT, {"prompt": prompt})
        if submitted.action == "deny":
            return f"Denied by hook: {submitted.reason}"
        prompt = changed(submitted, "prompt", prompt)
        await self.signals.emit(EXECUTION_START, {"prompt": prompt})
        try:
            await self._begin(prompt)
            await self._loop()
        except BaseException as error:
            self.status = "error" if isinstance(error, Exception) else "cancelled"
            raise
        finally:
            await self._announce_end()
        await self.signals.emit(
            PROMPT_COMPLETE, {"response_preview": self.text[:PREVIEW_LENGTH], "length": len(self.text)}
        )
        return self.text

    async def _announce_end(self) -> None:
        await self.signals.emit(
            ORCHESTRATOR_COMPLETE, {"orchestrator": MODULE, "turn_count": self.iterations, "status": self.status}
        )
        await self.signals.emit(EXECUTION_END, {"response": self.text, "status": self.status})

    async def _begin(self, prompt: str) -> None:
        """Add the prompt, unless it is empty and the history waits for the model; answer calls that a crash left."""
        history: Sequence[dict[str, Any]] | None = getattr(self.context, "transcript", None)
        if history is None:
            history = await self.context.get_messages()
        goes_on = not prompt and awaits_model(history)
        for call_id, name in unanswered_calls(history):
            await self.context.add_message(result_message(call_id, name, LOST))
        if not goes_on:
            await self.context.add_message({"role": "user", "content": prompt})

    async def _loop(self) -> None:
        calls = ToolCalls(self.tools, self.context, self.signals, self.interrupts)
        while self._may_ask():
            self.iterations += 1
            response = await self._ask_model()
            if response is None:
                return
            wanted = self.provider.parse_tool_calls(response) or []
            blocks = _as_dicts(response.content)
            await self._show(response, blocks)
            await self.context.add_message(_assistant_message(response, blocks, wanted))
            if not wanted:
                self.text = "\n\n".join(block["text"] for block in blocks if block.get("type") == "text")
                return
            await calls.run(wanted)

    def _may_ask(self) -> bool:
        if self.interrupts.is_cancelled:
            self._stop("cancelled", CANCELLED)
        elif self.iterations == self.max_iterations:
            self._stop(
                "incomplete",
                f"Stopped after {self.iterations} model calls, before an answer (max_iterations). "
                "An empty prompt goes on from here.",
            )
        return self.status == "success"

    def _stop(self, status: str, text: str) -> None:
        self.status, self.text = status, text

    async def _ask_model(self) -> ChatResponse | None:
        """Return the model's response; None when there will be none and the turn is over."""
        about = {"provider": self.provider_name, "iteration": self.iterations}
        verdict = await self.signals.emit(PROVIDER_REQUEST, about)
        if verdict.action == "deny":
            self._stop("incomplete", f"Denied by hook: {verdict.reason}")
            return None
        messages = await self.context.get_messages_for_request(provider=self.provider)
        request = ChatRequest.model_validate({"messages": self.signals.with_injections(messages), "tools": self.specs})
        try:
            response = await self.interrupts.run(self.provider.complete, request)
        except Interrupted:
            self._stop("cancelled", CANCELLED)
            return None
        except Exception as error:
            await self.signals.emit(PROVIDER_ERROR, {**about, **_described(error)})
            raise
        await self.signals.emit(PROVIDER_RESPONSE, {**about, "response": response, "usage": _usage(response)})
        return response

    async def _show(self, response: ChatResponse, blocks: list[dict[str, Any]]) -> None:
        """Emit the start and end of every block; a provider may show blocks other than those of the history."""
        is_heard = self.signals.is_heard
        if not (is_heard(CONTENT_BLOCK_START) or is_heard(CONTENT_BLOCK_END)):
            return
        # Asking a pydantic model for a field that it lacks costs as much as an event: only a subclass has this one.
        own = None if type(response) is ChatResponse else getattr(response, "content_blocks", None)
        shown = _as_dicts(own) if own else blocks
        total = len(shown)
        for index, block in enumerate(shown):
            place = {"block_index": index, "total_blocks": total}
            await self.signals.emit(CONTENT_BLOCK_START, {"block_type": block.get("type"), **place})
            end = {**place, "block": block}
            if index == total - 1 and response.usage is not None:
                end["usage"] = _usage(response)
            await self.signals.emit(CONTENT_BLOCK_END, end)


def _as_dicts(content: Any) -> list[dict[str, Any]]:
    """Return blocks of any kind, or a plain text, as a list of dicts."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [_as_dict(block) for block in content or ()]


def _as_dict(block: Any) -> dict[str, Any]:
    if isinstance(block, dict):
        return block
    dump = getattr(block, "model_dump", None)
    dumped: dict[str, Any] = block.to_dict() if dump is None else dump(exclude_none=True)
    return dumped


def _assistant_message(
    response: ChatResponse, blocks: list[dict[str, Any]], calls: Sequence[ToolCall]
) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": blocks or ""}
    if calls:
        message["tool_calls"] = [{"id": call.id, "tool": call.name, "arguments": call.arguments} for call in calls]
    if response.metadata:
        message["metadata"] = dict(response.metadata)
    return message


def _usage(response: ChatResponse) -> dict[str, Any] | None:
    return None if response.usage is None else response.usage.model_dump(exclude_none=True)


def _described(error: Exception) -> dict[str, Any]:
    return {
        "error": {"type": type(error).__name__, "msg": str(error)},
        "retryable": getattr(error, "retryable", False),
        "status_code": getattr(error, "status_code", None),
    }
