"""One event as one line of JSON."""

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
    "provider:tool_sequence_repaired",
    "policy:violation",
    "approval:denied",
    "module:load_failed",
    "module:on_session_ready_failed",
    "cancel:requested",
    "cancel:completed",
)
_IDENTITY = ("session_id", "parent_id")
"""What the data need not say again."""
_WHOLE_EVENTS = (":raw", ":debug")
_WHOLE = frozenset({"raw", "messages", "system", "tools", "request", "response", "params", "body", "payload"})
"""What carries whole requests and responses in the events of providers."""

_SHORTER = (32_768, 8192, 2048, 512, 128, 32)
"""Characters that the strings of a line are cut to, until it is short enough."""
_MOST_NAMES, _LONGEST_SUMMARY = 50, 100

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
# what some readers take for the end of a line, and JSON leaves as it is
_LINE_ENDS = str.maketrans({end: f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"})


def line_of(event: str, data: Any, session: Mapping[str, str], *, raw: bool) -> bytes:
    """Return the line of an event, at most `LONGEST_LINE` bytes; `session` is what every line says of it.

    Without `raw`, what carries whole requests and responses is left out. A line that something had to be cut from says
    `"truncated": true`.
    """
    held = data if isinstance(data, dict) else {"value": data}
    copy, is_cut = plain_copy(held if raw else without_whole(event, held))
    copy = {key: value for key, value in copy.items() if key not in _IDENTITY or value != session.get(key)}
    record = {"ts": _now(), "lvl": level_of(event, copy), "schema": SCHEMA, **session, "event": event, "data": copy}
    line = _encoded({**record, "truncated": True} if is_cut else record)
    return line if len(line) <= LONGEST_LINE else _shortened({**record, "truncated": True})


def without_whole(event: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return `data` without whole requests and responses, and without what a provider sent for a block.

    Of the events that exist to carry them (`llm:request:raw`, `…:debug`), only single values remain.
    """
    if event.endswith(_WHOLE_EVENTS):
        return {key: value for key, value in data.items() if key not in _WHOLE and _is_single(value)}
    left_out = _WHOLE if event.startswith(("llm:", "provider:")) else {"raw"}
    kept = {key: value for key, value in data.items() if key not in left_out}
    block = kept.get("block")
    if isinstance(block, dict) and "raw" in block:
        kept["block"] = {key: value for key, value in block.items() if key != "raw"}
    return kept


def _is_single(value: Any) -> bool:
    return value is None or isinstance(value, (str, int, float))


def level_of(event: str, data: Mapping[str, Any]) -> str:
    """Return how much an event matters: what it says itself (`lvl`), else what its name and its `status` say."""
    said = data.get("lvl")
    if said in LEVELS:
        return str(said)
    if event in _WARNINGS:
        return "WARNING"
    if event.endswith((":error", ":failed", "_failed")) or data.get("status") in ("error", "failed"):
        return "ERROR"
    return "DEBUG" if event.endswith((*_WHOLE_EVENTS, ":delta", "_delta")) else "INFO"


def _shortened(record: dict[str, Any]) -> bytes:
    """Return the line with its strings cut, and with a summary of its data where that is not enough."""
    for length in _SHORTER:
        line = _encoded({**record, "data": truncate_values(record["data"], length)})
        if len(line) <= LONGEST_LINE:
            return line
    members = list(record["data"].items())[:_MOST_NAMES]
    summary = {key[:_LONGEST_SUMMARY]: _encode(value)[:_LONGEST_SUMMARY] for key, value in members}
    return _encoded({**record, "data": summary})


def _encoded(record: Mapping[str, Any]) -> bytes:
    text = _encode(record)
    if not text.isascii():
        text = text.translate(_LINE_ENDS)
    return text.encode(errors="backslashreplace") + b"\n"  # half a surrogate pair becomes \ud800, which JSON allows


def _now() -> str:
    """Return the time in UTC as RFC 3339, with milliseconds."""
    now = time.time_ns() // 1_000_000
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now // 1000))}.{now % 1000:03d}+00:00"
