"""Make the answers of Anthropic's Messages API, from the types of its own SDK.

Each function that returns events returns them in the order of the service: `message_start`, the blocks,
`message_delta`, `message_stop`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from anthropic import types

from tests.wire.server import Answer, json_answer, sse, stream_answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic import BaseModel

MODEL = "claude-sonnet-5-5"
Block = tuple[Any, list[Any]]
"""A block as it starts, and its deltas."""


def text(*pieces: str) -> Block:
    """Return a block of text, in these deltas."""
    return types.TextBlock(type="text", text=""), [types.TextDelta(type="text_delta", text=each) for each in pieces]


def thinking(*pieces: str, signature: str) -> Block:
    """Return a block of thinking; its signature comes at its end."""
    deltas = [types.ThinkingDelta(type="thinking_delta", thinking=each) for each in pieces]
    signed = types.SignatureDelta(type="signature_delta", signature=signature)
    return types.ThinkingBlock(type="thinking", thinking="", signature=""), [*deltas, signed]


def redacted(data: str) -> Block:
    """Return a block of thinking that only the service reads."""
    return types.RedactedThinkingBlock(type="redacted_thinking", data=data), []


def call(call_id: str, name: str, /, **given: Any) -> Block:
    """Return a tool call; its input comes as pieces of JSON."""
    return raw_call(call_id, name, json.dumps(given))


def raw_call(call_id: str, name: str, given: str) -> Block:
    """Return a tool call whose input is this text, in two pieces."""
    middle = len(given) // 2
    pieces = ["", given[:middle], given[middle:]]
    start = types.ToolUseBlock(type="tool_use", id=call_id, name=name, input={})
    return start, [types.InputJSONDelta(type="input_json_delta", partial_json=each) for each in pieces]


def events_of(
    *blocks: Block,
    stop: types.StopReason | None = None,
    model: str = MODEL,
    usage: dict[str, Any] | None = None,
    stop_details: dict[str, Any] | None = None,
) -> list[bytes]:
    """Return the events of one answer; without `stop`, `tool_use` if there is a call, else `end_turn`."""
    counts = {"input_tokens": 10, "output_tokens": 5, **(usage or {})}
    has_call = any(isinstance(start, types.ToolUseBlock) for start, _ in blocks)
    reason = stop or ("tool_use" if has_call else "end_turn")
    begun = types.Message(
        id="msg_01",
        type="message",
        role="assistant",
        model=model,
        content=[],
        usage=types.Usage.model_validate({**counts, "output_tokens": 1}),
    )
    events: list[BaseModel] = [types.RawMessageStartEvent(type="message_start", message=begun)]
    for index, (start, deltas) in enumerate(blocks):
        events.append(types.RawContentBlockStartEvent(type="content_block_start", index=index, content_block=start))
        events += [
            types.RawContentBlockDeltaEvent(type="content_block_delta", index=index, delta=each) for each in deltas
        ]
        events.append(types.RawContentBlockStopEvent(type="content_block_stop", index=index))
    end = {
        "type": "message_delta",
        "delta": {"stop_reason": reason, "stop_details": stop_details},
        "usage": {name: value for name, value in counts.items() if name != "cache_creation"},
    }
    events += [
        types.RawMessageDeltaEvent.model_validate(end),
        types.RawMessageStopEvent(type="message_stop"),
    ]
    wire = [sse(each.to_json(indent=None), event=str(each.type)) for each in events]  # type: ignore[attr-defined]
    return [wire[0], sse({"type": "ping"}, event="ping"), *wire[1:]]


def says(*blocks: Block | str, **more: Any) -> Answer:
    """Return a streamed answer; a text is a block of text in one piece."""
    return stream_answer(events_of(*(text(each) if isinstance(each, str) else each for each in blocks), **more))


def fails(status: int, kind: str, message: str, *, code: str | None = None, **headers: str) -> Answer:
    """Return an error of the service."""
    return json_answer(error_body(kind, message, code), status, request_id="req_01", **headers)


def error_event(kind: str, message: str) -> bytes:
    """Return an error in the midst of a stream."""
    return sse(error_body(kind, message), event="error")


def error_body(kind: str, message: str, code: str | None = None) -> dict[str, Any]:
    """Return the body of an error."""
    error: dict[str, Any] = {"type": kind, "message": message}
    if code:
        error["details"] = {"error_code": code}
    return {"type": "error", "error": error, "request_id": "req_01"}


def models(*infos: dict[str, Any], has_more: bool = False) -> Answer:
    """Return a page of models."""
    last = infos[-1]["id"] if infos else None
    return json_answer({"data": list(infos), "has_more": has_more, "first_id": None, "last_id": last})


def model(model_id: str, *, context: int, output: int, features: Sequence[str] = ()) -> dict[str, Any]:
    """Return one model of such a page, with the capabilities named by `features`."""
    flags = ("batch", "citations", "code_execution", "image_input", "pdf_input", "structured_outputs")
    off = {"supported": False}
    capabilities: dict[str, Any] = {name: {"supported": name in features} for name in flags}
    capabilities["thinking"] = {
        "supported": "thinking" in features,
        "types": {"adaptive": off, "enabled": off, "between_tools": off},
    }
    return {
        "id": model_id,
        "type": "model",
        "display_name": model_id.replace("-", " ").title(),
        "created_at": "2026-09-28T00:00:00Z",
        "lifecycle": "active",
        "max_input_tokens": context,
        "max_tokens": output,
        "capabilities": capabilities,
    }


class PromptCache:
    """The prompt cache of the service: an entry for each marked prefix, found by an identical marked prefix."""

    def __init__(self) -> None:
        self._entries: set[str] = set()

    def read(self, body: dict[str, Any]) -> int:
        """Store the marked prefixes of a request; return the blocks in the longest one that was known before."""
        prefix: list[str] = []
        known, marked = 0, []
        for place, block in _blocks_of(body):
            plain = {key: value for key, value in block.items() if key != "cache_control"}
            prefix.append(json.dumps([place, plain], sort_keys=True))
            if "cache_control" in block:
                marked.append("\n".join(prefix))
                known = len(prefix) if marked[-1] in self._entries else known
        assert len(marked) <= 4, "the service takes at most four marks"
        self._entries.update(marked)
        return known


def _blocks_of(body: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    blocks = [("tools", tool) for tool in body.get("tools", [])]
    blocks += [("system", block) for block in body.get("system", [])]
    for message in body["messages"]:
        blocks += [(message["role"], block) for block in message["content"]]
    return blocks
