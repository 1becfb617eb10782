"""Make ids for the sessions of agents in the form of the field: `<parent span>-<own span>_<agent>`."""

from __future__ import annotations

import re
import secrets
from hashlib import sha256

LONGEST_NAME = 64
NO_SPAN = "0" * 16
"""The parent span of a session with an unknown parent."""

_SUB_SESSION = re.compile(r"[0-9a-f]{16}-([0-9a-f]{16})_.+")


def generate_sub_session_id(
    agent_name: str | None = None, parent_session_id: str | None = None, parent_trace_id: str | None = None
) -> str:
    """Return a new id with the span of the parent; spans are 16 hex digits each.

    The parent's span is part of its id, or the hash of its id or of the trace's.

    >>> generate_sub_session_id("Bug Hunter")  # doctest: +SKIP
    '0000000000000000-8f1d2c3b4a596877_bug-hunter'
    """
    name = re.sub(r"[^a-z0-9]+", "-", (agent_name or "").lower())[:LONGEST_NAME].strip("-")
    parent, span = parent_session_id or parent_trace_id, NO_SPAN
    if parent:
        child = _SUB_SESSION.fullmatch(parent)
        span = child[1] if child else sha256(parent.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{span}-{secrets.token_hex(8)}_{name or 'agent'}"
