"""Write one event as one line of JSON."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from amplifier_core.utils import truncate_values

from .plain import plain_copy

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA = {"name": "amplifier.log", "ver": "1.0.0"}
LONGEST_LINE = 64 * 1024
"""Bytes, with the line's end."""

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_WARNINGS = (
    "provider:retry",
    "provider:throttle",
    "provider:fallback",
    "provider:tool_sequence_repaired",
    "policy:violation",
    "approval:denied",
    "module:load_failed",
    "module:on_session_ready_failed",
    "cancel:requested",
    "cancel:completed",
)
_IDENTITY = ("session_id", "parent_id")
"""Facts of a line besides its data; the data need not repeat them."""
_WHOLE_EVENTS = (":raw", ":debug")
_WHOLE = frozenset({"raw", "messages", "system", "tools", "request", "response", "params", "body", "payload"})
"""Keys of whole requests and responses in the events of providers."""

_SHORTER = (32_768, 8192, 2048, 512, 128, 32)
"""Characters to cut the strings of a line to, until it is short enough."""
_MOST_NAMES, _LONGEST_SUMMARY = 50, 100

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
# JSON leaves these characters alone, and some readers take them for the end of a line
_LINE_ENDS = str.maketrans({end: f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"})


def line_of(event: str, data: Any, session: Mapping[str, str], *, raw: bool) -> bytes:
    """Return the line of an event, at most `LONGEST_LINE` bytes; `session` holds the facts for every line.

    Without `raw`, whole requests and responses are left out. A shortened line says `"truncated": true`.
    """
    held = data if isinstance(data, dict) else {"value": data}
    copy, is_cut = plain_copy(held if raw else without_whole(event, held))
    copy = {key: value for key, value in copy.items() if key not in _IDENTITY or value != session.get(key)}
    now = time.time_ns() // 1_000_000
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now // 1000))
    timestamp = f"{seconds}.{now % 1000:03d}+00:00"
    record = {"ts": timestamp, "lvl": level_of(event, copy), "schema": SCHEMA, **session, "event": event, "data": copy}
    line = _encode_line({**record, "truncated": True} if is_cut else record)
    return line if len(line) <= LONGEST_LINE else _shorten({**record, "truncated": True})


def without_whole(event: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return `data` without whole requests and responses, and without a provider's raw block.

    Of the events for whole requests (`llm:request:raw`, `…:debug`), only single values remain.
    """
    if event.endswith(_WHOLE_EVENTS):
        single = (str, int, float, type(None))
        return {key: value for key, value in data.items() if key not in _WHOLE and isinstance(value, single)}
    left_out = _WHOLE if event.startswith(("llm:", "provider:")) else {"raw"}
    kept = {key: value for key, value in data.items() if key not in left_out}
    block = kept.get("block")
    if isinstance(block, dict) and "raw" in block:
        kept["block"] = {key: value for key, value in block.items() if key != "raw"}
    return kept


def level_of(event: str, data: Mapping[str, Any]) -> str:
    """Return the level of an event: from its `lvl`, else from its name and its `status`."""
    said = data.get("lvl")
    if said in LEVELS:
        return str(said)
    if event in _WARNINGS:
        return "WARNING"
    if event.endswith((":error", ":failed", "_failed")) or data.get("status") in ("error", "failed"):
        return "ERROR"
    return "DEBUG" if event.endswith((*_WHOLE_EVENTS, ":delta", "_delta")) else "INFO"


def _shorten(record: dict[str, Any]) -> bytes:
    """Return the line with its strings cut; if that is not enough, with a summary of its data."""
    for length in _SHORTER:
        line = _encode_line({**record, "data": truncate_values(record["data"], length)})
        if len(line) <= LONGEST_LINE:
            return line
    members = list(record["data"].items())[:_MOST_NAMES]
    summary = {key[:_LONGEST_SUMMARY]: _encode(value)[:_LONGEST_SUMMARY] for key, value in members}
    return _encode_line({**record, "data": summary})


def _encode_line(record: Mapping[str, Any]) -> bytes:
    text = _encode(record)
    if not text.isascii():
        text = text.translate(_LINE_ENDS)
    return text.encode(errors="backslashreplace") + b"\n"  # half a surrogate pair becomes \ud800, which JSON allows
