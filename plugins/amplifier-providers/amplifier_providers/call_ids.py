"""Give each tool call an id of its own, as services insist: some models and gateways give one twice, or none."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from amplifier_core import ChatRequest, ChatResponse, Message

_LONGEST = 32
"""Characters of an id that stay before a number: Chat Completions takes 40."""
_ODD = re.compile("[^A-Za-z0-9_-]")


def plain_id(call_id: str, longest: int) -> str:
    """Return an id of letters, digits, `_` and `-`, at most `longest` characters; a longer one ends with its hash."""
    plain = _ODD.sub("_", call_id)
    return plain if len(plain) <= longest else f"{plain[: longest - 9]}_{sha256(call_id.encode()).hexdigest()[:8]}"


def with_own_ids(response: ChatResponse, request: ChatRequest) -> ChatResponse:
    """Return an answer whose calls have other ids than each other, and than those of the request."""
    calls = response.tool_calls or []
    taken = {each for message in request.messages for each in _ids_of(message)} if calls else set()
    last: dict[str, int] = {}
    ids = [_choose(each.id, taken, last) for each in calls]
    if all(each.id == own for each, own in zip(calls, ids, strict=True)):
        return response
    left = iter(ids)
    content = [
        each.model_copy(update={"id": next(left, each.id)}) if each.type == "tool_call" else each
        for each in response.content
    ]
    renamed = [each.model_copy(update={"id": own}) for each, own in zip(calls, ids, strict=True)]
    return response.model_copy(update={"content": content, "tool_calls": renamed})


def with_single_ids(request: ChatRequest, spell: Callable[[str], str] = str) -> ChatRequest:
    """Return a request in which each call has an id of its own, as `spell` writes it for the service; `str` keeps it.

    The results of calls with one id belong to them in their order.
    """
    ids = [each for message in request.messages for each in _ids_of(message)]
    if len(set(ids)) == len(ids) and all(each and spell(each) == each for each in ids):
        return request
    taken, last = set[str](), dict[str, int]()
    waiting: dict[str, list[str]] = {}
    messages = []
    for message in request.messages:
        own: dict[str, list[str]] = {}
        for each in _ids_of(message):
            own.setdefault(each, []).append(_choose(spell(each), taken, last))
            waiting.setdefault(each, []).append(own[each][-1])
        messages.append(_rename(message, own, waiting))
    return request.model_copy(update={"messages": messages})


def _ids_of(message: Message) -> list[str]:
    """Return the ids of the calls in an answer: of its blocks, or of its `tool_calls`, which are the same calls."""
    if message.role != "assistant":
        return []
    blocks = [] if isinstance(message.content, str) else message.content
    ids = [each.id for each in blocks if each.type == "tool_call"]
    besides = [_id_of(each) for each in getattr(message, "tool_calls", None) or ()]
    return ids or besides


def _id_of(call: dict[str, Any]) -> str:
    return str(call.get("id") or "")


def _choose(call_id: str, taken: set[str], last: dict[str, int]) -> str:
    """Return the id, or one with the next number after its `last` if it is taken, and take it; "call" for no id."""
    own = call_id or "call"
    start = own[:_LONGEST]
    while own in taken:
        last[start] = last.get(start, 1) + 1
        own = f"{start}_{last[start]}"
    taken.add(own)
    return own


def _rename(message: Message, own: dict[str, list[str]], waiting: dict[str, list[str]]) -> Message:
    """Return a message with the ids of its own calls, and those that its results wait for."""
    changes: dict[str, Any] = {}
    if message.role == "tool" and waiting.get(answered := message.tool_call_id or ""):
        changes["tool_call_id"] = waiting[answered].pop(0)
    if not isinstance(message.content, str):
        left = {call_id: iter(ids) for call_id, ids in own.items()}
        changes["content"] = [_rename_block(each, left, waiting) for each in message.content]
    if own and getattr(message, "tool_calls", None):
        left = {call_id: iter(ids) for call_id, ids in own.items()}
        calls = getattr(message, "tool_calls")  # noqa: B009 - not in the model
        changes["tool_calls"] = [
            {**call, "id": next(left[_id_of(call)], own[_id_of(call)][-1])} if _id_of(call) in left else call
            for call in calls
        ]
    return message.model_copy(update=changes) if changes else message


def _rename_block(block: Any, left: dict[str, Iterator[str]], waiting: dict[str, list[str]]) -> Any:
    if block.type == "tool_call":
        return block.model_copy(update={"id": next(left[block.id])})
    if block.type == "tool_result" and waiting.get(block.tool_call_id):
        return block.model_copy(update={"tool_call_id": waiting[block.tool_call_id].pop(0)})
    return block
