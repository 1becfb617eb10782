"""Make the answers of OpenAI's Responses and Chat Completions APIs, from the types of its own SDK.

A part is `("text", …)`, `("thinking", …)`, `("call", id, name, input)` or `("refusal", …)`: the same for both APIs.
"""

from __future__ import annotations

import json
from typing import Any

from openai.types import CompletionUsage, chat, responses
from pydantic import TypeAdapter

from tests.wire.server import Answer, json_answer, sse, stream_answer

MODEL = "gpt-6.1-terra"
Part = tuple[Any, ...]

_EVENT: TypeAdapter[Any] = TypeAdapter(responses.ResponseStreamEvent)


def text(*pieces: str, phase: str | None = None) -> Part:
    """Return a text, in these deltas."""
    return ("text", pieces, phase)


def thinking(*pieces: str, encrypted: str | None = None) -> Part:
    """Return reasoning with a summary in these deltas."""
    return ("thinking", pieces, encrypted)


def refusal(*pieces: str) -> Part:
    """Return the text of a refusal, in these deltas."""
    return ("refusal", pieces)


def call(call_id: str, name: str, /, **given: Any) -> Part:
    """Return a tool call."""
    return raw_call(call_id, name, json.dumps(given))


def raw_call(call_id: str, name: str, given: str) -> Part:
    """Return a tool call whose input is this text."""
    return ("call", call_id, name, given)


