"""Give a request to a model, its retries, its error and its response one id; know the span of the present work."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from .events import LLM_REQUEST, LLM_RESPONSE, PROVIDER_ERROR, PROVIDER_RETRY, PROVIDER_THROTTLE

if TYPE_CHECKING:
    from collections.abc import MutableMapping

CORRELATED = frozenset({LLM_REQUEST, LLM_RESPONSE, PROVIDER_ERROR, PROVIDER_RETRY, PROVIDER_THROTTLE})
"""The events with a `request_id`."""

traceparent: ContextVar[str | None] = ContextVar("traceparent", default=None)
"""The span of this task's present work as a W3C `traceparent`; None without a tracer. Sessions made in it learn it."""

_request_id: ContextVar[str | None] = ContextVar("request_id", default=None)


def correlate(event: str, data: MutableMapping[str, Any]) -> None:
    """Give `data` the `request_id` of this task's present request, unless it has its own.

    `llm:request` begins a request, and `llm:response` ends it. Concurrent tasks have requests of their own.
    """
    if event == LLM_REQUEST:
        _request_id.set(data.setdefault("request_id", str(uuid4())))
        return
    present = _request_id.get()
    if present is not None:
        data.setdefault("request_id", present)
    if event == LLM_RESPONSE:
        _request_id.set(None)
