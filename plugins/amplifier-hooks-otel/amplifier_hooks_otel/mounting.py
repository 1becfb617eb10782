"""Attach the hook to one session."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from .config import NAME, expand_headers
from .pipeline import pipeline_of
from .queues import CAPABILITY, QueueSpans
from .redaction import CAN_REDACT, hide_secret
from .session_spans import SessionSpans

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_core import ModuleCoordinator

    from .config import Settings


def attach(coordinator: ModuleCoordinator, settings: Settings) -> Callable[[], None] | None:
    """Listen to a session, and watch the queues that it stands above; return how to end that.

    Raises `ValueError` for a header that names a variable that is not set.
    """
    if not (settings.exports_traces or settings.exports_metrics):
        return None
    if settings.record_content and not CAN_REDACT:
        raise ValueError(f"{NAME}: record_content: this kernel cannot redact texts, so none is recorded")
    settings = replace(settings, headers=expand_headers(settings.headers))
    _hide_headers(settings)
    pipeline = pipeline_of(settings)
    spans = SessionSpans(coordinator, pipeline)
    spans.listen()
    queues = coordinator.get_capability(CAPABILITY)
    end = QueueSpans(queues, pipeline, coordinator.session_id).begin() if queues is not None else None

    def close() -> None:
        spans.close()
        if end is not None:
            end()

    return close


def _hide_headers(settings: Settings) -> None:
    """Hide the values of headers in every text: most of them are keys."""
    named = os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", "").split(",")
    for value in [value for _, value in settings.headers] + [each.partition("=")[2] for each in named]:
        if len(value.strip()) >= 8:
            hide_secret(value)
