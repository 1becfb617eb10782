"""Make the requests to a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core import message_models
from amplifier_core.message_models import ChatRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from amplifier_core import ToolSpec


make_request: Callable[[Sequence[dict[str, Any]], list[ToolSpec] | None], ChatRequest] = getattr(
    message_models,
    "make_request",
    lambda messages, tools: ChatRequest.model_validate({"messages": messages, "tools": tools}),
)
"""Return a request with these messages and tools; another kernel has no quick way to make it."""
