"""List data of the well-known events, as every emitter sends it: enough for a handler within the contract."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from ... import events
from ...message_models import ChatResponse, TextBlock

_TOOL = {"tool_name": "read_file", "tool_input": {"path": "notes.txt"}, "parallel_group_id": "g1", "tool_call_id": "c1"}
_BLOCK = {"block_type": "text", "block_index": 0, "total_blocks": 1}
_USAGE = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
_RESPONSE = ChatResponse(content=[TextBlock(text="Nothing.")])
_ENDED = {"status": "success", "turn_count": 1, "orchestrator": "test"}

SAMPLES: dict[str, dict[str, Any]] = {
    events.SESSION_START: {},
    events.SESSION_END: {"status": "completed"},
    events.SESSION_FORK: {"parent": "parent-session"},
    events.SESSION_RESUME: {},
    events.PROMPT_SUBMIT: {"prompt": "What is in notes.txt?"},
    events.PROMPT_COMPLETE: {"response_preview": "Nothing.", "length": 8},
    events.PROVIDER_REQUEST: {"provider": "test", "iteration": 1},
    events.PROVIDER_RESPONSE: {"provider": "test", "iteration": 1, "response": _RESPONSE, "usage": _USAGE},
    events.CONTENT_BLOCK_START: _BLOCK,
    events.CONTENT_BLOCK_END: {**_BLOCK, "block": {"type": "text", "text": "Nothing."}, "usage": _USAGE},
    events.TOOL_PRE: _TOOL,
    events.TOOL_POST: {**_TOOL, "result": {"success": True, "output": "notes", "error": None}},
    events.TOOL_ERROR: {**_TOOL, "error": {"type": "OSError", "msg": "no such file"}},
    events.EXECUTION_START: {"prompt": "What is in notes.txt?"},
    events.EXECUTION_END: {"response": "Nothing.", "status": "success"},
    events.ORCHESTRATOR_COMPLETE: _ENDED,
}

MALFORMED: dict[str, Any] = {
    "tool_name": None,
    "tool_input": "no mapping",
    "prompt": 17,
    "result": object(),
    "usage": [],
    "unexpected": {1: {2: [None]}},
}


def sample_of(event: str) -> dict[str, Any]:
    """Return data of a well-known event as the registry hands it on: with session, parent and time."""
    common = {"session_id": "test-session", "parent_id": None, "timestamp": "2026-01-01T00:00:00.000000+00:00"}
    return {**common, **deepcopy(SAMPLES[event])}
