"""Test the descriptions of tools for the model, and the warnings of wrong ones."""

from __future__ import annotations

import inspect
import json
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

import pytest
from pydantic import BaseModel, Field

SCHEMA = {"type": "object"}


class Plain:
    """A tool with properties for its description, as a new plugin has them."""

    name = "broken"

    def __init__(self, schema: Any = SCHEMA, description: Any = "d") -> None:
        self.schema, self.text = schema, description

    @property
    def input_schema(self) -> Any:
        return self.schema

    @property
    def description(self) -> Any:
        return self.text

    async def execute(self, input: dict[str, Any]) -> Any:
        raise AssertionError("it is not offered")


class Raising(Plain):
    """A tool with a failing property."""

    @property
    def input_schema(self) -> Any:
        raise RuntimeError("no schema today")


def _place(function: Any, line: int = 0) -> str:
    return f"({__file__}:{inspect.getsourcelines(function)[1] + line})"


AT_SCHEMA = _place(Plain.input_schema.fget)
OBJECT = object()
KNOT: dict[str, Any] = {}
KNOT["properties"] = KNOT
DEEP: dict[str, Any] = {}
for _ in range(100_000):
    DEEP = {"items": DEEP}


@pytest.mark.parametrize(
    ("tool", "problem"),
    [
        (Plain("abc"), f"its input_schema must be a mapping, a JSON Schema, not str {AT_SCHEMA}"),
        (Plain([]), f"its input_schema must be a mapping, a JSON Schema, not list {AT_SCHEMA}"),
        (Plain({1: "x"}), f"its input_schema must have texts as keys, not 1 {AT_SCHEMA}"),
        (Plain({"type": {1, 2}}), f"its input_schema.type: set is not JSON {AT_SCHEMA}"),
        (
            Plain({"properties": {"n": {"default": OBJECT}}}),
            f"its input_schema.properties.n.default: object is not JSON {AT_SCHEMA}",
        ),
        (
            Plain({"default": float("nan"), "examples": (MappingProxyType({"at": PurePosixPath("x")}),)}),
            f"its input_schema.examples[0].at: PurePosixPath is not JSON {AT_SCHEMA}",
        ),
        (
            Plain({"examples": {(1, 2): "x"}}),
            f"its input_schema.examples: a key that is a tuple is not JSON {AT_SCHEMA}",
        ),
        (Plain(DEEP), f"its input_schema: nested too deeply {AT_SCHEMA}"),
        (Plain(KNOT), f"its input_schema.properties.properties: contains itself {AT_SCHEMA}"),
        (Plain(description=7), f"its description must be a text, not int {_place(Plain.description.fget)}"),
        (Raising(), f"RuntimeError: no schema today {_place(Raising.input_schema.fget, 2)}"),
    ],
    ids=[
        "text",
        "list",
        "number as a key",
        "set",
        "object",
        "path",
        "tuple as a key",
        "depth",
        "knot",
        "description",
        "raising",
    ],
)
async def test_a_tool_that_cannot_be_described_is_left_out_and_told_once(
    room: Any, tool: Any, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    room.tool("read")
    room.tools["broken"] = tool
    assert [await room.run("go", "one"), await room.run("on", "two")] == ["one", "two"]
    assert [[spec.name for spec in request.tools] for request in room.model.requests] == [["read"], ["read"]]
    assert caplog.messages == [f"tool 'broken' is not offered to the model: {problem}"]


async def test_a_schema_with_nan_infinity_or_other_mappings_is_offered_as_json(room: Any) -> None:
    class Size(BaseModel):
        most: float = Field(float("inf"))

    schema = {**Size.model_json_schema(), "examples": [MappingProxyType({"most": float("nan")})], "required": ()}
    room.tools["broken"] = Plain(schema)
    await room.run("go", "one")
    parameters = json.loads(json.dumps(room.model.requests[0].tools[0].parameters, allow_nan=False))
    assert parameters["properties"]["most"] == {"default": None, "title": "Most", "type": "number"}
    assert (parameters["examples"], parameters["required"]) == ([{"most": None}], [])


async def test_an_infinite_bound_is_left_out_and_an_infinite_value_is_told(
    room: Any, caplog: pytest.LogCaptureFixture
) -> None:
    inf = float("inf")
    number = {"type": "number", "minimum": -inf, "maximum": inf, "default": inf, "multipleOf": 1}
    room.tools["good"] = Plain({"type": "object", "properties": {"n": number, "default": {"maximum": inf}}})
    room.tools["bad"] = Plain({"properties": {"n": {"enum": [1, inf]}}})
    room.tools["worse"] = Plain({"properties": {"n": {"const": inf}}})
    await room.run("go", "one")
    [spec] = room.model.requests[0].tools
    kept = {"type": "number", "default": None, "multipleOf": 1}
    assert spec.parameters == {"type": "object", "properties": {"n": kept, "default": {}}}
    for name, place in (("bad", "enum[1]"), ("worse", "const")):
        told = f"tool '{name}' is not offered to the model: its input_schema.properties.n.{place}: inf is not JSON"
        assert any(each.startswith(told) for each in caplog.messages)


async def test_a_tool_is_offered_as_soon_as_its_description_is_right(room: Any) -> None:
    room.tools["broken"] = tool = Plain("abc")
    await room.run("go", "one")
    tool.schema = {"type": "object", "title": "Mended"}
    await room.run("on", "two")
    first, second = room.model.requests
    assert first.tools is None
    assert second.tools[0].parameters == {"type": "object", "title": "Mended"}
