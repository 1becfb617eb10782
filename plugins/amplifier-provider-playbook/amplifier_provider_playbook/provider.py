"""The provider itself: the last message in, the answer of the first rule that fits out."""

from __future__ import annotations

import asyncio
import json
import re
from decimal import Decimal
from time import perf_counter
from typing import TYPE_CHECKING, Any

from amplifier_core.events import LLM_REQUEST, LLM_RESPONSE
from amplifier_core.llm_errors import InvalidRequestError
from amplifier_core.message_models import ChatResponse, TextBlock, ToolCall, ToolCallBlock, Usage
from amplifier_core.models import ModelInfo, ProviderInfo

from .steps import Step, read_steps
from .templates import UnknownPlaceholder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from amplifier_core import ChatRequest, HookRegistry, Message

    from .rules import Answer, Playbook

MODEL = "playbook"
CHARACTERS_PER_TOKEN = 4

_OWN_ID = re.compile(r"call_([0-9]{1,18})")


class PlaybookProvider:
    """Answers requests from the rules of a bundle.

    It looks at the last message only and keeps no state: a resumed or forked session gets the same answers. A result
    that records an interrupted call (`"interrupted": true`) is passed over together with the message that made the
    call, so that the same rule calls again; of calls made together, all are made again.
    """

    name = "playbook"

    def __init__(self, playbook: Playbook, hooks: HookRegistry | None = None) -> None:
        self.priority = playbook.priority
        self._playbook = playbook
        self._hooks = hooks

    def get_info(self) -> ProviderInfo:
        """Return what this provider is; it needs no credentials."""
        return ProviderInfo(
            id=self.name,
            display_name="Playbook (rules of the bundle, no model)",
            capabilities=["tools", "local"],
            defaults={"model": MODEL},
        )

    async def list_models(self) -> list[ModelInfo]:
        """Return the one model there is."""
        return [
            ModelInfo(
                id=MODEL,
                display_name="Playbook",
                context_window=1_000_000,
                max_output_tokens=64_000,
                capabilities=["tools", "local"],
            )
        ]

    async def complete(self, request: ChatRequest, **kwargs: Any) -> ChatResponse:
        """Answer the last message.

        Raises `InvalidRequestError` when no rule fits it, or when the one that does names a value that there is not.
        """
        started = perf_counter()
        await self._emit(LLM_REQUEST, message_count=len(request.messages))
        try:
            if self._playbook.delay:
                await asyncio.sleep(self._playbook.delay)
            response = self._respond(request.messages)
        except InvalidRequestError as error:
            problem = {"type": type(error).__name__, "msg": str(error)}
            await self._emit(LLM_RESPONSE, status="error", error=problem, duration_ms=_milliseconds(started))
            raise
        usage = _usage_as_data(response.usage)
        await self._emit(LLM_RESPONSE, status="ok", usage=usage, duration_ms=_milliseconds(started))
        return response

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        """Return the tool calls of a response, in order."""
        return list(response.tool_calls or ())

    def _respond(self, messages: Sequence[Message]) -> ChatResponse:
        answer = self._answer(read_steps(messages))
        first = _first_number(messages)
        calls = [
            ToolCall(id=f"call_{number}", name=call.tool, arguments=call.input)
            for number, call in enumerate(answer.calls, first)
        ]
        said = [] if answer.say is None else [TextBlock(text=answer.say)]
        return ChatResponse(
            content=[*said, *(ToolCallBlock(id=call.id, name=call.name, input=call.arguments) for call in calls)],
            tool_calls=calls or None,
            usage=_usage(messages, answer),
            finish_reason="tool_calls" if calls else "stop",
            metadata={"rule": answer.place},
        )

    def _answer(self, steps: Sequence[Step]) -> Answer:
        if not steps:
            raise _invalid("the request holds no message to answer; begin with a prompt")
        answer = self._playbook.choose(steps[-1])
        if answer is None:
            raise _invalid(_nothing_fits(steps[-1]))
        names = self._playbook.names(steps)
        try:
            return answer.fill(names)
        except UnknownPlaceholder as unknown:
            raise _invalid(
                f"playbook {answer.place}: there is no value for {{{unknown.name}}}; "
                f"there are: {', '.join(sorted(names)) or 'none'}"
            ) from None

    async def _emit(self, event: str, **data: Any) -> None:
        if self._hooks is not None:
            await self._hooks.emit(event, {"provider": self.name, "model": MODEL, **data})


def _nothing_fits(step: Step) -> str:
    what, when = {
        "user": ("the user's message", "{user: PATTERN}"),
        "tool": (f"the result of tool '{step.tool}'", f"{{tool: {step.tool}}}"),
        "assistant": ("a conversation that ends with the assistant", ""),
    }[step.role]
    shown = step.text if len(step.text) <= 80 else step.text[:79] + "…"
    remedy = f"a rule with when: {when}, or 'otherwise'" if when else "'otherwise'"
    return f"no rule of the playbook fits {what}: {shown!r}. Add {remedy} to the provider's config"


def _invalid(message: str) -> InvalidRequestError:
    return InvalidRequestError(message, provider=PlaybookProvider.name, model=MODEL)


def _first_number(messages: Sequence[Message]) -> int:
    """Return the number of the next call: above every one in sight, even after a context cut old messages away."""
    for message in reversed(messages):
        numbers = [int(found[1]) for call_id in _call_ids(message) if (found := _OWN_ID.fullmatch(call_id))]
        if numbers:
            return max(len(messages), max(numbers) + 1)
    return len(messages)


def _call_ids(message: Message) -> Iterable[str]:
    if message.role != "assistant":
        return
    yield from (str(call.get("id")) for call in getattr(message, "tool_calls", None) or ())
    if not isinstance(message.content, str):
        yield from (block.id for block in message.content if block.type == "tool_call")


def _usage(messages: Sequence[Message], answer: Answer) -> Usage:
    spoken = len(answer.say or "") + sum(len(call.tool) + _length(call.input) for call in answer.calls)
    read = _tokens(sum(_characters(message) for message in messages))
    written = _tokens(spoken)
    return Usage(input_tokens=read, output_tokens=written, total_tokens=read + written, cost_usd=Decimal("0"))


def _characters(message: Message) -> int:
    if isinstance(message.content, str):
        return len(message.content)
    return sum(_block_length(block) for block in message.content)


def _block_length(block: Any) -> int:
    if block.type == "text":
        return len(block.text)
    if block.type == "tool_call":
        return len(block.name) + _length(block.input)
    return _length(block.output) if block.type == "tool_result" else 0


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str) else len(json.dumps(value, default=str))


def _tokens(characters: int) -> int:
    return -(-characters // CHARACTERS_PER_TOKEN)


def _usage_as_data(usage: Usage | None) -> dict[str, Any]:
    return usage.model_dump(mode="json", exclude_none=True) if usage is not None else {}


def _milliseconds(started: float) -> int:
    return round((perf_counter() - started) * 1000)
