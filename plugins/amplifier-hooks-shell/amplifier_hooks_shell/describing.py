"""Describe an event to a command: the JSON on its stdin."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from amplifier_core.utils import truncate_values

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_INPUT = 10 * 1024 * 1024
"""Bytes of the JSON; longer texts in it are cut."""
_SHORTER = (65_536, 4096, 256)
"""Characters to cut the texts of a result to, until its JSON is short enough."""


class TooLongError(Exception):
    """What a guard is asked about is too long for it."""


def describe(event: str, data: Mapping[str, Any], facts: Mapping[str, Any]) -> bytes:
    """Return the JSON about an event; `facts` are those of the session. Raises `TooLongError`.

    A result of a tool is shortened when it is too long, with `"truncated": true`; what is to be decided about never is.
    """
    about = {**facts, "hook_event_name": event, **data}
    encoded = _encode(about)
    for length in _SHORTER:
        if len(encoded) <= MOST_INPUT or "tool_response" not in about:
            break
        cut = {**about, "tool_response": truncate_values(about["tool_response"], length), "truncated": True}
        encoded = _encode(cut)
    if len(encoded) > MOST_INPUT:
        raise TooLongError(f"{len(encoded)} bytes; a hook gets at most {MOST_INPUT}")
    return encoded


def _encode(about: Mapping[str, Any]) -> bytes:
    return json.dumps(about, default=str).encode()
