"""Make the spans and measurements of a session's model calls.

An orchestrator tells of a call (`provider:request` to `provider:response`), its provider within that (`llm:request`,
`llm:response`), or a provider alone: a summary asks a model, too. Each call has one span.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core import events

from .content import as_answer
from .reading import find_error_type, read
from .records import DURATION, TOKENS, Measurement

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .pipeline import Pipeline
    from .reading import Handler
    from .records import SpanRecord

_PROVIDERS = {"gemini": "gcp.gemini"}
"""The names of the conventions, where they differ."""
_USAGE = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cache_read_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_write_tokens": "gen_ai.usage.cache_creation.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}
_MEASURED = ("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "gen_ai.response.model")


class ModelCalls:
    """The model calls of one session, one at a time; `begin` makes a span, and `finish` ends it."""

    def __init__(
        self, pipeline: Pipeline, begin: Callable[[str], SpanRecord], finish: Callable[[SpanRecord], None]
    ) -> None:
        self._pipeline = pipeline
        self._begin = begin
        self._finish = finish
        self._open: SpanRecord | None = None
        self._is_direct = False
        """Whether the provider alone tells of the open call."""

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """The handlers of the events, by name."""
        return {
            events.PROVIDER_REQUEST: self._hear_request,
            events.LLM_REQUEST: self._hear_provider,
            events.LLM_RESPONSE: self._hear_report,
            events.PROVIDER_RESPONSE: self._hear_response,
            events.PROVIDER_ERROR: self._hear_response,
            events.PROVIDER_RETRY: self._hear_retry,
        }

    def end(self, error: str | None) -> None:
        """End the open call, if any, and measure it."""
        call, self._open = self._open, None
        if call is None:
            return
        call.error = error
        self._finish(call)
        about: dict[str, Any] = {name: call.attributes[name] for name in _MEASURED if name in call.attributes}
        failed = {"error.type": error} if error else {}
        self._pipeline.put(Measurement(DURATION, (call.end - call.start) / 1e9, {**about, **failed}))
        for kind in ("input", "output"):
            count = call.attributes.get(f"gen_ai.usage.{kind}_tokens")
            if count is not None:
                self._pipeline.put(Measurement(TOKENS, count, {**about, "gen_ai.token.type": kind}))

    def _open_call(self, data: Mapping[str, Any], *, is_direct: bool) -> SpanRecord:
        self.end("cancelled")
        self._is_direct = is_direct
        call = self._open = self._begin("chat")
        call.kind = "client"
        _note_provider(call, data)
        return call

    def _hear_request(self, event: str, data: dict[str, Any]) -> None:
        self._open_call(data, is_direct=False)

    def _hear_provider(self, event: str, data: dict[str, Any]) -> None:
        is_known = self._open is not None and not self._is_direct
        call = self._open if self._open is not None and is_known else self._open_call(data, is_direct=True)
        _note_provider(call, data)
        if isinstance(data.get("max_tokens"), int):
            call.attributes["gen_ai.request.max_tokens"] = data["max_tokens"]

    def _hear_report(self, event: str, data: dict[str, Any]) -> None:
        if self._open is None:
            return
        _note_provider(self._open, data)
        _note_usage(self._open, data)
        if self._is_direct:
            self.end(find_error_type(data) if data.get("status") == "error" else None)

    def _hear_retry(self, event: str, data: dict[str, Any]) -> None:
        if self._open is not None:
            retries = self._open.attributes.get("amplifier.retries", 0)
            self._open.attributes["amplifier.retries"] = retries + 1

    def _hear_response(self, event: str, data: dict[str, Any]) -> None:
        if self._open is None:
            return
        _note_usage(self._open, data)
        if data.get("response") is not None:
            self._note_answer(self._open, data["response"])
        self.end(find_error_type(data) if event == events.PROVIDER_ERROR else None)

    def _note_answer(self, call: SpanRecord, response: Any) -> None:
        reason = read(response, "finish_reason")
        if reason:
            call.attributes["gen_ai.response.finish_reasons"] = (str(reason),)
        model = read(read(response, "metadata") or {}, "model") or call.attributes.get("gen_ai.request.model")
        if model:
            call.attributes["gen_ai.response.model"] = str(model)
        if self._pipeline.settings.record_content:
            call.attributes["gen_ai.output.messages"] = as_answer(read(response, "content"), str(reason or "stop"))


def _note_provider(call: SpanRecord, data: Mapping[str, Any]) -> None:
    """Take over the model and the provider; what the provider says comes last, and is its own name."""
    if data.get("model"):
        call.attributes["gen_ai.request.model"] = str(data["model"])
        call.name = f"chat {data['model']}"
    if data.get("provider"):
        provider = str(data["provider"]).removeprefix("provider-")
        call.attributes["gen_ai.provider.name"] = _PROVIDERS.get(provider, provider)


def _note_usage(call: SpanRecord, data: Mapping[str, Any]) -> None:
    usage = data.get("usage")
    for name, attribute in _USAGE.items() if isinstance(usage, dict) else ():
        count = usage.get(name) if isinstance(usage, dict) else None
        if isinstance(count, int) and not isinstance(count, bool):
            call.attributes[attribute] = count
