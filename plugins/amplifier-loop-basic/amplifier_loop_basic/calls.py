"""The tool calls of one response: run side by side, and each answered by exactly one message, whatever happens."""

from __future__ import annotations

import asyncio
from itertools import count
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from amplifier_core.events import TOOL_ERROR, TOOL_POST, TOOL_PRE
from amplifier_core.models import ToolResult

from .interrupts import Interrupted
from .signals import changed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from amplifier_core import ContextManager, Tool, ToolCall

    from .interrupts import Interrupts
    from .signals import Signals

_PROCESS = token_hex(6)
_GROUPS = count(1)
"""Numbers the groups of calls that run side by side; with the process they are unlike any other's."""

NOT_BEGUN = "Error: cancelled before the tool call began."
CUT_OFF = "Error: cancelled while the tool call ran. It may have had an effect."


class _Refused(Exception):
    """A hook denied the call."""


class _UnknownTool(Exception):
    """The model called a tool that is not mounted."""

    def __init__(self, name: str, known: Mapping[str, Tool]) -> None:
        super().__init__(f"unknown tool '{name}'. Available: {', '.join(sorted(known)) or 'none'}")


class ToolCalls:
    """What a turn needs to run the tool calls of its responses."""

    def __init__(
        self, tools: Mapping[str, Tool], context: ContextManager, signals: Signals, interrupts: Interrupts
    ) -> None:
        self._tools = tools
        self._context = context
        self._signals = signals
        self._interrupts = interrupts

    async def run(self, calls: Sequence[ToolCall]) -> None:
        """Run `calls` and add their results to the context in the same order, even when the turn is torn down."""
        group = f"{_PROCESS}-{next(_GROUPS)}"
        texts: list[str | None] = [None] * len(calls)
        try:
            if len(calls) == 1:
                texts[0] = await self._answer(calls[0], group)
            else:
                async with asyncio.TaskGroup() as tasks:
                    for index, call in enumerate(calls):
                        tasks.create_task(self._answer_into(texts, index, call, group))
        finally:
            for call, text in zip(calls, texts, strict=True):
                answer = CUT_OFF if text is None else text
                await self._context.add_message(result_message(call.id, call.name, answer))
        await self._signals.settle()

    async def _answer_into(self, texts: list[str | None], index: int, call: ToolCall, group: str) -> None:
        texts[index] = await self._answer(call, group)

    async def _answer(self, call: ToolCall, group: str) -> str:
        """Return what the model shall read as the call's result."""
        if self._interrupts.is_cancelled:
            return NOT_BEGUN
        about: dict[str, Any] = {
            "tool_name": call.name,
            "tool_input": call.arguments,
            "tool_call_id": call.id,
            "parallel_group_id": group,
        }
        try:
            result = await self._interrupts.run(self._attempt, call, about)
        except Interrupted:
            return await self._failed(about, "Cancelled", CUT_OFF)
        except asyncio.CancelledError:
            if _is_being_cancelled():
                raise
            return await self._failed(about, "CancelledError", "Error: the tool cancelled itself.")
        except _Refused as refusal:
            return await self._failed(about, "Denied", f"Denied by hook: {refusal}")
        except _UnknownTool as error:
            return await self._failed(about, "UnknownTool", f"Error: {error}")
        except Exception as error:
            return await self._failed(about, type(error).__name__, f"Error: {type(error).__name__}: {error}")
        return await self._finished(about, result)

    async def _attempt(self, call: ToolCall, about: dict[str, Any]) -> ToolResult:
        """Ask the hooks, then run the tool; `about` then holds the input that the hooks made of the call's."""
        verdict = await self._signals.emit_around_tool(TOOL_PRE, {**about})
        if verdict.action == "deny":
            raise _Refused(verdict.reason or "no reason given")
        about["tool_input"] = changed(verdict, "tool_input", call.arguments)
        tool = self._tools.get(call.name)
        if tool is None:
            raise _UnknownTool(call.name, self._tools)
        token = self._interrupts.token
        if token is None:
            return _as_result(await tool.execute(about["tool_input"]))
        token.register_tool_start(call.id, call.name)
        try:
            return _as_result(await tool.execute(about["tool_input"]))
        finally:
            token.register_tool_complete(call.id)

    async def _finished(self, about: dict[str, Any], result: ToolResult) -> str:
        shown = result.safe_hook_presentation()
        seen = await self._signals.emit_around_tool(TOOL_POST, {**about, "result": shown})
        replaced = changed(seen, "result", shown)
        return _readable(result if replaced == shown else _as_result(replaced))

    async def _failed(self, about: dict[str, Any], kind: str, text: str) -> str:
        await self._signals.emit_around_tool(TOOL_ERROR, {**about, "error": {"type": kind, "msg": text}})
        return text


def result_message(call_id: str, name: str, text: str) -> dict[str, Any]:
    """Return the message that answers a tool call."""
    return {"role": "tool", "tool_call_id": call_id, "name": name, "content": text}


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _as_result(value: Any) -> ToolResult:
    """Return a tool's, or a hook's, idea of a result as one."""
    if isinstance(value, ToolResult):
        return value
    if isinstance(value, dict) and "output" in value and value.keys() <= ToolResult.model_fields.keys():
        return ToolResult.model_validate(value)
    return ToolResult(output=value)


def _readable(result: ToolResult) -> str:
    text = result.get_serialized_output()
    if text or result.success:
        return text
    return f"Error: {result.error or 'the tool failed and did not say why'}"
