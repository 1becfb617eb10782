"""One session as text."""

from __future__ import annotations

import json

from amplifier_core import SessionRecord
from amplifier_foundation.sessions.exporting import call_line, fence, json_lines, markdown, title_of

RESULT = {"role": "tool", "name": "read_file", "tool_call_id": "1", "content": "```\n# not a heading\n```"}


def test_every_line_of_json_lines_is_json_whatever_is_said() -> None:
    lines = list(json_lines(SessionRecord("s", config={"k": 1}), [{"role": "user", "content": "a\nb\u2028ü"}]))
    assert all("\n" not in line for line in lines)
    head, message = map(json.loads, lines)
    assert (head["session"]["config"], head["session"]["created"][-1]) == ({"k": 1}, "Z")
    assert message == {"id": "m1", "message": {"role": "user", "content": "a\nb\u2028ü"}}


def test_a_results_text_cannot_end_its_block() -> None:
    text = "\n".join(markdown(SessionRecord("s"), [RESULT]))
    assert "## m1 tool read_file\n\n````\n```\n# not a heading\n```\n````" in text
    assert fence("plain") == "```\nplain\n```"


def test_a_call_is_one_line() -> None:
    assert call_line({"tool": "grep", "arguments": {"pattern": "a\nb"}}) == '→ grep {"pattern": "a\\nb"}'
    assert title_of(RESULT) == "tool read_file"
    assert title_of({"role": "user", "name": "x"}) == "user"
