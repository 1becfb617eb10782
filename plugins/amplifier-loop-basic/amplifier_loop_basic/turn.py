"""Run one turn: from a prompt to a final text."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
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
from amplifier_core.message_models import ChatRequest, ChatResponse, Usage

from .answers import drop_unstorable, refuse
from .call_context import read_history
from .calls import HELD, UNSAID, ToolCalls, result_message
from .contents import adapt_messages, as_dicts, text_of
from .interrupts import Interrupted, current_task
from .requests import make_request
from .shortening import ask_shorter, is_too_long
from .signals import read_change, read_prompt
from .tail import awaits_model, find_unanswered, is_unfinished, unfinished_reason

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from amplifier_core import ContextManager, Provider, Tool, ToolCall, ToolSpec

    from .call_context import HeldCalls, OpenCall
    from .interrupts import Interrupts
    from .signals import Signals
    from .streams import Stream, StreamedBlock

CANCELLED = "The turn was cancelled."
LOST = (
    "Error: the session ended while this tool call ran, and it was not run again. "
    "It may have had an effect: check before you repeat it."
)
GO_ON = "Your last message was cut. Go on where it ends."
PREVIEW_LENGTH = 200
TURN_STOP = "turn:stop"
"""The event of an answer that would end the turn; a handler that denies it gives the turn more to do."""
RESPONSE_FORMAT = "turn.response_format"
"""The capability with the wanted `response_format` of the session's requests, as a mapping."""


