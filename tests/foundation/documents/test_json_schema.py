"""Values held to a JSON Schema: whatever a model writes, the check ends."""

from __future__ import annotations

import datetime
import subprocess
import sys
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # it has no types

from amplifier_foundation.documents.json_schema import SchemaUnusable, check_schema, find_problems

TREE = {"type": "object", "properties": {"in": {"$ref": "#"}}}


def test_a_pattern_takes_no_time_that_a_value_can_stretch() -> None:
    check = (
        "from amplifier_foundation.documents.json_schema import find_problems\n"
        "bad = '^([a-z0-9]+)*@x$'\n"
        "said = find_problems({'pattern': bad, 'patternProperties': {bad: False}}, 'a' * 60 + '!', 1)\n"
        "assert said == [f'$: {chr(39)}{chr(97) * 60}!{chr(39)} does not match {bad!r}'], said\n"
        "closed = {'patternProperties': {bad: True}, 'additionalProperties': False}\n"
        "assert len(find_problems(closed, {'a' * 60 + '!': 1, 'a@x': 1}, 9)) == 1\n"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "schema",
    [
        {"pattern": "^[a-z]+$"},
        {"pattern": "b"},
        {"patternProperties": {"^x": {"type": "integer"}}},
        {"patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False},
        {"patternProperties": {"^x": {}}, "properties": {"a": {}}, "additionalProperties": {"type": "string"}},
        {"properties": {"a": {}}, "additionalProperties": False},
        {"items": {"anyOf": [{"pattern": "^a"}, {"type": "integer"}]}},
        TREE,
    ],
)
@pytest.mark.parametrize(
    "value",
    ["abc", "Abc", 3, [], ["a", "b", 1], {}, {"x1": 1}, {"x1": "1", "a": 1}, {"a": 1, "b": 2}, {"in": {"in": 1}}],
)
def test_a_value_fits_as_the_library_says(schema: Any, value: object) -> None:
    check_schema(schema)
    assert bool(find_problems(schema, value, 9)) is not Draft202012Validator(schema).is_valid(value)


@pytest.mark.parametrize(
    ("pattern", "fits", "others"),
    [
        (r"^\w{1,255}$", ["a" * 255, "A_9"], ["a" * 256, "", "é", "a\n"]),
        (r"^[\w .,'-]{1,255}$", ["it's a-b", "."], ["a!", "ü"]),
        (r"^[^\W_]{1,255}$", ["aZ9"], ["a_", "-"]),
        (r"^\d{1,4000}$", ["0123456789" * 400], ["\u0661", "x"]),
        (r"^\D$", ["\u0661", "x"], ["1"]),
        (r"^\s$", [" ", "\ufeff", "\u2028", "\v"], ["\x85", "x"]),
        (r"^\S$", ["\x85", "x"], [" ", "\ufeff"]),
        (r"^[\sx]$", ["\ufeff", "x"], ["\x85"]),
        ("^.$", ["\x85", "x"], ["\n", "\r", "\u2028", "\u2029"]),
        (r"\bab\b", ["é ab", "éab"], ["cab"]),
        ("^[^[]*$", ["abc]"], ["a[b"]),
        ("^[^]]*$", ["abc["], ["a]b"]),
        ("^[[:alpha:]]$", [":]", "[]"], ["b", "b]"]),
        ("^[a&&b]$", ["&", "a"], ["&&"]),
        ("^[a~~^]$", ["~", "^"], ["b"]),
        ("^[+--]$", ["+", ",", "-"], ["."]),
        ("^[--/]$", ["-", ".", "/"], ["0"]),
        ("^[a-c-e]$", ["b", "-", "e"], ["d"]),
        (r"^[a-\d]$", ["a", "-", "5"], ["b"]),
        (r"^[\w-.]$", ["a", "-", "."], ["/"]),
        ("^{.*}$", ["{}", "{a}"], ["a"]),
        ("^a{,3}$", ["", "aaa"], ["aaaa"]),
        ("^a{1}{b}{,}$", ["a{b}{,}"], ["a"]),
        (r"^ab\Z", ["ab"], ["abc", "ab\n"]),
        (r"^\<\é\/\-\0\>$", ["<é/-\0>"], ["é"]),
        (r"^[\b]$", ["\b"], ["b"]),
        (r"^\p{L}(?<name>\u0041)$", ["éA"], ["1A"]),
    ],
)
def test_a_pattern_means_what_ecma_262_says(pattern: str, fits: list[str], others: list[str]) -> None:
    schema = {"pattern": pattern}
    check_schema(schema)
    assert [text for text in (*fits, *others) if not find_problems(schema, text, 1)] == fits


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"patternProperties": True, "pattern": {"type": "string"}}},
        {"properties": {"unevaluatedProperties": {}, "patternProperties": {}}},
        {"default": datetime.date(2026, 1, 2), "examples": [{"pattern": "("}], "const": {"patternProperties": 1}},
        {"x-own": {"pattern": "(", "unevaluatedProperties": 1, "patternProperties": 2}},
    ],
)
def test_a_keyword_counts_in_the_place_of_a_schema_alone(schema: Any) -> None:
    check_schema(schema)


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"$ref": "#"}, "refers to itself without an end"),
        ({"allOf": [{"$ref": "#"}]}, "refers to itself without an end"),
        ({"$ref": "#/nothing"}, "refers to '/nothing', which is not in it; nothing is fetched"),
        (
            {"properties": {"a": {"pattern": "(?=a)b"}}},
            r"has the pattern '\(\?=a\)b', which cannot be used: look-around.*",
        ),
        (
            {"patternProperties": {r"(a)\1": {}}},
            r"has the pattern .* cannot be used: backreferences are not supported.*",
        ),
        ({"patternProperties": {"a": {}}, "unevaluatedProperties": False}, "has 'unevaluatedProperties' beside .*"),
        (
            {"$ref": "#/x-own/a", "unevaluatedProperties": False, "x-own": {"a": {"patternProperties": {"a": {}}}}},
            "has 'unevaluatedProperties' beside .*",
        ),
        ({"$ref": "#/x-own", "x-own": {"properties": 1}}, r"is no JSON Schema: \$\.properties: 1 is not .*"),
        ({"$defs": {"a": {"not": {"pattern": "(?!a)"}}}}, ".* look-around.* do not exist here: say it without"),
        ({"pattern": r"^[\s\S]{1,60000}$"}, ".* exceeds size limit of .* bytes. Say the length with minLength .*"),
        ({"pattern": "a)"}, ".*: unopened group. Write a backslash before a character that stands for itself"),
        ({"type": 12}, r"is no JSON Schema: \$\.type: 12 is not valid.*"),
    ],
)
def test_an_unusable_schema_is_told_before_any_value(schema: Any, told: str) -> None:
    with pytest.raises(SchemaUnusable, match=f"^{told}$"):
        check_schema(schema)


def test_a_value_may_be_too_deep_for_a_schema() -> None:
    check_schema(TREE)
    value: dict[str, Any] = {}
    for _ in range(20_000):
        value = {"in": value}
    assert find_problems(TREE, value, 9) == ["$: it is nested too deeply"]
