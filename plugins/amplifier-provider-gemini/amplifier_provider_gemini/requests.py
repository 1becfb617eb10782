"""Make the service's request of a `ChatRequest`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amplifier_core.message_models import Degradation

from .content import Conversation
from .models import thinks

if TYPE_CHECKING:
    from amplifier_core import ChatRequest

    from .config import Settings

Lost = list[tuple[str, str, str]]
"""What was requested, what is sent instead, and why."""

_LEVELS = ("minimal", "low", "medium", "high", "xhigh")
_BUDGETS = {"none": 0, "minimal": 512, "low": 2_048, "medium": 8_192, "high": 24_576}
"""Tokens for the thinking of models that know no levels."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request in the form of the service, and what it could not keep of the original."""

    model: str
    contents: list[dict[str, Any]]
    config: dict[str, Any]
    degradation: Degradation | None


def make_call(request: ChatRequest, settings: Settings, *, signed: bool = True) -> Call:
    """Return the call for a request; without `signed`, the signatures of earlier thinking are left out."""
    model = settings.resolve_model(request.model)
    lost: Lost = []
    needs_signature = thinks(model) and not model.startswith("gemini-2")
    conversation = Conversation(request.messages, signed=signed, needs_signature=needs_signature)
    config: dict[str, Any] = {"automatic_function_calling": {"disable": True}}
    chosen = {
        "system_instruction": "\n\n".join(conversation.system) or None,
        "max_output_tokens": request.max_output_tokens or settings.max_output_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "stop_sequences": request.stop or None,
        "thinking_config": _choose_thinking(request.reasoning_effort or settings.effort, settings, model, lost) or None,
    }
    config.update({name: value for name, value in chosen.items() if value is not None})
    if request.tools:
        declared = [
            {"name": tool.name, "description": tool.description or "", "parameters_json_schema": tool.parameters}
            for tool in request.tools
        ]
        config["tools"] = [{"function_declarations": declared}]
        if request.tool_choice is not None:
            config["tool_config"] = {"function_calling_config": _read_tool_choice(request.tool_choice)}
    wanted = request.response_format
    if wanted is not None and wanted.type != "text" and request.tools and model.startswith("gemini-2"):
        lost.append((f"response_format {wanted.type}", "none", "the model takes tools or a format, and not both"))
        wanted = None
    if wanted is not None and wanted.type != "text":
        config["response_mime_type"] = "application/json"
    if wanted is not None and wanted.type == "json_schema":
        config["response_json_schema"] = wanted.json_schema.get("schema", wanted.json_schema)
    if not signed:
        lost.append(("earlier thinking", "none", "the service refused its signatures"))
    parts = ["; ".join(each) for each in zip(*lost, strict=True)]
    degradation = Degradation(requested=parts[0], actual=parts[1], reason=parts[2]) if parts else None
    return Call(model, conversation.contents, config, degradation)


def make_counted(call: Call) -> list[dict[str, Any]]:
    """Return all that is to be counted as one conversation: the service counts no instructions and no tools."""
    declared = json.dumps(call.config["tools"]) if "tools" in call.config else ""
    extra = [text for text in (call.config.get("system_instruction"), declared) if text]
    return [*({"role": "user", "parts": [{"text": text}]} for text in extra), *call.contents]


def _choose_thinking(effort: str | None, settings: Settings, model: str, lost: Lost) -> dict[str, Any]:
    shows = settings.thoughts if settings.thoughts is not None else thinks(model)
    config: dict[str, Any] = {"include_thoughts": True} if shows else {}
    if effort is None:
        return config
    if model.startswith("gemini-2.5"):
        if effort not in _BUDGETS:
            lost.append((f"effort {effort}", "effort high", f"the efforts are {', '.join(_BUDGETS)}"))
        return {**config, "thinking_budget": _BUDGETS.get(effort, _BUDGETS["high"])}
    level = effort if effort in _LEVELS else "low" if effort == "none" else "high"
    if level != effort:
        lost.append((f"effort {effort}", f"effort {level}", f"the efforts are {', '.join(_LEVELS)}"))
    return {**config, "thinking_level": level.upper()}


def _read_tool_choice(choice: str | dict[str, Any]) -> dict[str, Any]:
    """Return a choice as the service spells it: a word, a tool's name, or a mapping of another service's form."""
    if isinstance(choice, dict):
        choice = choice.get("name") or (choice.get("function") or {}).get("name") or str(choice.get("type", "auto"))
    if choice in ("auto", "none", "any"):
        return {"mode": choice.upper()}
    return {"mode": "ANY"} if choice == "required" else {"mode": "ANY", "allowed_function_names": [choice]}
