"""Answer requests: the last message in, the answer of the first fitting rule out.

A session that waits for its first request needs no models of messages: they are imported then.
"""

from __future__ import annotations

import asyncio
from functools import cache
from time import perf_counter
from typing import TYPE_CHECKING, Any

from amplifier_core.events import LLM_REQUEST, LLM_RESPONSE
from amplifier_core.llm_errors import InvalidRequestError

from .steps import Step, read_steps
from .templates import UnknownPlaceholder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from amplifier_core import ChatRequest, ChatResponse, HookRegistry, ModelInfo, ProviderInfo, ToolCall

    from .rules import FilledAnswer, Playbook

MODEL = "playbook"


class PlaybookProvider:
    """Answers requests from the rules of a bundle.

    Only the last message decides, and there is no state: a resumed or forked session gets the same answers. The result
    of an interrupted call (`"interrupted": true`) is skipped, together with the message of the call, so the same rule
    calls again; with it all calls of that message.
    """

    name = "playbook"

    def __init__(self, playbook: Playbook, hooks: HookRegistry | None = None) -> None:
        self.priority = playbook.priority
        self._playbook = playbook
        self._hooks = hooks
        self._is_heard: Callable[[str], bool] = getattr(hooks, "has_handlers", lambda event: hooks is not None)
        self._tell: Callable[[str, dict[str, Any]], bool] = getattr(hooks, "tell", lambda event, data: False)

    def get_info(self) -> ProviderInfo:
        """Describe this provider; it needs no credentials."""
        return _info()

    async def list_models(self) -> list[ModelInfo]:
        """Return the only model."""
        from amplifier_core.models import ModelInfo

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

        Raises `InvalidRequestError` if no rule fits it, or if the rule needs a missing value.
        """
        from .responses import make_response

        started = perf_counter()
        await self._emit(LLM_REQUEST, message_count=len(request.messages))
        try:
            if self._playbook.delay_ms:
                await asyncio.sleep(self._playbook.delay_ms / 1000)
            response = make_response(request.messages, *self._answer(read_steps(request.messages)))
        except InvalidRequestError as error:
            problem = {"type": type(error).__name__, "msg": str(error)}
            await self._emit(LLM_RESPONSE, status="error", error=problem, duration_ms=_milliseconds(started))
            raise
        await self._emit(LLM_RESPONSE, status="ok", usage=_write_usage(response), duration_ms=_milliseconds(started))
        return response

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        """Return the tool calls of a response, in order."""
        return list(response.tool_calls or ())

    def _answer(self, steps: Sequence[Step]) -> tuple[str, FilledAnswer]:
        """Return the place of an answer, and the answer."""
        if not steps:
            raise _invalid("the request has no message to answer; begin with a prompt")
        chosen = self._playbook.choose(steps[-1])
        if chosen is None:
            raise _invalid(_describe_unmatched(steps[-1]))
        place, answer = chosen
        if answer.is_constant:
            return place, answer.fill({})
        names = self._playbook.collect_names(steps)
        try:
            return place, answer.fill(names)
        except UnknownPlaceholder as unknown:
            known = ", ".join(sorted(names)) or "none"
            raise _invalid(f"playbook {place}: there is no value for {{{unknown.name}}}; known are {known}") from None

    async def _emit(self, event: str, **data: Any) -> None:
        if not self._is_heard(event):
            return
        about = {"provider": self.name, "model": MODEL, **data}
        if not self._tell(event, about) and self._hooks is not None:
            await self._hooks.emit(event, about)


@cache
def _info() -> ProviderInfo:
    from amplifier_core.models import ProviderInfo

    return ProviderInfo(
        id=PlaybookProvider.name,
        display_name="Playbook (rules of the bundle, no model)",
        capabilities=["tools", "local"],
        defaults={"model": MODEL},
    )


def _describe_unmatched(step: Step) -> str:
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


def _write_usage(response: ChatResponse) -> dict[str, Any]:
    """Return the usage of a response as JSON can hold it, without the detour over the model of it."""
    usage = response.usage
    if usage is None:
        return {}
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "cost_usd": str(usage.cost_usd),
    }


def _milliseconds(started: float) -> int:
    return round((perf_counter() - started) * 1000)
