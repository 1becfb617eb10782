"""Turn any object of a program into plain data for JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date, time
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

_AS_TEXT = (PurePath, Decimal, UUID)
_NO_RECORD = (type, BaseException)
"""Kinds of objects whose attributes say less than their text."""
_NOTHING: Any = object()
"""Stands for a value without a form in JSON, until the mapping or list around it leaves it out."""


def sanitize_for_json(value: Any, max_depth: int = 50) -> Any:
    """Return `value` as JSON data, a copy; never fails.

    Sets become sorted lists, times ISO 8601, and objects the dict of their public attributes or else their own text. A
    mapping or list leaves out values without a form in JSON: NaN and infinity, an object within itself, an object with
    neither attributes nor a text of its own, and anything nested deeper than `max_depth`. Such a value alone is None. A
    lone surrogate becomes U+FFFD.
    """
    plain = _sanitize(value, max_depth, ())
    return None if plain is _NOTHING else plain


def _sanitize(value: Any, depth: int, above: tuple[int, ...]) -> Any:
    if isinstance(value, Enum):
        return _sanitize(value.value, depth, above)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _repair_text(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else _NOTHING
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, _AS_TEXT):
        return _repair_text(str(value))
    if depth <= 0 or id(value) in above:
        return _NOTHING
    return _sanitize_container(value, depth - 1, (*above, id(value)))


def _sanitize_container(value: Any, depth: int, above: tuple[int, ...]) -> Any:
    if isinstance(value, Mapping):
        items = (
            (key.value if isinstance(key, Enum) else key, _sanitize(item, depth, above)) for key, item in value.items()
        )
        named = ((_describe(key), item) for key, item in items)
        return {name: item for name, item in named if _NOTHING not in (name, item)}
    if isinstance(value, list | tuple | set | frozenset):
        listed = [item for item in (_sanitize(each, depth, above) for each in value) if item is not _NOTHING]
        if isinstance(value, list | tuple):
            return listed
        try:
            return sorted(listed)
        except TypeError:
            return sorted(listed, key=lambda item: (type(item).__name__, str(item)))
    record = _read_attributes(value)
    return _describe(value) if record is None else _sanitize_container(record, depth, above)


def _read_attributes(value: Any) -> dict[str, Any] | None:
    """Return the public attributes of an object, None when it has none to show."""
    try:
        if isinstance(value, _NO_RECORD) or callable(value):
            return None
        if hasattr(value, "model_dump") and not is_dataclass(value):
            return dict(value.model_dump())
        own = {each.name: getattr(value, each.name) for each in fields(value)} if is_dataclass(value) else vars(value)
        public = {name: item for name, item in own.items() if not name.startswith("_")}
        return public if public or is_dataclass(value) else None
    except Exception:  # a stranger's attribute may raise anything
        return None


def _describe(value: Any) -> Any:
    """Return the text of an object, unless it is Python's own with the address in memory."""
    kind: Any = type(value)
    if kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__:
        return _NOTHING
    try:
        return _repair_text(str(value))
    except Exception:
        return f"<{kind.__name__}>"


def _repair_text(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return str(text)


def sanitize_message(message: Any) -> Any:
    """Return a message as plain data for any program, a copy; a value other than a mapping is only made plain.

    `thinking_text` replaces a `thinking_block` with its text. Left out are `content_blocks`, the signatures of thinking
    (only their provider reads them), and members of the message and of its blocks with the value None. The arguments
    and the results of tools keep theirs.
    """
    plain = sanitize_for_json(message)
    if not isinstance(plain, dict):
        return plain
    plain.pop("content_blocks", None)
    thinking = plain.pop("thinking_block", None)
    if isinstance(thinking, dict):
        plain["thinking_text"] = thinking.get("text") or thinking.get("thinking")
    content = plain.get("content")
    if isinstance(content, list | dict):
        plain["content"] = (
            _clean_block(content) if isinstance(content, dict) else [_clean_block(each) for each in content]
        )
    return {key: value for key, value in plain.items() if value is not None}


def _clean_block(block: Any) -> Any:
    if not isinstance(block, dict):
        return block
    thinks = block.get("type") == "thinking" or "thinking" in block
    return {key: value for key, value in block.items() if value is not None and not (thinks and key == "signature")}
