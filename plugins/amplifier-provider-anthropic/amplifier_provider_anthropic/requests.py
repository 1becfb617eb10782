"""Make the service's request of a `ChatRequest`.

Up to three places are marked for the prompt cache: the end of the instruction (tools come before it), and the last two
messages of a user, where this request and the one before it end. A fork begins with the same messages, so it finds what
its source has left there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amplifier_core.message_models import Degradation

from .content import read_messages
from .models import DEFAULT_OUTPUT, find_model
from .schemas import fit_schema

if TYPE_CHECKING:
    from amplifier_core import ChatRequest

    from .config import Settings
    from .content import Conversation

EFFORTS = ("low", "medium", "high", "xhigh", "max")
_ONLY_JSON = "Answer with one JSON value, and with nothing before or after it."
_MARKED_MESSAGES = 2


@dataclass(frozen=True, slots=True)
class Call:
    """A request in the form of the service, and what it could not keep of the original."""

    model: str
    body: dict[str, Any]
    degradation: Degradation | None


def make_call(request: ChatRequest, settings: Settings, *, with_thinking: bool = True) -> Call:
    """Return the call for a request; without thinking, blocks of earlier thinking are left out."""
    model = settings.resolve_model(request.model)
    conversation = read_messages(request.messages, with_thinking=with_thinking)
    lost: list[tuple[str, str, str]] = []
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": request.max_output_tokens or choose_output(settings, model),
        "messages": conversation.messages,
    }
    if request.tools:
        body["tools"] = [
            {"name": tool.name, "description": tool.description or "", "input_schema": tool.parameters}
            for tool in request.tools
        ]
        if (choice := _read_tool_choice(request.tool_choice)) is not None:
            body["tool_choice"] = choice
    if request.stop:
        body["stop_sequences"] = request.stop
    if user := (request.metadata or {}).get("user_id"):
        body["metadata"] = {"user_id": str(user)}
    if (thinking := _choose_thinking(settings, model)) is not None:
        body["thinking"] = thinking
    if output := _choose_output_config(request, settings, conversation, lost):
        body["output_config"] = output
    if conversation.system:
        body["system"] = conversation.system
    if settings.prompt_cache != "none":
        _mark(body, conversation, settings.prompt_cache)
    if request.temperature is not None or request.top_p is not None:
        lost.append(("temperature, top_p", "none", "the service takes neither since its version 2026-10-21"))
    if not with_thinking:
        lost.append(("earlier thinking", "none", "the service refused it: the model or the history has changed"))
    return Call(model, body, _join(lost))


def choose_output(settings: Settings, model: str) -> int:
    """Return the tokens of the longest answer."""
    known = find_model(model)
    return settings.max_output_tokens or min(known.output if known else DEFAULT_OUTPUT, DEFAULT_OUTPUT)


def _choose_thinking(settings: Settings, model: str) -> dict[str, Any] | None:
    """Return how to think, with a summary for the reader; None leaves it to the service."""
    if isinstance(settings.thinking, int):
        return {"type": "enabled", "budget_tokens": settings.thinking}
    known = find_model(model)
    chosen = settings.thinking or ("adaptive" if known is not None and known.is_adaptive else None)
    if chosen == "adaptive":
        return {"type": "adaptive", "display": "summarized"}
    return {"type": chosen} if chosen else None


def _choose_output_config(
    request: ChatRequest, settings: Settings, conversation: Conversation, lost: list[tuple[str, str, str]]
) -> dict[str, Any]:
    config: dict[str, Any] = {}
    effort = request.reasoning_effort or settings.effort
    if effort in EFFORTS:
        config["effort"] = effort
    elif effort is not None:
        config["effort"] = "low"
        lost.append((f"effort {effort}", "effort low", f"the efforts are {', '.join(EFFORTS)}"))
    wanted = request.response_format
    if wanted is not None and wanted.type == "json_schema":
        schema = wanted.json_schema
        try:
            config["format"] = {"type": "json_schema", "schema": fit_schema(schema.get("schema", schema))}
        except ValueError as error:
            lost.append(("response_format json_schema", "none", str(error)))
    elif wanted is not None and wanted.type == "json":
        conversation.system.append({"type": "text", "text": _ONLY_JSON})
        lost.append(("response_format json", "an instruction", "the service knows JSON by a schema only"))
    return config


def _read_tool_choice(choice: str | dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a choice as the service spells it: a word, a tool's name, or a mapping of either service's form."""
    if isinstance(choice, dict):
        name = choice.get("name") or (choice.get("function") or {}).get("name")
        return {"type": "tool", "name": name} if name else {"type": str(choice.get("type", "auto"))}
    if choice is None or choice in ("auto", "none", "any"):
        return None if choice is None else {"type": choice}
    return {"type": "any"} if choice == "required" else {"type": "tool", "name": choice}


def _mark(body: dict[str, Any], conversation: Conversation, lifetime: str) -> None:
    """Mark the ends of what comes again in the next request."""
    mark: dict[str, Any] = {"type": "ephemeral"} if lifetime == "5m" else {"type": "ephemeral", "ttl": lifetime}
    if conversation.system:
        conversation.system[-1]["cache_control"] = mark
    elif body.get("tools"):
        body["tools"][-1]["cache_control"] = mark
    for number, blocks in list(conversation.settled.items())[-_MARKED_MESSAGES:]:
        conversation.messages[number]["content"][blocks - 1]["cache_control"] = mark


def _join(lost: list[tuple[str, str, str]]) -> Degradation | None:
    if not lost:
        return None
    requested, actual, reason = ("; ".join(parts) for parts in zip(*lost, strict=True))
    return Degradation(requested=requested, actual=actual, reason=reason)
