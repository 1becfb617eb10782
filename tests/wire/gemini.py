"""Make the answers of the Gemini API, from the types of its own SDK."""

from __future__ import annotations

import re
from typing import Any

from google.genai import types

from tests.wire.server import Answer, json_answer, sse, stream_answer

MODEL = "gemini-3.8-flash"
Part = list[types.Part]


def text(*pieces: str, signature: bytes | None = None) -> Part:
    """Return a text in these pieces; a signature comes at its end, in an empty piece."""
    end = [types.Part(text="", thought_signature=signature)] if signature else []
    return [*(types.Part(text=each) for each in pieces), *end]


def thinking(*pieces: str) -> Part:
    """Return a summary of thinking, in these pieces."""
    return [types.Part(text=each, thought=True) for each in pieces]


def call(name: str, /, *, call_id: str | None = None, signature: bytes | None = None, **given: Any) -> Part:
    """Return a tool call; it comes whole."""
    return [
        types.Part(function_call=types.FunctionCall(id=call_id, name=name, args=given), thought_signature=signature)
    ]


def pieces_of(*parts: Part, reason: str = "STOP", **usage: Any) -> list[bytes]:
    """Return the events of one answer; the last one has the reason of the end."""
    counts = {"prompt_token_count": 10, "candidates_token_count": 5, **usage}
    about: dict[str, Any] = {"model_version": MODEL, "response_id": "response-01"}
    told = types.GenerateContentResponseUsageMetadata(**counts)
    whole = []
    for each in [part for pieces in parts for part in pieces]:
        candidate = types.Candidate(content=types.Content(role="model", parts=[each]), index=0)
        whole.append(types.GenerateContentResponse(candidates=[candidate], usage_metadata=told, **about))
    end = types.Candidate(finish_reason=types.FinishReason(reason), index=0)
    whole.append(types.GenerateContentResponse(candidates=[end], usage_metadata=told, **about))
    return [sse(dump(each)) for each in whole]


def dump(model: Any) -> Any:
    """Return the JSON of one of the SDK's types, as the service writes it."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def says(*parts: Part | str, **more: Any) -> Answer:
    """Return a streamed answer; a text is a part in one piece."""
    return stream_answer(pieces_of(*(text(each) if isinstance(each, str) else each for each in parts), **more))


def blocked(reason: str) -> Answer:
    """Return the answer to a request that the service blocked."""
    feedback = types.GenerateContentResponsePromptFeedback(block_reason=types.BlockedReason(reason))
    return stream_answer([sse(dump(types.GenerateContentResponse(prompt_feedback=feedback)))])


def read(body: Any) -> Any:
    """Return a request with its keys as the service writes them; it reads those of the SDK, too: `mime_type`."""
    if isinstance(body, list):
        return [read(each) for each in body]
    if not isinstance(body, dict):
        return body
    return {re.sub(r"_(\w)", lambda found: found[1].upper(), key): read(value) for key, value in body.items()}


def error_of(status: int, word: str, message: str, *details: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON of an error."""
    return {"error": {"code": status, "message": message, "status": word, "details": list(details)}}


def fails(status: int, word: str, message: str, *details: dict[str, Any], **headers: str) -> Answer:
    """Return an error of the service."""
    return json_answer(error_of(status, word, message, *details), status, **headers)


def models(*names: str, actions: tuple[str, ...] = ("generateContent",)) -> Answer:
    """Return the list of models; the wire calls their actions methods."""
    about = {"inputTokenLimit": 1_000_000, "outputTokenLimit": 8_000, "supportedGenerationMethods": list(actions)}
    return json_answer({"models": [{"name": f"models/{name}", **about} for name in names]})
