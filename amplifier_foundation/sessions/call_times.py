"""Measure the model calls and tool calls of a running session, for the metadata of its stored messages.

A stored answer has `duration` (seconds), `usage` and `model` of its call, a stored tool result `duration`:

    {"timestamp": "…", "duration": 1.204, "model": "anthropic/large", "usage": {"input_tokens": 10, …}}
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from amplifier_core import events

from .usage import model_of, read_usage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from amplifier_core.session import AmplifierSession
    from amplifier_core.transcript import Message

_AFTER_RECORDER = -999_997  # a checkpoint writes to the store: that is no part of a call
_LAST = 1_000_000


class _ModelCall(NamedTuple):
    seconds: float
    reports: list[Any]
    """The usage of each request, as providers report it; empty: only the orchestrator does, in `whole`."""
    whole: Any
    model: str


class CallTimes:
    """Measures the calls since the last `describe`."""

    def __init__(self, session: AmplifierSession) -> None:
        self._register = session.coordinator.hooks.register
        self._asked = 0.0
        self._reports: list[Any] = []
        self._model = ""
        self._answers: list[_ModelCall] = []
        self._started: dict[str, float] = {}
        self._took: dict[str, float] = {}

    def attach(self) -> None:
        """Begin to measure."""
        for event, handler, priority in (
            (events.PROVIDER_REQUEST, self._begin_request, _LAST),
            (events.LLM_RESPONSE, self._note_report, _AFTER_RECORDER),
            (events.PROVIDER_RESPONSE, self._end_request, _AFTER_RECORDER),
            (events.TOOL_PRE, self._begin_call, _LAST),
            (events.TOOL_POST, self._end_call, _AFTER_RECORDER),
            (events.TOOL_ERROR, self._end_call, _AFTER_RECORDER),
        ):
            self._register(event, handler, priority, "call-times")

    def describe(self, messages: Iterable[Message]) -> list[dict[str, Any]]:
        """Return the metadata to add to each of the messages since the last call; unknown values are left out.

        An answer without its request, as of a hook, makes it unknown which request belongs to which answer.
        """
        fresh = list(messages)
        answers = sum(message.get("role") == "assistant" for message in fresh)
        calls = iter(self._answers if answers == len(self._answers) else ())
        self._answers = self._answers if not answers else []
        return [self._describe_message(message, calls) for message in fresh]

    def _describe_message(self, message: Message, calls: Any) -> dict[str, Any]:
        if message.get("role") == "tool":
            took = self._took.pop(str(message.get("tool_call_id")), None)
            return {} if took is None else {"duration": round(took, 3)}
        call = next(calls, None) if message.get("role") == "assistant" else None
        if call is None:
            return {}
        usage = {name: value for name, value in read_usage(call.reports, call.whole).to_dict().items() if value}
        about = {"duration": round(call.seconds, 3), "model": call.model, "usage": usage}
        return {name: value for name, value in about.items() if value != ""}

    def _begin_request(self, event: str, data: dict[str, Any]) -> None:
        self._asked, self._reports, self._model = perf_counter(), [], ""

    def _note_report(self, event: str, data: dict[str, Any]) -> None:
        if data.get("usage"):
            self._reports.append(data["usage"])
            self._model = model_of(data)

    def _end_request(self, event: str, data: dict[str, Any]) -> None:
        took = perf_counter() - self._asked
        self._answers.append(_ModelCall(took, self._reports, data.get("usage"), self._model or model_of(data)))

    def _begin_call(self, event: str, data: dict[str, Any]) -> None:
        self._started[str(data.get("tool_call_id"))] = perf_counter()

    def _end_call(self, event: str, data: dict[str, Any]) -> None:
        call_id = str(data.get("tool_call_id"))
        started = self._started.pop(call_id, None)
        if started is not None:
            self._took[call_id] = perf_counter() - started
