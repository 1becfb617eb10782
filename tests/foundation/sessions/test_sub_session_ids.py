"""Ids that tell whose child a session is."""

from __future__ import annotations

import re
from hashlib import sha256

import pytest

from amplifier_core.ids import validate_session_id
from amplifier_foundation.sessions.sub_session_ids import generate_sub_session_id


@pytest.mark.parametrize(
    ("agent", "shown"),
    [
        ("Bug Hunter", "bug-hunter"),
        ("my-bundle:bug_hunter", "my-bundle-bug-hunter"),
        ("  --x--  ", "x"),
        ("../../etc/passwd", "etc-passwd"),
        ("é", "agent"),
        ("", "agent"),
        (None, "agent"),
        ("a" * 500, "a" * 64),
        ("a" * 63 + " b", "a" * 63),
    ],
)
def test_an_id_is_two_spans_and_the_agents_name(agent: str | None, shown: str) -> None:
    session_id = generate_sub_session_id(agent)
    match = re.fullmatch(r"([0-9a-f]{16})-([0-9a-f]{16})_(.+)", session_id)
    assert match is not None
    assert (match[1], match[3]) == ("0" * 16, shown)
    assert validate_session_id(session_id) == session_id


def test_a_grandchild_carries_its_parents_span() -> None:
    child = generate_sub_session_id("explorer", "root")
    grandchild = generate_sub_session_id("reviewer", child, "trace")
    assert grandchild.startswith(f"{child[17:33]}-")


def test_the_span_of_another_parent_is_made_of_its_id_and_else_of_its_trace() -> None:
    root, trace = sha256(b"root").hexdigest()[:16], sha256(b"trace").hexdigest()[:16]
    assert generate_sub_session_id("a", "root", "trace")[:17] == f"{root}-"
    assert generate_sub_session_id("a", parent_trace_id="trace")[:17] == f"{trace}-"
    almost = "0123456789abcdef-0123456789ABCDEF_agent"
    assert generate_sub_session_id("a", almost)[:16] == sha256(almost.encode()).hexdigest()[:16]


def test_no_two_ids_are_the_same() -> None:
    assert len({generate_sub_session_id("a", "root") for _ in range(1_000)}) == 1_000
