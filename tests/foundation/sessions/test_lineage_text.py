"""The tree of sessions, drawn for other programs."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from amplifier_core import Delivery, SessionRecord, TriggerEvent, TriggerType
from amplifier_foundation.sessions.lineage import Node, forest
from amplifier_foundation.sessions.lineage_text import dot, mermaid

START = datetime(2026, 1, 1, tzinfo=UTC)
HOSTILE = '"]; s0 --> s9\n<script>alert(1)</script> \\" end'


def record(name: str, minute: int, **fields: Any) -> SessionRecord:
    return SessionRecord(name, created=START + timedelta(minutes=minute), **fields)


@pytest.fixture
def roots() -> list[Node]:
    woken = TriggerEvent(TriggerType.SESSION_EVENT, "t", event_name=HOSTILE, source_session_id="root")
    records = [
        record("root", 0, status="completed", metadata={"duration": 200, "usage": {"cost_usd": "0.5"}}),
        record("fork", 1, parent_id="root", fork_of="root", fork_at=4),
        record("child", 2, parent_id="root", metadata={"agent": "reviewer"}),
    ]
    return forest(records, [Delivery("d", "/p", "l", "t", woken, session_id="child")])


def test_mermaid_tells_made_forked_and_woken_apart(roots: list[Node]) -> None:
    lines = mermaid(roots).splitlines()
    assert lines[0] == "flowchart LR"
    assert '  s0["root<br/>completed, turns: 0, messages: 0<br/>3 min 20 s, #36;0.5000"]' in lines
    assert '  s2["child<br/>agent reviewer<br/>running, turns: 0, messages: 0"]' in lines
    assert [line for line in lines if re.match(r"  e?s\d+ [-=]", line)] == [
        '  s0 ==>|"fork, shares m1#8211;m4"| s1',
        "  s0 --> s2",
        "  s0 -.-> es2",
        '  es2 -.->|"woke"| s2',
    ]


def test_dot_tells_made_forked_and_woken_apart(roots: list[Node]) -> None:
    lines = dot(roots).splitlines()
    assert [line for line in lines if "->" in line and "label=" not in line.partition("->")[0]] == [
        '  s0 -> s1 [style=bold, label="fork, shares m1\N{EN DASH}m4"];',
        "  s0 -> s2 [style=solid];",
        "  s0 -> es2 [style=dotted];",
        '  es2 -> s2 [style=dotted, label="woke"];',
    ]
    assert (lines[0], lines[-1]) == ("digraph sessions {", "}")


@pytest.mark.parametrize("draw", [mermaid, dot])
def test_what_an_event_says_cannot_draw(draw: Any, roots: list[Node]) -> None:
    [line] = [line for line in draw(roots).splitlines() if "alert" in line]
    inside = re.fullmatch(r'  es2(?:\(\["(.*)"\]\)| \[label="(.*)", shape=ellipse\];)', line)
    assert inside is not None
    label = inside[1] or inside[2]
    assert not re.search(r'(?<!\\)(?:\\\\)*"', label)
    if draw is mermaid:
        assert not set(label) & set('"<>[](){}')


def test_nothing_is_drawn_of_nothing() -> None:
    assert mermaid([]) == "flowchart LR"
    assert dot([]).endswith("}")
