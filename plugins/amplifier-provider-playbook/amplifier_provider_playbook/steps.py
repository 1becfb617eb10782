"""Read a conversation for rules: the messages of the user, and the results of tools, in their order."""

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
    """One message; `fields` are those of a result that is a JSON object."""

    role: Literal["user", "assistant", "tool"]
    text: str
    tool: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_interrupted(self) -> bool:
        """Whether the result records a call without a known end."""
        return self.fields.get("interrupted") is True


def read_steps(messages: Sequence[Message]) -> list[Step]:
    """Return the steps of the conversation, without interrupted calls.

    System messages, and additions of hooks, are no steps.
    """
    tools: dict[str, str] = {}
    steps: list[Step] = []
    for message in messages:
        if message.role == "assistant":
            tools.update(_map_calls(message))
            steps.append(Step("assistant", text_of(message)))
        elif _is_from_user(message):
            steps.append(Step("user", text_of(message)))
        else:
            steps.extend(_read_results(message, tools))
    return _drop_interrupted(steps)


def mark_asked(steps: Sequence[Step]) -> Iterator[tuple[Step, bool]]:
    """Yield each step, and whether the provider answered it: of several results in a row, only the last."""
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        last_result = step.role == "tool" and (following is None or following.role != "tool")
        yield step, step.role == "user" or last_result


def text_of(message: Message) -> str:
    """Return the text of a message, its text blocks joined by newlines."""
    if isinstance(message.content, str):
        return message.content
    return "\n".join(block.text for block in message.content if block.type == "text")


def _is_from_user(message: Message) -> bool:
    if message.role != "user" or (message.metadata or {}).get("source") == "hook":
        return False
    if not isinstance(message.content, str) and any(block.type == "tool_result" for block in message.content):
        return False
    return not text_of(message).lstrip().startswith("<system-reminder")


def _map_calls(message: Message) -> dict[str, str]:
    """Return the tool of each call by its id; published loops write calls as blocks, as `tool_calls`, or as both."""
    blocks = [] if isinstance(message.content, str) else message.content
    listed = getattr(message, "tool_calls", None) or ()
    found = {block.id: block.name for block in blocks if block.type == "tool_call"}
    found.update((call["id"], call.get("tool") or call.get("name") or "") for call in listed if "id" in call)
    return found


def _read_results(message: Message, tools: Mapping[str, str]) -> Iterator[Step]:
    if message.role in ("tool", "function"):
        tool = message.name or tools.get(message.tool_call_id or "", "")
        if isinstance(message.content, str) or all(block.type != "tool_result" for block in message.content):
            yield _read_result(tool, text_of(message))
            return
    for block in () if isinstance(message.content, str) else message.content:
        if block.type == "tool_result":
            yield _read_result(message.name or tools.get(block.tool_call_id, ""), block.output)


def _read_result(tool: str, output: Any) -> Step:
    text = output if isinstance(output, str) else json.dumps(output, default=str)
    try:
        # A text in place of an image may follow the data.
        value = json.JSONDecoder().raw_decode(text.lstrip())[0] if text.lstrip().startswith("{") else {}
    except (ValueError, RecursionError):
        value = {}
    return Step("tool", text, tool, value)


def _drop_interrupted(steps: list[Step]) -> list[Step]:
    """Drop results in a row if one is interrupted, and the message with their calls: its rule decides again."""
    if not any(step.is_interrupted for step in steps):
        return steps
    kept: list[Step] = []
    for are_results, run in groupby(steps, key=lambda step: step.role == "tool"):
        group = list(run)
        if not (are_results and any(step.is_interrupted for step in group)):
            kept.extend(group)
        elif kept and kept[-1].role == "assistant":
            kept.pop()
    return kept
