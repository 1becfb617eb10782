"""One session as text."""

from __future__ import annotations

import json

import pytest

from amplifier_core import SessionRecord
from amplifier_foundation.sessions.exporting import call_line, fence, json_lines, markdown, title_of

RESULT = {"role": "tool", "name": "read_file", "tool_call_id": "1", "content": "```\n# not a heading\n```"}


def test_every_line_of_json_lines_is_json_whatever_is_said() -> None:
    lines = list(json_lines(SessionRecord("s", config={"k": 1}), [{"role": "user", "content": "a\nb\u2028ü"}]))
    assert all("\n" not in line for line in lines)
    head, message = map(json.loads, lines)
    assert (head["session"]["config"], head["session"]["created"][-1]) == ({"k": 1}, "Z")
    assert message == {"id": "m1", "message": {"role": "user", "content": "a\nb\u2028ü"}}


def test_a_line_without_its_secrets_is_json_also_where_one_begins_with_the_letter_of_an_escape(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOUSE_PASSWORD", "nightfall-of-1900")
    said = [
        "The request cookie:\nsession_id=0123456789abcdef0123456789abcdef",
        "a\nightfall-of-1900, and nightfall-of-1900",
        {"nightfall-of-1900": "Enter your password: "},
    ]
    lines = list(json_lines(SessionRecord("s"), [{"role": "user", "content": each, "metadata": {}} for each in said]))
    assert [json.loads(line)["message"]["content"] for line in lines[1:]] == [
        "The request cookie:\nsession_id=0123456789abcdef0123456789abcdef",
        "a\nightfall-of-1900, and [REDACTED]",
        {"[REDACTED]": "Enter your password: "},
    ]
    assert all(json.loads(line)["message"]["metadata"] == {} for line in lines[1:])


def test_a_results_text_cannot_end_its_block() -> None:
    text = "\n".join(markdown(SessionRecord("s"), [RESULT]))
    assert "## m1 tool read_file\n\n````\n```\n# not a heading\n```\n````" in text
    assert fence("plain") == "```\nplain\n```"


def test_a_call_is_one_line() -> None:
    assert call_line({"tool": "grep", "arguments": {"pattern": "a\nb"}}) == '→ grep {"pattern": "a\\nb"}'
    assert title_of(RESULT) == "tool read_file"
    assert title_of({"role": "user", "name": "x"}) == "user"
