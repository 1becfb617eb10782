"""Run the tool calls of one response side by side, and answer each by exactly one message, in any case."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from amplifier_core.events import TOOL_ERROR, TOOL_POST, TOOL_PRE
from amplifier_core.models import ToolResult

from .answers import refuse_unfinished
from .call_context import NOT_BEGUN, CallGroup, RunningCall, current_call, read_history
from .contents import add_text, make_content, shorten, text_of
from .interrupts import Interrupted, current_task
from .signals import read_change

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from amplifier_core import Tool, ToolCall

    from .call_context import OpenCall
    from .contents import Content
    from .turn import Turn

_forks = 0
"""Forks between the first process and this one; `os.getpid` is a system call (1 µs)."""

UNSAID = "no reason given"
HELD = "A tool call waits for approval."
_HELD = f"Error: {HELD}"
"""In place of the result of a held call; it is compared by identity."""


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


class _Refused(Exception):
    """A hook denied the call."""


class _Held(Exception):
    """The call waits for an answer to a question about it, or a call of a session below does."""


class _UnknownTool(Exception):
    """The model called a tool that is not mounted."""

    def __init__(self, name: str, known: Mapping[str, Tool]) -> None:
        super().__init__(f"unknown tool '{name}'. Available: {', '.join(sorted(known)) or 'none'}")


class ToolCalls:
    """Runs the tool calls of a turn's responses."""

    __slots__ = ("_held", "_interrupts", "_signals", "_turn", "is_holding")

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._signals = turn.signals
        self._interrupts = turn.interrupts
        self._held = turn.held
        self.is_holding = False
        """Whether a call waits for an answer: it has no result, and nothing may follow in the history."""

    async def run(self, calls: Sequence[ToolCall | OpenCall], task: asyncio.Task[Any]) -> None:
        """Run `calls`, of the last message with calls, and add their results to the context in the same order.

        The results are added even if the turn is cancelled; a held call gets none. `task` is the current one.
        """
        context, longest = self._turn.context, self._turn.max_result_chars
        history = getattr(context, "transcript", None)
        if history is None:
            history = await read_history(context)
        group = CallGroup(self._turn.session_id, history, calls[0].id)
        texts: list[Content | None] = [None] * len(calls)
        try:
            if len(calls) == 1:
                texts[0] = await self._answer(calls[0], group, task)
            else:
                await self._answer_all(calls, group, texts)
        finally:
            self.is_holding = _HELD in texts and any(text is _HELD for text in texts)
            notes = self._signals.take_postponed() if self.is_holding else ""
            for call, text in zip(calls, texts, strict=True):
                if text is _HELD:
                    continue
                if notes and text is not None:
                    text, notes = add_text(text, notes), ""
                said = group.describe_cut(call.id) if text is None else text
                if len(said) > longest or said.__class__ is not str:
                    said = shorten(said, longest)
                message = result_message(call.id, call.name, said)
                if call.id in group.denied:
                    message["metadata"] = {"denied": True}
                await context.add_message(message)
        if self._signals.postponed:
            await self._signals.settle()

    async def _answer_all(
        self, calls: Sequence[ToolCall | OpenCall], group: CallGroup, texts: list[Content | None]
    ) -> None:
        """Fill `texts` with the calls' results; a call that is cut off leaves None."""
        places = asyncio.Semaphore(self._turn.max_parallel_tools)

        async def answer(index: int, call: ToolCall | OpenCall) -> None:
            async with places:
                texts[index] = await self._answer(call, group, current_task())

        async with asyncio.TaskGroup() as tasks:
            for index, call in enumerate(calls):
                tasks.create_task(answer(index, call))

    async def _answer(self, call: ToolCall | OpenCall, group: CallGroup, task: asyncio.Task[Any]) -> Content:
        """Return the call's result for the model."""
        token = self._interrupts.token
        if token is not None and token.is_cancelled:
            return NOT_BEGUN
        running = RunningCall(call, group)
        try:
            result = await self._interrupts.run(task, self._attempt, running, has_effects=True)
        except Interrupted:
            return await self._report_error(running, "Cancelled", group.describe_cut(call.id))
        except _Held as held:
            await self._report_error(running, "Held", str(held))
            return _HELD
        except _Refused as refusal:
            group.denied.add(call.id)
            return await self._report_error(running, "Denied", f"Denied by hook: {refusal}")
        except _UnknownTool as error:
            return await self._report_error(running, "UnknownTool", f"Error: {error}")
        except Exception as error:
            return await self._report_error(running, type(error).__name__, _describe(error))
        except BaseException as error:
            # A tool that raises one of these has failed like any other, unless somebody ends this task or closes it.
            if not _goes_on(task, error):
                raise
            if isinstance(error, asyncio.CancelledError):
                return await self._report_error(running, "CancelledError", "Error: the tool cancelled itself.")
            return await self._report_error(running, type(error).__name__, _describe(error))
        try:
            if TOOL_POST in self._signals.heard:
                return await self._report_result(running, result)
            return make_content(result)
        except (TypeError, ValueError, RecursionError) as error:
            text = f"Error: {call.name} has run, and its result cannot be written as JSON: {text_of(error)}"
            return await self._report_error(running, type(error).__name__, _hide_secrets(text))

    async def _attempt(self, running: RunningCall) -> ToolResult:
        """Ask the hooks, then run the tool; `running` gets the input after changes of the hooks."""
        call = running.call
        if TOOL_PRE in self._signals.heard:
            verdict = await self._signals.emit_around_tool(TOOL_PRE, running.describe())
            if verdict.action == "deny" and read_change(verdict, "held", False):
                raise _Held(verdict.reason or HELD)
            if verdict.action == "deny":
                raise _Refused(verdict.reason or UNSAID)
            running.input = read_change(verdict, "tool_input", call.arguments)
        tool = self._turn.tools.get(call.name)
        if tool is None:
            raise _UnknownTool(call.name, self._turn.tools)
        token = self._interrupts.token
        if self._held is not None:
            await self._held.begin(call.id)
        previous = current_call.set(running)
        if token is not None:
            token.register_tool_start(call.id, call.name)
        forks = _forks
        running.group.begun.add(call.id)
        try:
            result = await tool.execute(running.input)
            if self._held is not None and self._held.is_held(call.id):
                raise _Held(HELD)
            return _as_result(result)
        finally:
            if _forks != forks:  # the tool forked, and this is the fork: the turn is its parent's
                os._exit(_exit_code(sys.exc_info()[1]))
            current_call.reset(previous)
            if token is not None:
                token.register_tool_complete(call.id)

    async def _report_result(self, running: RunningCall, result: ToolResult) -> Content:
        """Tell the hooks, and return the result after their changes; they see no bytes of images."""
        shown = result.safe_hook_presentation()
        seen = await self._signals.emit_around_tool(TOOL_POST, running.describe(result=shown))
        replaced = read_change(seen, "result", shown)
        if replaced == shown:
            return make_content(result)
        if isinstance(replaced, dict) and "content" in shown and replaced.get("content") == shown["content"]:
            replaced = {**replaced, "content": result.content}
        return make_content(_as_result(replaced))

    async def _report_error(self, running: RunningCall, kind: str, text: str) -> str:
        """Tell the hooks, and return the text of the error after their changes."""
        error = {"type": kind, "msg": text}
        seen = await self._signals.emit_around_tool(TOOL_ERROR, running.describe(error=error))
        changed = read_change(seen, "error", error)
        return str(changed.get("msg", text)) if isinstance(changed, dict) else text


