"""Whatever a program holds, as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from amplifier_core.message_models import Message, ThinkingBlock
from amplifier_foundation.sessions.serialising import sanitize_for_json, sanitize_message


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


@dataclass(slots=True)
class Point:
    x: int
    _private: int = 0


class Plain:
    def __init__(self) -> None:
        self.shown = {1, 2}
        self._hidden = "x"


class Bare:
    __slots__ = ()

    def __str__(self) -> str:
        return "bare"


class Hostile:
    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        raise RuntimeError("no")

    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (None, None),
        (True, True),
        (1.5, 1.5),
        (float("nan"), None),
        (float("-inf"), None),
        ((1, "a"), [1, "a"]),
        ({3, 1, 20}, [1, 3, 20]),
        (frozenset({"b", 1, "a"}), [1, "a", "b"]),
        (b"a\xff", "a\ufffd"),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        (Decimal("1.10"), "1.10"),
        (Path("/a/b"), "/a/b"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (date(2026, 1, 2), "2026-01-02"),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
        (MappingProxyType({"a": 1}), {"a": 1}),
        (Point(1), {"x": 1}),
        (Plain(), {"shown": [1, 2]}),
        (Bare(), "bare"),
        (object(), None),
        (Hostile(), "<Hostile>"),
        (ValueError("told"), "told"),
        ({1: "a", Colour.RED: "b", None: "c"}, {"1": "a", "red": "b", "None": "c"}),
        ("a\ud800b", "a\ufffdb"),
        ("\ud83d\ude00", "\U0001f600"),
        ({"\udc00": "\udc00"}, {"\ufffd": "\ufffd"}),
    ],
)
def test_what_is_no_json_becomes_json(value: Any, plain: Any) -> None:
    assert sanitize_for_json(value) == plain
    kept = value is None or plain is not None
    assert sanitize_for_json([{"in": value}, (value, 1)]) == ([{"in": plain}, [plain, 1]] if kept else [{}, [1]])
    json.dumps(sanitize_for_json(value), allow_nan=False, ensure_ascii=False).encode()


def test_classes_and_functions_are_told_by_their_text() -> None:
    assert sanitize_for_json(Point) == str(Point)
    assert sanitize_for_json(len) == "<built-in function len>"


def test_a_circle_is_cut_and_what_is_only_shared_is_not() -> None:
    shared = [1]
    circle: dict[str, Any] = {"a": shared, "b": shared}
    circle["me"] = [circle]
    assert sanitize_for_json(circle) == {"a": [1], "b": [1], "me": []}
    first, second = Plain(), Plain()
    first.other, second.other = second, first  # type: ignore[attr-defined]
    assert sanitize_for_json(first)["other"] == {"shown": [1, 2]}


def test_what_is_nested_too_deep_is_cut() -> None:
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]
    assert json.dumps(sanitize_for_json(deep)).count("[") == 50
    assert sanitize_for_json({"a": {"b": {"c": 1}}}, 2) == {"a": {}}
    assert sanitize_for_json({"a": {"b": 1}}, max_depth=2) == {"a": {"b": 1}}
    assert sanitize_for_json([1], max_depth=0) is None


def test_the_original_is_left_as_it_was() -> None:
    original = {"a": {1, 2}, "b": [float("nan")]}
    plain = sanitize_for_json(original)
    plain["b"].append(1)
    assert original["a"] == {1, 2}
    assert len(original["b"]) == 1


def test_a_stored_message_has_no_signatures_no_nones_and_no_content_blocks() -> None:
    message = {
        "role": "assistant",
        "name": None,
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "sig", "visibility": None},
            {"type": "text", "text": "hello", "signature": "the author's"},
            "plain",
        ],
        "thinking_block": {"type": "thinking", "thinking": "hm", "signature": "sig", "content": None},
        "content_blocks": [object()],
        "tool_calls": [{"id": "1", "tool": "x", "arguments": {"limit": None, "signature": "kept"}}],
        "metadata": {"seen": {2, 1}},
    }
    assert sanitize_message(message) == {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm"},
            {"type": "text", "text": "hello", "signature": "the author's"},
            "plain",
        ],
        "thinking_text": "hm",
        "tool_calls": [{"id": "1", "tool": "x", "arguments": {"limit": None, "signature": "kept"}}],
        "metadata": {"seen": [1, 2]},
    }
    assert message["name"] is None
    assert "content_blocks" in message


def test_the_kernels_own_messages_are_taken() -> None:
    message = Message(role="assistant", content=[ThinkingBlock(thinking="hm", signature="sig")])
    plain = sanitize_message(message)
    assert plain["role"] == "assistant"
    assert "signature" not in plain["content"][0]
    assert plain["content"][0]["thinking"] == "hm"


@pytest.mark.parametrize("block", [{"type": "thinking", "text": "hm"}, SimpleNamespace(text="hm", signature="s")])
def test_the_text_of_thinking_is_taken_out_of_its_block(block: Any) -> None:
    message = {"role": "assistant", "content": "hello", "thinking_block": block}
    assert sanitize_message(message) == {"role": "assistant", "content": "hello", "thinking_text": "hm"}
    assert sanitize_message({"role": "assistant", "thinking_block": {"type": "thinking"}}) == {"role": "assistant"}


@pytest.mark.parametrize("message", ["text", None, [1]])
def test_a_message_that_is_no_mapping_stays_as_it_is(message: Any) -> None:
    assert sanitize_message(message) == message
