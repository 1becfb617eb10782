"""Count, cut and complete transcripts: lists of messages, as programs for sessions keep them.

A turn is a message of a person and everything up to the next such message. Turns are numbered from 1. Tool
calls are read from `tool_calls` and from content blocks of the types `tool_call` and `tool_use`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, get_args

from ..documents.problems import require_choice
from .history import Orphans, is_user_turn, text_of, turn_starts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from amplifier_core.transcript import Message

FORKED = "The session was forked before this tool call had a result; whether it took effect is unknown."
INTERRUPTED = "The turn was interrupted here."
_CALLS = ("tool_call", "tool_use")


def tool_calls_of(message: Message) -> dict[str, str]:
    """Return the called tools of a message by the ids of the calls."""
    blocks = message.get("content")
    given = [*(message.get("tool_calls") or ()), *(blocks if isinstance(blocks, list) else ())]
    calls: dict[str, str] = {}
    for call in given if message.get("role") == "assistant" else ():
        if isinstance(call, dict) and call.get("id") and call.get("type", "function") in ("function", *_CALLS):
            name = call.get("tool") or call.get("name") or (call.get("function") or {}).get("name")
            calls[call["id"]] = calls.get(call["id"]) or str(name or "")
    return calls


def results_in(message: Message) -> set[str]:
    """Return the ids of the calls answered by a message."""
    if message.get("role") == "tool":
        return {str(message.get("tool_call_id"))}
    blocks = message.get("content") if message.get("role") == "user" else None
    return {
        str(block.get("tool_use_id"))
        for block in (blocks if isinstance(blocks, list) else ())
        if isinstance(block, dict) and block.get("type") == "tool_result"
    }


def is_real_user_message(message: Message) -> bool:
    """Return whether a person or a trigger wrote a message: not a hook, and not a tool as its result."""
    return is_user_turn(message) and not results_in(message)


def get_turn_boundaries(messages: Sequence[Message]) -> list[int]:
    """Return the positions of the first messages of turns."""
    return [position for position in turn_starts(messages) if is_real_user_message(messages[position])]


def count_turns(messages: Sequence[Message]) -> int:
    """Return the number of turns."""
    return len(get_turn_boundaries(messages))


def find_orphaned_tool_calls(messages: Sequence[Message]) -> list[str]:
    """Return the ids of the tool calls without a result, in their order."""
    answered = {call_id for message in messages for call_id in results_in(message)}
    return [call_id for message in messages for call_id in tool_calls_of(message) if call_id not in answered]


def slice_to_turn(
    messages: Sequence[Message], turn: int, *, handle_orphaned_tools: Orphans = "complete"
) -> list[Message]:
    """Return the messages up to the end of a turn.

    Tool calls without a result there get an error as theirs (`complete`), are taken out (`remove`), or are
    refused (`error`). Raises `ValueError` for a turn out of range, for refused calls, and for another word.
    """
    return settle_orphans(messages[: find_turn(messages, turn).stop], handle_orphaned_tools)


def find_turn(messages: Sequence[Message], turn: int) -> slice:
    """Return the positions of a turn's messages. Raises `ValueError` for a turn out of range."""
    starts = get_turn_boundaries(messages)
    if not starts:
        raise ValueError("No user messages: there is no turn to cut at")
    if turn < 1:
        raise ValueError(f"Turn must be >= 1, not {turn}")
    if turn > len(starts):
        raise ValueError(f"Turn {turn} exceeds max turns ({len(starts)})")
    return slice(starts[turn - 1], [*starts, len(messages)][turn])


def settle_orphans(messages: Sequence[Message], orphans: Orphans) -> list[Message]:
    """Return the messages with a result for every tool call. Raises `ValueError` for refused calls and another word."""
    require_choice("handle_orphaned_tools", orphans, get_args(Orphans))
    ids = find_orphaned_tool_calls(messages)
    if ids and orphans == "error":
        raise ValueError(f"Orphaned tool calls: {', '.join(ids)}")
    if orphans == "remove":
        return list(_without_calls(messages, set(ids)))
    return add_synthetic_tool_results(messages, ids)


def _without_calls(messages: Sequence[Message], ids: set[str]) -> Iterator[Message]:
    for message in messages:
        if ids.isdisjoint(tool_calls_of(message)):
            yield message
            continue
        kept = [call for call in message.get("tool_calls") or () if call.get("id") not in ids]
        content = message.get("content")
        if isinstance(content, list):
            content = [block for block in content if not (block.get("type") in _CALLS and block.get("id") in ids)]
        if kept or content:
            rest = {key: value for key, value in message.items() if key != "tool_calls"}
            yield {**rest, "content": content, **({"tool_calls": kept} if kept else {})}


def add_synthetic_tool_results(
    messages: Sequence[Message], orphaned_ids: Collection[str], reason: str = FORKED
) -> list[Message]:
    """Return the messages with a result for each of these calls, after the other results of its message.

    When a person's message follows at once, an answer closes the turn before it: a provider expects one.
    """
    content = json.dumps({"status": "error", "error": reason, "interrupted": True})
    complete: list[Message] = []
    pending: list[Message] = []  # results that wait until the real results of their message have passed
    for message in messages:
        if pending and not results_in(message):
            complete += pending
            if is_real_user_message(message):
                complete.append({"role": "assistant", "content": INTERRUPTED})
            pending = []
        complete.append(message)
        for call_id, name in tool_calls_of(message).items():
            if call_id in orphaned_ids:
                named = {"name": name} if name else {}
                pending.append({"role": "tool", "tool_call_id": call_id, **named, "content": content})
    return complete + pending


def get_turn_summary(messages: Sequence[Message], turn: int, max_length: int = 100) -> dict[str, Any]:
    """Summarise a turn: `turn`, `user_content`, `assistant_content`, `tool_count`, `message_count`.

    Texts are cut to `max_length` characters. Raises `ValueError` for a turn out of range.
    """
    said = messages[find_turn(messages, turn)]
    answers = [text for message in said if message.get("role") == "assistant" and (text := text_of(message))]
    return {
        "turn": turn,
        "user_content": _cut(text_of(said[0]), max_length),
        "assistant_content": _cut(answers[-1] if answers else "", max_length),
        "tool_count": sum(len(tool_calls_of(message)) for message in said),
        "message_count": len(said),
    }


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
