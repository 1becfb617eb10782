"""Values in mappings within mappings."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_foundation.documents.dicts import flatten, get_nested, keys_of, set_nested

DATA = {"a": {"b": {"c": 1}, "n": None, "list": [{"x": 1}]}, "dotted.key": {"d": 2}}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("a.b.c", 1),
        (["a", "b", "c"], 1),
        (("a", "b"), {"c": 1}),
        (["dotted.key", "d"], 2),
        ("a.n", None),
        ("a.missing", "default"),
        ("a.b.c.d", "default"),
        ("a.n.d", "default"),
        ("a.list.0", "default"),
        ("dotted.key.d", "default"),
    ],
)
def test_a_value_is_found_by_its_keys_or_is_the_default(path: Any, value: Any) -> None:
    assert get_nested(DATA, path, "default") == value


def test_without_a_default_nothing_is_none() -> None:
    assert get_nested({}, "a.b") is None


def test_a_value_is_set_and_what_is_missing_on_the_way_is_made() -> None:
    data: dict[str, Any] = {"kept": 1, "null": None}
    set_nested(data, "a.b.c", 1)
    set_nested(data, ["a", "b", "d.e"], 2)
    set_nested(data, "null.x", 3)
    set_nested(data, "kept", 4)
    assert data == {"kept": 4, "null": {"x": 3}, "a": {"b": {"c": 1, "d.e": 2}}}


def test_what_is_in_the_way_is_not_overwritten() -> None:
    data: dict[str, Any] = {"a": {"b": "text"}}
    with pytest.raises(TypeError, match=r"^a\.b is a str: nothing can be put below it$"):
        set_nested(data, "a.b.c.d", 1)
    assert data == {"a": {"b": "text"}}


@pytest.mark.parametrize("path", ["", ".", "a..b", "a.", ["a", ""]])
def test_what_is_no_path_is_refused(path: Any) -> None:
    with pytest.raises(ValueError, match="is not a path; write keys separated by dots"):
        get_nested(DATA, path)
    with pytest.raises(ValueError, match="is not a path"):
        set_nested({}, path, 1)


def test_a_mapping_is_flattened_in_its_order() -> None:
    assert list(flatten({"b": {"c": {"d": 1}, "e": []}, "a": {}, "f": {"g": None}})) == [
        (("b", "c", "d"), 1),
        (("b", "e"), []),
        (("a",), {}),
        (("f", "g"), None),
    ]
    assert keys_of("b.c.d") == ("b", "c", "d")


def test_no_keys_at_all_lead_to_the_data_itself() -> None:
    assert get_nested(DATA, []) is DATA
    assert get_nested(DATA, ()) is DATA
    with pytest.raises(ValueError, match="is not a path"):
        set_nested({}, [], 1)
