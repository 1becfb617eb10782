"""Whatever a program holds, as plain data that JSON can say; what it cannot say is left out or told in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date, time
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Iterable

_AS_TEXT = (PurePath, Decimal, UUID)
_NO_RECORD = (type, BaseException)
"""What has attributes, and is better told by its text."""


def sanitize_for_json(value: Any, max_depth: int = 50) -> Any:
    """Return `value` as JSON data, a copy; never fails.

    Sets become sorted lists, objects the dict of their public attributes or else their text, times ISO 8601. None
    stands for NaN and infinity, for what contains itself and for what is nested deeper than `max_depth`; U+FFFD for a
    surrogate that stands alone.
    """
    return _plain(value, max_depth, ())


def _plain(value: Any, depth: int, above: tuple[int, ...]) -> Any:
    if isinstance(value, Enum):
        return _plain(value.value, depth, above)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _readable(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, _AS_TEXT):
        return _readable(str(value))
    if depth <= 0 or id(value) in above:
        return None
    return _container(value, depth - 1, (*above, id(value)))


def _container(value: Any, depth: int, above: tuple[int, ...]) -> Any:
    if isinstance(value, Mapping):
        return {_readable(_key(key)): _plain(item, depth, above) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, depth, above) for item in value]
    if isinstance(value, set | frozenset):
        return _sorted(_plain(item, depth, above) for item in value)
    record = _record(value)
    return _text(value) if record is None else _container(record, depth, above)


def _key(key: Any) -> str:
    return key if isinstance(key, str) else _text(key.value if isinstance(key, Enum) else key)


def _sorted(items: Iterable[Any]) -> list[Any]:
    listed = list(items)
    try:
        return sorted(listed)
    except TypeError:
        return sorted(listed, key=lambda item: (type(item).__name__, str(item)))


def _record(value: Any) -> dict[str, Any] | None:
    """Return what an object holds, None when it has nothing to show."""
    try:
        if isinstance(value, _NO_RECORD) or callable(value):
            return None
        if is_dataclass(value):
            return _public({field.name: getattr(value, field.name) for field in fields(value)})
        if hasattr(value, "model_dump"):
            return dict(value.model_dump())
        return _public(vars(value)) or None
    except Exception:  # a stranger's attribute may raise anything
        return None


def _public(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if not name.startswith("_")}


def _text(value: Any) -> str:
    try:
        return _readable(str(value))
    except Exception:
        return f"<{type(value).__name__}>"


def _readable(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return str(text)


def sanitize_message(message: Any) -> dict[str, Any]:
    """Return a message as it may be stored for anybody: plain data, a copy.

    Left out are `content_blocks`, the signatures of thinking, which their provider alone can read, and members of the
    message and of its blocks that are None; what a tool was given and what it answered keep theirs. Raises `TypeError`
    for what is no message.
    """
    plain = sanitize_for_json(message)
    if not isinstance(plain, dict):
        raise TypeError(f"a message is a mapping, not a {type(message).__name__}")
    plain.pop("content_blocks", None)
    for key in ("content", "thinking_block"):
        if isinstance(plain.get(key), list | dict):
            plain[key] = _blocks(plain[key])
    return _without_none(plain)


def _blocks(content: list[Any] | dict[str, Any]) -> list[Any] | dict[str, Any]:
    return _block(content) if isinstance(content, dict) else [_block(each) for each in content]


def _block(block: Any) -> Any:
    if not isinstance(block, dict):
        return block
    thinks = block.get("type") == "thinking" or "thinking" in block
    return _without_none({key: value for key, value in block.items() if not (thinks and key == "signature")})


def _without_none(data: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if value is not None}