@dataclass(slots=True)
class Turn:
    """The state of one turn; `run` is for one call.

    `status` is `success` until a limit, a denial, a cancellation, an error or an unfinished answer ends the turn.
    A loop built on this one adds messages at each step in `take_in`, and goes on after an answer while `has_more`.
    """

    context: ContextManager
    provider_name: str
    provider: Provider
    tools: dict[str, Tool]
    specs: list[ToolSpec] | None
    signals: Signals
    interrupts: Interrupts
    stream: Stream
    max_iterations: int
    max_parallel_tools: int = 16
    max_result_chars: int = 200_000
    session_id: str = ""
    run_again: Collection[str] = ()
    """Ids of open calls to run again instead of answering them."""
    held: HeldCalls | None = None
    response_format: Mapping[str, Any] | None = None
    """The wanted format of answers; None after a service has refused it."""
    iterations: int = 0
    status: str = "success"
    text: str = ""
    finish_reason: str = ""
    """Why the answer is not whole, see `unfinished_reason`; of a denial, the `finish_reason` in its data."""
    limit: str = ""
    """The limit that stopped the turn before an answer: `max_iterations`, or `denied` by a hook."""

    @property
    def calls(self) -> ToolCalls:
        """The runner of this turn's tool calls."""
        return ToolCalls(self)

    async def run(self, prompt: str) -> str:
        """Submit `prompt`, alternate between model and tools, and return the final text."""
        heard = self.signals.heard
        if PROMPT_SUBMIT in heard:
            submitted = await self.signals.emit(PROMPT_SUBMIT, {"prompt": prompt})
            if submitted.action == "deny":
                self.limit = "denied"
                self._stop("incomplete", f"Denied by hook: {submitted.reason or UNSAID}")
                await self._tell_end()
                return self.text
            prompt = read_prompt(submitted, prompt)
        if EXECUTION_START in heard:
            await self.signals.emit(EXECUTION_START, {"prompt": prompt})
        try:
            await self._begin(prompt)
            await self._loop()
        except BaseException as error:
            self.status = "error" if isinstance(error, Exception) else "cancelled"
            raise
        finally:
            await self.announce_end()
        if PROMPT_COMPLETE in heard:
            about = {"response_preview": self.text[:PREVIEW_LENGTH], "length": len(self.text)}
            await self.signals.emit(PROMPT_COMPLETE, about)
        return self.text

    async def announce_end(self) -> None:
        """Emit the end of the turn and its status, however it ended."""
        await self._tell_end()
        if EXECUTION_END in self.signals.heard:
            await self.signals.emit(EXECUTION_END, {"response": self.text, "status": self.status})

    async def _tell_end(self) -> None:
        if ORCHESTRATOR_COMPLETE not in self.signals.heard:
            return
        end = {"orchestrator": self.signals.module, "turn_count": self.iterations, "status": self.status}
        if self.finish_reason:
            end["finish_reason"] = self.finish_reason
        elif self.status == "incomplete":
            end["reason"] = self.text
            if self.limit:
                end["limit"] = self.limit
        await self.signals.emit(ORCHESTRATOR_COMPLETE, end)

    async def take_in(self) -> None:
        """Add the messages for the next step; every tool call has its result here, and a request follows."""

    def has_more(self) -> bool:
        """Return whether the turn goes on after an answer, because there is more to take in."""
        return False

    async def _begin(self, prompt: str) -> None:
        """Answer calls that a crash left open, or run them again; add the prompt. An empty one continues the turn."""
        history = getattr(self.context, "transcript", None)
        if history is None:
            history = await read_history(self.context)
        continues = not prompt and awaits_model(history)
        unanswered = find_unanswered(history)
        if unanswered:
            await self._settle_calls(unanswered)
            if self.status != "success":
                return
        if not continues:
            await self.context.add_message({"role": "user", "content": prompt})
        elif is_unfinished(history):  # models refuse a request that ends with their own message
            self.signals.inject(GO_ON)

    async def _settle_calls(self, unanswered: Sequence[OpenCall]) -> None:
        """Answer the open calls of the history, or run them again."""
        for call in unanswered:
            if call.id not in self.run_again:
                await self.context.add_message(result_message(call.id, call.name, LOST))
        again = [call for call in unanswered if call.id in self.run_again]
        if again:
            calls = self.calls
            await calls.run(again, current_task())
            if calls.is_holding:
                self._stop("incomplete", HELD)

    async def _loop(self) -> None:
        calls, task, heard, token = self.calls, current_task(), self.signals.heard, self.interrupts.token
        takes_in = type(self).take_in is not Turn.take_in
        while self.status == "success":
            if (token is not None and token.is_cancelled) or self.iterations == self.max_iterations:
                self._stop_early()
                return
            self.iterations += 1
            if takes_in:
                await self.take_in()
            response = await self._ask_model(task)
            if response is None:
                return
            wanted = self.provider.parse_tool_calls(response)
            blocks = as_dicts(response.content)
            if CONTENT_BLOCK_START in heard or CONTENT_BLOCK_END in heard:
                await self._show(response, blocks)
            if not wanted:
                if await self._is_answer(response, blocks):
                    return
                continue
            await self.context.add_message(_make_message(response, blocks, wanted))
            await calls.run(wanted, task)
            if calls.is_holding:
                self._stop("incomplete", HELD)

    async def _is_answer(self, response: ChatResponse, blocks: list[dict[str, Any]]) -> bool:
        """Add a response without calls to the history, and return whether it ends the turn."""
        text = "\n\n".join([block["text"] for block in blocks if block.get("type") == "text"])
        reason = unfinished_reason(response, text)
        if blocks or not reason:  # a refusal may have no word: the question stays open
            await self.context.add_message(_make_message(response, blocks, unfinished=reason))
        if not reason and TURN_STOP in self.signals.heard and await self._is_sent_back(text):
            return False
        if self.has_more():
            return False
        self.text, self.finish_reason = text, reason
        if reason:
            self._stop("incomplete", text if text.strip() else f"The model gave no answer ({reason}).")
        return True

    async def _is_sent_back(self, text: str) -> bool:
        """Return whether a hook refuses the end of the turn: its reason is the next message of the user then."""
        if self.interrupts.is_cancelled:
            return False
        verdict = await self.signals.emit(TURN_STOP, {"response": text, "turn_count": self.iterations})
        if verdict.action != "deny":
            return False
        more = {"role": "user", "content": verdict.reason or GO_ON, "metadata": {"source": "hook"}}
        await self.context.add_message(more)
        return True

    def _stop_early(self) -> None:
        """Stop before a request that a cancellation or the limit forbids."""
        if self.interrupts.is_cancelled:
            self._stop("cancelled", CANCELLED)
            return
        self.limit = "max_iterations"
        said = f"Stopped after {self.iterations} model calls, before an answer ({self.limit}). "
        self._stop("incomplete", f"{said}An empty prompt continues from here.")

    def _stop(self, status: str, text: str) -> None:
        self.status, self.text = status, text

    async def _ask_model(self, task: asyncio.Task[Any]) -> ChatResponse | None:
        """Return the model's response; None if the turn is over without one."""
        heard = self.signals.heard
        if PROVIDER_REQUEST in heard:
            verdict = await self.signals.emit(PROVIDER_REQUEST, self._place())
            if verdict.action == "deny":
                self.finish_reason = str(read_change(verdict, "finish_reason", ""))
                said = f"{verdict.reason}" if self.finish_reason else f"Denied by hook: {verdict.reason or UNSAID}"
                self.limit = "denied"
                self._stop("incomplete", said)
                return None
        messages = await self.context.get_messages_for_request(provider=self.provider)
        if messages is None:
            raise refuse("the context manager", "a list of messages", None, self.context.get_messages_for_request)
        given = len(messages)
        messages = self.signals.with_injections(adapt_messages(messages, self.provider))
        complete: Callable[[ChatRequest], Awaitable[ChatResponse]] = self.provider.complete
        if self.response_format is None:
            request = make_request(messages, self.specs)
        else:
            parts = {"messages": messages, "tools": self.specs, "response_format": self.response_format}
            request, complete = ChatRequest.model_validate(parts), self._complete_in_format
        self.stream.begin(self.signals)
        try:
            try:
                response = await self.interrupts.run(task, complete, request, has_effects=False)
            except Exception as error:
                if not is_too_long(error):
                    raise
                again = partial(ask_shorter, self.context, self.provider, complete, given, error)
                response = await self.interrupts.run(task, again, request, has_effects=False)
        except Interrupted:
            await self._keep_text()
            return None
        except Exception as error:
            with suppress(ImportError):  # another kernel has no such function
                from amplifier_core.utils.secrets import redact_error

                redact_error(error)
            problem = {
                "error": {"type": type(error).__name__, "msg": text_of(error)},
                "retryable": getattr(error, "retryable", False),
                "status_code": getattr(error, "status_code", None),
            }
            await self.signals.emit(PROVIDER_ERROR, {**self._place(), **problem})
            raise
        finally:
            self.stream.end()
        if not hasattr(response, "content"):
            raise refuse(f"provider '{self.provider_name}'", "a ChatResponse", response, self.provider.complete)
        drop_unstorable(response, self.provider_name)
        if PROVIDER_RESPONSE in heard:
            about = {**self._place(), "response": response, "usage": _dump_usage(response)}
            await self.signals.emit(PROVIDER_RESPONSE, about)
        return response

    def _place(self) -> dict[str, Any]:
        """Return the beginning of the data of events about a request."""
        return {"provider": self.provider_name, "iteration": self.iterations}

    async def _complete_in_format(self, request: ChatRequest) -> ChatResponse:
        """Ask for an answer in the wanted format; once that is refused, ask without it for the rest of the turn."""
        try:
            return await self.provider.complete(request)
        except Exception as error:
            if not _is_refusal(error):
                raise
        self.response_format = None
        return await self.provider.complete(request.model_copy(update={"response_format": None}))

    async def _keep_text(self) -> None:
        """End a turn that was stopped while the model talked: its text so far stays in the history."""
        blocks = self.stream.read_text()
        self._stop("cancelled", "\n\n".join(block["text"] for block in blocks) or CANCELLED)
        if blocks:
            response = ChatResponse.model_validate({"content": blocks})
            await self._show(response, blocks)
            await self.context.add_message(_make_message(response, blocks, unfinished="interrupted"))

    async def _show(self, response: ChatResponse, blocks: list[dict[str, Any]]) -> None:
        """Emit the start and end of every block, unless its stream has shown them.

        A provider may have other blocks for display than for the history.
        """
        # Asking a pydantic model for a missing field costs as much as an event: only a subclass has this one.
        own = None if type(response) is ChatResponse else getattr(response, "content_blocks", None)
        shown = as_dicts(own) if own else blocks
        total = len(shown)
        streamed = [block for block in self.stream.blocks if block.is_shown]
        for index, block in enumerate(shown):
            earlier = _take_first(streamed, str(block.get("type")))
            place = {"block_index": index if earlier is None else earlier.index, "total_blocks": total}
            if earlier is None:
                await self.signals.emit(CONTENT_BLOCK_START, {"block_type": block.get("type"), **place})
            if earlier is None or not earlier.is_ended:
                end = {**place, "block": block}
                if index == total - 1 and response.usage is not None:
                    end["usage"] = _dump_usage(response)
                await self.signals.emit(CONTENT_BLOCK_END, end)


