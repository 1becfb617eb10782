"""Show a stored history to the editor: every message as `session/update`, in order."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .contents import show_message
from .tool_calls import describe_call, describe_result

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_KINDS = {
    ("user", "text"): "user_message_chunk",
    ("assistant", "text"): "agent_message_chunk",
    ("assistant", "thought"): "agent_thought_chunk",
}


def replay(messages: Iterable[Mapping[str, Any]], folder: str, first: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the updates of messages; `first` is the position of the first of them in its history.

    What hooks and instructions have added is no part of the conversation that people see.
    """
    for position, message in enumerate(messages, first):
        role = str(message.get("role"))
        if (message.get("metadata") or {}).get("source") == "hook":
            continue
        if role == "tool":
            yield _replay_result(message)
            continue
        for kind, block in show_message(message):
            if (update := _KINDS.get((role, kind))) is not None:
                yield {"sessionUpdate": update, "content": block, "messageId": f"m{position + 1}"}
        for call in message.get("tool_calls") or () if role == "assistant" else ():
            name = str(call.get("tool") or (call.get("function") or {}).get("name", ""))
            given = call.get("arguments") or (call.get("function") or {}).get("arguments")
            told = describe_call(str(call.get("id")), name, given, folder)
            yield {"sessionUpdate": "tool_call", **told, "status": "pending"}


def _replay_result(message: Mapping[str, Any]) -> dict[str, Any]:
    output: Any = message.get("content")
    is_ok = True
    if isinstance(output, str):
        try:
            read = json.loads(output)
        except ValueError:
            read = None
        if isinstance(read, dict):
            output, is_ok = read, "error" not in read and not read.get("interrupted")
        elif output.startswith("Error"):
            is_ok = False
    told = describe_result(output, is_ok=is_ok)
    return {"sessionUpdate": "tool_call_update", "toolCallId": str(message.get("tool_call_id")), **told}
