"""Make the answers of Ollama's chat API, from the types of its own SDK: a line of JSON for each piece."""

from __future__ import annotations

import json
from typing import Any

from ollama import ChatResponse, ListResponse, Message, ShowResponse

from tests.wire.server import Answer, json_answer

MODEL = "qwen3:8b"
Part = tuple[Any, ...]


def text(*pieces: str) -> Part:
    """Return a text, in these pieces."""
    return ("content", pieces)


def thinking(*pieces: str) -> Part:
    """Return thinking, in these pieces."""
    return ("thinking", pieces)


def call(name: str, /, **given: Any) -> Part:
    """Return a tool call; it comes whole, and without an id."""
    return ("call", name, given)


def pieces_of(*parts: Part, reason: str = "stop", model: str = MODEL, **counts: Any) -> list[bytes]:
    """Return the lines of one answer; the last one has the reason of the end and the counts of tokens."""
    messages: list[Message] = []
    for part in parts:
        if part[0] == "call":
            function = Message.ToolCall.Function(name=part[1], arguments=part[2])
            messages.append(Message(role="assistant", content="", tool_calls=[Message.ToolCall(function=function)]))
        elif part[0] == "thinking":
            messages += [Message(role="assistant", content="", thinking=each) for each in part[1]]
        else:
            messages += [Message(role="assistant", content=each) for each in part[1]]
    about: dict[str, Any] = {"model": model, "created_at": "2026-11-01T00:00:00Z"}
    whole = [ChatResponse(**about, message=message, done=False) for message in messages]
    told = {"total_duration": 5, "load_duration": 1, "prompt_eval_count": 10, "eval_count": 5, **counts}
    end = Message(role="assistant", content="")
    whole.append(ChatResponse(**about, message=end, done=True, done_reason=reason, **told))
    return [line(each.model_dump(exclude_none=True)) for each in whole]


def line(data: Any) -> bytes:
    """Return one piece of a stream."""
    return json.dumps(data).encode() + b"\n"


def stream(pieces: list[bytes]) -> Answer:
    """Return an answer with these lines."""
    return Answer(tuple(pieces), headers={"content-type": "application/x-ndjson"}, is_stream=True)


def says(*parts: Part | str, **more: Any) -> Answer:
    """Return a streamed answer; a text is a part in one piece."""
    return stream(pieces_of(*(text(each) if isinstance(each, str) else each for each in parts), **more))


def fails(status: int, message: str, **headers: str) -> Answer:
    """Return an error of the server."""
    return json_answer({"error": message}, status, **headers)


def models(*names: str) -> Answer:
    """Return the list of models."""
    listed = ListResponse(models=[ListResponse.Model(model=name, size=5) for name in names])
    return json_answer(listed.model_dump(mode="json", exclude_none=True))


def shows(*capabilities: str, context: int = 40_960) -> Answer:
    """Return the description of a model."""
    facts = {"general.architecture": "qwen3", "qwen3.context_length": context}
    shown = ShowResponse(model_info=facts, capabilities=list(capabilities))
    return json_answer(shown.model_dump(mode="json", exclude_none=True, by_alias=True))