def _exit_code(error: BaseException | None) -> int:
    """Return the exit code that a fork asked for, else EX_SOFTWARE of sysexits.h."""
    if not isinstance(error, SystemExit):
        return 70
    return error.code if isinstance(error.code, int) else int(error.code is not None)


def _goes_on(task: asyncio.Task[Any], error: BaseException) -> bool:
    """Return whether `task` runs and is not cancelled, and no signal ends the program by the `error`.

    A closed coroutine runs in another task, or in none.
    """
    if not getattr(error, "cuts_call", False):
        with suppress(ImportError):  # another kernel has no such function
            from amplifier_core.cancellation import ends_program

            if ends_program(error):
                return False
    try:
        return asyncio.current_task() is task and not task.cancelling()
    except RuntimeError:
        return False


def _describe(error: BaseException) -> str:
    """Return an error for the model, without secrets; of a group, also the errors in it."""
    return _hide_secrets(f"Error: {type(error).__name__}{': ' if (said := text_of(error)) else ''}{said}")


def _hide_secrets(text: str) -> str:
    with suppress(ImportError):  # another kernel has no such function
        from amplifier_core.utils.secrets import redact_text

        return redact_text(text)
    return text


def result_message(call_id: str, name: str, content: Content) -> dict[str, Any]:
    """Return the message with the result of a tool call."""
    return {"role": "tool", "tool_call_id": call_id, "name": name, "content": content}


def _as_result(value: Any) -> ToolResult:
    """Return a tool's, or a hook's, value as a result. Raises `TypeError` for a coroutine, and for a generator."""
    if isinstance(value, ToolResult):
        return value
    refuse_unfinished(value)
    if isinstance(value, dict) and "output" in value and value.keys() <= ToolResult.model_fields.keys():
        return ToolResult.model_validate(value)
    return ToolResult(output=value)
