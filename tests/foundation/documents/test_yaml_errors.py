"""Syntax errors of YAML in plain words."""

from __future__ import annotations

import pytest

from amplifier_core.errors import BundleLoadError
from amplifier_foundation.documents.files import parse_frontmatter
from amplifier_foundation.documents.yaml_errors import MAX_TEXT


def told(text: str) -> str:
    with pytest.raises(BundleLoadError) as caught:
        parse_frontmatter(f"---\n{text}\n---\n", file="b.md")
    return str(caught.value).removeprefix("b.md:").replace("error[AMP203] ", "")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("patterns: [*.py]", "2:12: '*' and '&' begin an alias or anchor; quote it: patterns: [\"*.py\"]"),
        ("a:\n  - **/*.md # all", "3:5: '*' and '&' begin an alias or anchor; quote it: - \"**/*.md\" # all"),
        ("about: Reviews: all", "2:8: ': ' is not possible here; quote it: about: \"Reviews: all\""),
        ("if: x == \"a\" or b: c", "2:5: ': ' is not possible here; quote it: if: 'x == \"a\" or b: c'"),
        ("about: it's: all", "2:8: ': ' is not possible here; quote it: about: \"it's: all\""),
        ("say: @x", "2:6: text cannot begin with this character; quote it: say: \"@x\""),
        ("say: [a, `b`]", "2:10: text cannot begin with this character; quote it: say: [a, \"`b`\"]"),
        ("a: {user: ^read: x, b: y}", "2:11: ',' or '}' is missing; quote it: a: {user: \"^read: x\", b: y}"),
        ("a: [b", "3:1: ',' or ']' is missing (parsing a flow sequence that begins in line 2)"),
        ("a: \"b", "3:1: the closing quote is missing (scanning a quoted scalar that begins in line 2)"),
        ("a: 1\n b: 2", "3:3: ': ' is not possible here"),
        ("b: 1\na:b\nc: 2", "4:1: ':' is missing after a key (scanning a simple key that begins in line 3)"),
        ("a: - b", "2:4: a list begins on a line of its own"),
        ("a: \"C:\\q\"", "2:7: unknown escape in double quotes; use single quotes"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_in_plain_words_with_the_line_as_it_should_be(text: str, line: str) -> None:
    assert told(text) == line


def test_a_line_with_a_secret_is_not_repeated() -> None:
    assert told("{api_key: hush, say: @x}") == "2:22: text cannot begin with this character; quote it"


def test_a_long_line_or_text_is_not_repeated_or_tried() -> None:
    assert told(f"say: @{'x' * 300}") == "2:6: text cannot begin with this character; quote it"
    assert told(f"say: @x\n# {'x' * MAX_TEXT}") == "2:6: text cannot begin with this character"


def test_repeated_byte_order_marks_are_ignored() -> None:
    assert parse_frontmatter("\ufeff\ufeff---\na: 1\n---\nBody") == ({"a": 1}, "Body")
