"""Change one value of a YAML text, and keep every other character, comments included."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from ..documents.dicts import get_nested
from ..documents.files import to_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..documents.dicts import Keys


def with_value(text: str, after: Mapping[str, Any], path: Keys) -> str | None:
    """Return `text` with the value of `path` in `after`; None when an edit in place is impossible."""
    node, depth = _find_deepest(_compose(text), path)
    value = get_nested(after, path)
    if node is None:
        return _insert_lines(text, len(text), 0, nest(path, value))
    if depth < len(path) and _is_block_mapping(node):
        lines = nest(path[depth:], value)
        return _insert_lines(text, _end_of_lines(text, node), node.value[0][0].start_mark.column, lines)
    replaced = _replace(text, node, get_nested(after, path[:depth]))
    if replaced or depth < len(path):
        return replaced
    entry = _find_entry(text, path)  # its value has several lines; a comment in them would be lost
    if entry is None or "#" in text[entry.begin : entry.end]:
        return None
    return _insert_lines(text[: entry.begin] + text[entry.end :], entry.begin, entry.indent, {path[-1]: value})


def without(text: str, after: Mapping[str, Any], path: Keys) -> str | None:
    """Return `text` without the key at `path`, as in `after`; None when an edit in place is impossible."""
    entry = _find_entry(text, path)
    if entry is not None:
        return text[: entry.begin] + text[entry.end :]
    node, depth = _find_deepest(_compose(text), path[:-1])
    return _replace(text, node, get_nested(after, path[:depth]))


class _Entry(NamedTuple):
    """The lines of a key and its value: from the beginning of the first to the beginning of the next."""

    begin: int
    end: int
    indent: int


def _find_entry(text: str, path: Keys) -> _Entry | None:
    """Return the lines of the existing value at `path`; None when they contain other values."""
    holder, _ = _find_deepest(_compose(text), path[:-1])
    if not _is_block_mapping(holder):
        return None
    key, value = next((key, value) for key, value in holder.value if key.value == path[-1])
    begin = text.rfind("\n", 0, key.start_mark.index) + 1
    if text[begin : key.start_mark.index].strip():
        return None
    return _Entry(begin, _end_of_lines(text, value), key.start_mark.column)


def flow(value: Any) -> str:
    """Return a value as YAML on one line."""
    written = to_yaml({"x": value}) if isinstance(value, str) and value.isprintable() else ""
    plain = written.removeprefix("x: ").removesuffix("\n")
    if plain and "\n" not in plain and not set(plain) & set("{}[],"):
        return plain
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow(key)}: {flow(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def nest(path: Keys, value: Any) -> dict[str, Any]:
    """Return `value` in nested mappings with the keys of `path`."""
    for key in reversed(path):
        value = {key: value}
    nested: dict[str, Any] = value
    return nested


def _compose(text: str) -> Any:
    import yaml

    return yaml.compose(text, Loader=yaml.SafeLoader)  # the Python loader: its marks count the characters of `text`


def _find_deepest(root: Any, path: Keys) -> tuple[Any, int]:
    """Return the last existing node along `path`, and its number of keys."""
    node, depth = root, 0
    while depth < len(path) and node is not None and node.id == "mapping":
        below = next((value for key, value in node.value if key.value == path[depth]), None)
        if below is None:
            break
        node, depth = below, depth + 1
    return node, depth


def _is_block_mapping(node: Any) -> bool:
    return node.id == "mapping" and not node.flow_style and bool(node.value)


def _replace(text: str, node: Any, value: Any) -> str | None:
    begin, end = node.start_mark, node.end_mark
    if begin.line != end.line or _is_block_mapping(node):
        return None
    space = " " if begin.index == end.index and text[begin.index - 1 : begin.index] == ":" else ""
    return text[: begin.index] + space + flow(value) + text[end.index :]


def _end_of_lines(text: str, node: Any) -> int:
    """Return the beginning of the line after a node; comments below are not the node's."""
    while node.id != "scalar" and not node.flow_style and node.value:
        last = node.value[-1]
        node = last[1] if node.id == "mapping" else last
    end: int = node.end_mark.index
    if end and text[end - 1] == "\n":
        return end
    newline = text.find("\n", end)
    return len(text) if newline < 0 else newline + 1


def _insert_lines(text: str, index: int, indent: int, data: Mapping[str, Any]) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    before = text[:index]
    if before and not before.endswith("\n"):
        before += newline
    lines = [" " * indent + line if line else line for line in to_yaml(data).splitlines()]
    return before + newline.join([*lines, ""]) + text[index:]