def halves(given: str) -> list[str]:
    return [given[: len(given) // 2], given[len(given) // 2 :]]


# the Responses API


def events_of(*parts: Part, status: str = "completed", reason: str | None = None, **more: Any) -> list[bytes]:
    """Return the events of one answer; `reason` is that of an incomplete one."""
    events: list[dict[str, Any]] = []
    begun = _response("in_progress", [], **more)
    events += [{"type": "response.created", "response": begun}, {"type": "response.in_progress", "response": begun}]
    items = []
    for index, part in enumerate(parts):
        item, inner = _item_of(part, index)
        items.append(item)
        start = {**item, **{key: empty for key, empty in (("content", []), ("arguments", "")) if item.get(key)}}
        events.append({"type": "response.output_item.added", "output_index": index, "item": start})
        events += [{"output_index": index, "item_id": item["id"], **each} for each in inner]
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    details = {"incomplete_details": {"reason": reason}} if reason else {}
    status = "incomplete" if reason else status
    events.append({"type": f"response.{status}", "response": _response(status, items, **details, **more)})
    numbered = [{"sequence_number": number, **event} for number, event in enumerate(events)]
    for event in numbered:
        _EVENT.validate_python(event)
    return [sse(event, event=event["type"]) for event in numbered]


def _item_of(part: Part, index: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return an item as it is at its end, and the events within it."""
    if part[0] == "call":
        _, call_id, name, given = part
        item = {"type": "function_call", "id": f"fc_{index}", "call_id": call_id, "name": name, "arguments": given,
                "status": "completed"}  # fmt: skip
        deltas = [{"type": "response.function_call_arguments.delta", "delta": each} for each in halves(given)]
        return item, [*deltas, {"type": "response.function_call_arguments.done", "name": name, "arguments": given}]
    words = "".join(part[1])
    if part[0] == "thinking":
        summary = [{"type": "summary_text", "text": words}]
        item = {"type": "reasoning", "id": f"rs_{index}", "summary": summary, "encrypted_content": part[2]}
        kind = "response.reasoning_summary_text.delta"
        return item, [{"type": kind, "summary_index": 0, "delta": each} for each in part[1]]
    content = {"type": "refusal", "refusal": words}
    if part[0] == "text":
        content = {"type": "output_text", "text": words, "annotations": [], "logprobs": []}
    phase = {"phase": part[2]} if part[0] == "text" and part[2] else {}
    item = {"type": "message", "id": f"msg_{index}", "role": "assistant", "status": "completed", "content": [content]}
    kind = "response.output_text.delta" if part[0] == "text" else "response.refusal.delta"
    extra: dict[str, Any] = {"logprobs": []} if part[0] == "text" else {}
    return {**item, **phase}, [{"type": kind, "content_index": 0, "delta": each, **extra} for each in part[1]]


def _response(status: str, output: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    given = {"input_tokens": 10, "output_tokens": 5, "cached_tokens": 0, "cache_write_tokens": 0, "reasoning_tokens": 0}
    counts = {**given, **more.pop("usage", {})}
    usage = {
        "input_tokens": counts["input_tokens"],
        "output_tokens": counts["output_tokens"],
        "total_tokens": counts["input_tokens"] + counts["output_tokens"],
        "input_tokens_details": {name: counts[name] for name in ("cached_tokens", "cache_write_tokens")},
        "output_tokens_details": {"reasoning_tokens": counts["reasoning_tokens"]},
    }
    plain = {"model": MODEL, "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    about = {"id": "resp_01", "object": "response", "created_at": 1_790_000_000, "status": status, "output": output}
    return {**about, **plain, "usage": None if status == "in_progress" else usage, **more}


def failed(code: str, message: str) -> bytes:
    """Return the end of an answer that failed."""
    about = _response("failed", [], error={"code": code, "message": message})
    return sse({"type": "response.failed", "sequence_number": 99, "response": about}, event="response.failed")


def error_event(code: str, message: str) -> bytes:
    """Return an error in the midst of a stream."""
    data = {"type": "error", "sequence_number": 99, "code": code, "message": message, "param": None}
    return sse(data, event="error")


# Chat Completions


def chunks_of(
    *parts: Part, stop: str | None = None, usage: dict[str, Any] | None = None, model: str = MODEL
) -> list[bytes]:
    """Return the chunks of one answer, with its usage and its end."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    calls = 0
    for part in parts:
        if part[0] == "call":
            _, call_id, name, given = part
            start = {"index": calls, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
            deltas.append({"tool_calls": [start]})
            deltas += [{"tool_calls": [{"index": calls, "function": {"arguments": each}}]} for each in halves(given)]
            calls += 1
        else:
            field = {"text": "content", "thinking": "reasoning_content", "refusal": "refusal"}[part[0]]
            deltas += [{field: each} for each in part[1]]
    choices = [[{"index": 0, "delta": delta, "finish_reason": None}] for delta in deltas]
    reason = stop or ("tool_calls" if calls else "stop")
    choices.append([{"index": 0, "delta": {}, "finish_reason": reason}])
    about = {"id": "chatcmpl-01", "object": "chat.completion.chunk", "created": 1_790_000_000, "model": model}
    bodies = [{**about, "choices": each} for each in choices]
    counts = {"prompt_tokens": 10, "completion_tokens": 5, **(usage or {})}
    told = CompletionUsage.model_validate(
        {"total_tokens": counts["prompt_tokens"] + counts["completion_tokens"], **counts}
    )
    bodies.append({**about, "choices": [], "usage": told.model_dump(exclude_none=True)})
    for body in bodies:
        chat.ChatCompletionChunk.model_validate(body)
    return [*map(sse, bodies), sse("[DONE]")]


# both


def says(*parts: Part | str, api: str = "responses", **more: Any) -> Answer:
    """Return a streamed answer; a text is a part in one piece."""
    given = [text(each) if isinstance(each, str) else each for each in parts]
    return stream_answer(chunks_of(*given, **more) if api == "chat" else events_of(*given, **more))


def fails(status: int, code: str | None, message: str, **headers: str) -> Answer:
    """Return an error of the service."""
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    return json_answer({"error": error}, status, x_request_id="req_01", **headers)


def models(*names: str) -> Answer:
    """Return the list of models."""
    listed = [{"id": name, "object": "model", "created": 1_790_000_000, "owned_by": "system"} for name in names]
    return json_answer({"object": "list", "data": listed})
