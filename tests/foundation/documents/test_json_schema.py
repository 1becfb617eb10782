"""Values held to a JSON Schema: whatever a model writes, the check ends."""

from __future__ import annotations

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
