"""Derive the ids of traces and spans from ids that are the same in every process and after every restart.

So a session continues the trace of its cause without carrying a context: a delivery may be claimed by one process, its
session run in another, and be resumed in a third after a crash. Ids of model calls and tool calls are random: nothing
outside of their process refers to them, except through `traceparent`.
"""

from __future__ import annotations

import os
import re
from hashlib import sha256
from typing import NamedTuple

_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")


class Place(NamedTuple):
    """A span's place: the ids of its trace and of itself."""

    trace_id: int
    span_id: int

    @property
    def traceparent(self) -> str:
        """Its W3C form."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-01"


def read_traceparent(text: object) -> Place | None:
    """Return the place in a W3C `traceparent`; None for anything else."""
    found = _TRACEPARENT.fullmatch(text) if isinstance(text, str) else None
    place = Place(int(found[1], 16), int(found[2], 16)) if found else None
    return place if place is not None and all(place) else None


def trace_id_of(root: str) -> int:
    """Return the trace of everything that follows from one event or session."""
    return int.from_bytes(_digest("trace", root)[:16], "big") or 1


def delivery_span(delivery_id: str) -> int:
    """Return the span of a delivery."""
    return _span("delivery", delivery_id)


def turn_span(session_id: str, turn: int, attempt: int = 1) -> int:
    """Return the span of an attempt at a turn, both counted from 1."""
    return _span("turn", session_id, str(turn), str(attempt))


def random_span() -> int:
    """Return the id of a span that nothing outside of this process refers to."""
    return int.from_bytes(os.urandom(8), "big") or 1


def _span(*parts: str) -> int:
    return int.from_bytes(_digest(*parts)[:8], "big") or 1


def _digest(*parts: str) -> bytes:
    return sha256("\0".join(("amplifier", *parts)).encode("utf-8", "surrogatepass")).digest()