def _is_refusal(error: Exception) -> bool:
    """Return whether a service refused a request as wrong; the error may be one of another make."""
    from amplifier_core.llm_errors import InvalidRequestError, LLMError

    if isinstance(error, LLMError):
        return isinstance(error, InvalidRequestError)
    return getattr(error, "status_code", None) in (400, 422)


def _take_first(streamed: list[StreamedBlock], kind: str) -> StreamedBlock | None:
    """Take the first block of this kind, and those before it, off the list, and return it."""
    for position, block in enumerate(streamed):
        if block.kind == kind:
            del streamed[: position + 1]
            return block
    return None


def _make_message(
    response: ChatResponse, blocks: list[dict[str, Any]], calls: Sequence[ToolCall] = (), unfinished: str = ""
) -> dict[str, Any]:
    """Return the message of a response for the history; `unfinished` is the reason of an answer that is not whole."""
    message: dict[str, Any] = {"role": "assistant", "content": blocks or ""}
    if calls:
        message["tool_calls"] = [{"id": call.id, "tool": call.name, "arguments": call.arguments} for call in calls]
    if response.metadata or unfinished:
        message["metadata"] = dict(response.metadata or {})
    if unfinished:
        message["metadata"]["finish_reason"] = unfinished
    return message


def _dump_usage(response: ChatResponse) -> dict[str, Any] | None:
    usage = response.usage
    if type(usage) is Usage and not usage.model_extra:  # as `model_dump` does, in a third of its time
        dumped = {name: value for name, value in usage.__dict__.items() if value is not None}
        return dumped if usage.cost_usd is None else {**dumped, "cost_usd": str(usage.cost_usd)}
    return None if usage is None else usage.model_dump(exclude_none=True)
