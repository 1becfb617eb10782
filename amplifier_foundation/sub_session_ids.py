"""Ids of sessions that a session made, as the field writes them: `<parent span>-<own span>_<agent>`."""

from __future__ import annotations

import re
import secrets
from hashlib import sha256

LONGEST_NAME = 64
NO_SPAN = "0" * 16
"""The parent span of a session whose parent is not known."""

_SUB_SESSION = re.compile(r"[0-9a-f]{16}-([0-9a-f]{16})_.+")


def generate_sub_session_id(
    agent_name: str | None = None, parent_session_id: str | None = None, parent_trace_id: str | None = None
) -> str:
    """Return an id nobody has yet, which tells whose child it is: spans are 16 hex digits each.

    The parent's span is its own where its id has one, else made from its id, or from the trace's, always the same.

    >>> generate_sub_session_id("Bug Hunter")  # doctest: +SKIP
    '0000000000000000-8f1d2c3b4a596877_bug-hunter'
    """
    name = re.sub(r"[^a-z0-9]+", "-", (agent_name or "").lower())[:LONGEST_NAME].strip("-")
    return f"{_span_of(parent_session_id or parent_trace_id)}-{secrets.token_hex(8)}_{name or 'agent'}"


def _span_of(parent: str | None) -> str:
    if not parent:
        return NO_SPAN
    child = _SUB_SESSION.fullmatch(parent)
    return child[1] if child else sha256(parent.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def is_top_level(session_id: str) -> bool:
    """Return whether an id is that of a session a person began: by the field's rule, one without `_`."""
    return "_" not in session_id
