"""The conversation as rules see it: what the user said, and what each tool answered, in order."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from amplifier_core import Message


@dataclass(frozen=True, slots=True)
class Step:
    """One message; `fields` is the JSON object that a tool answered, if it answered one."""

    role: Literal["user", "assistant", "tool"]
    text: str
    tool: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def interrupted(self) -> bool:
        """Whether this stands for a call whose end nobody saw."""
        return self.fields.get("interrupted") is True


def read_steps(messages: Sequence[Message]) -> list[Step]:
    """Return the steps of the conversation, calls that were interrupted left out.

    System messages, and what hooks put into the conversation, are no steps.
    """
    tools: dict[str, str] = {}
    steps: list[Step] = []
    for message in messages:
        if message.role == "assistant":
            tools.update(_calls(message))
            steps.append(Step("assistant", text_of(message)))
        elif _is_users(message):
            steps.append(Step("user", text_of(message)))
        else:
            steps.extend(_results(message, tools))
    return _without_interruptions(steps)


def seen(steps: Sequence[Step]) -> Iterator[tuple[Step, bool]]:
    """Yield each step and whether the provider was asked about it: of several results in a row, only the last."""
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        last_result = step.role == "tool" and (following is None or following.role != "tool")
        yield step, step.role == "user" or last_result


def text_of(message: Message) -> str:
    """Return the text of a message, its text blocks joined by newlines."""
    if isinstance(message.content, str):
        return message.content
    return "\n".join(block.text for block in message.content if block.type == "text")


def _is_users(message: Message) -> bool:
    if message.role != "user" or (message.metadata or {}).get("source") == "hook":
        return False
    if not isinstance(message.content, str) and any(block.type == "tool_result" for block in message.content):
        return False
    return not text_of(message).lstrip().startswith("<system-reminder")


def _calls(message: Message) -> dict[str, str]:
    """Return the tool of each call by its id: published loops record calls as blocks, as `tool_calls`, or as both."""
    blocks = [] if isinstance(message.content, str) else message.content
    listed = getattr(message, "tool_calls", None) or ()
    found = {block.id: block.name for block in blocks if block.type == "tool_call"}
    found.update((call["id"], call.get("tool") or call.get("name") or "") for call in listed if "id" in call)
    return found


def _results(message: Message, tools: Mapping[str, str]) -> Iterator[Step]:
    if message.role in ("tool", "function"):
        tool = message.name or tools.get(message.tool_call_id or "", "")
        if isinstance(message.content, str) or all(block.type != "tool_result" for block in message.content):
            yield _result(tool, text_of(message))
            return
    for block in () if isinstance(message.content, str) else message.content:
        if block.type == "tool_result":
            yield _result(message.name or tools.get(block.tool_call_id, ""), block.output)


def _result(tool: str, output: Any) -> Step:
    text = output if isinstance(output, str) else json.dumps(output, default=str)
    return Step("tool", text, tool, _json_object(text))


def _json_object(text: str) -> dict[str, Any]:
    if not text.lstrip().startswith("{"):
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _without_interruptions(steps: list[Step]) -> list[Step]:
    """Drop results of which one was interrupted, and the message that called for them: their rule decides again."""
    kept: list[Step] = []
    for are_results, run in groupby(steps, key=lambda step: step.role == "tool"):
        group = list(run)
        if not (are_results and any(step.interrupted for step in group)):
            kept.extend(group)
        elif kept and kept[-1].role == "assistant":
            kept.pop()
    return kept
