"""Copy the data of an event as JSON values: bounded in size and depth, and without secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any

from amplifier_core.utils import redact_secrets

from .redaction import redact_text

MOST = 64 * 1024
"""Characters of one event's copy."""
_BEYOND = 8 * 1024
"""Characters to search for secrets beyond a cut: half a secret does not look like one."""
LONGEST_NAME = 200
"""Characters of a key."""
LONGEST_TEXT_OF_OBJECT = 1000
DEEPEST = 30


def plain_copy(data: Mapping[Any, Any]) -> tuple[dict[str, Any], bool]:
    """Return a copy of `data`, and whether its size made it incomplete."""
    copying = _Copier()
    copy: dict[str, Any] = redact_secrets(copying.mapping(data, 0))
    return copy, copying.room < 0


class _Copier:
    """Makes one copy; `room` is left for it, in characters."""

    def __init__(self) -> None:
        self.room = MOST

    def copy(self, value: Any, depth: int) -> Any:
        self.room -= 1
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, int) and value.bit_length() <= 64:
            return int(value)
        if isinstance(value, float) and isfinite(value):
            return float(value)
        if depth < DEEPEST:
            if isinstance(value, (list, tuple, set, frozenset)):
                return self._items(value, depth)
            members = self._members(value)
            if members is not None:
                return self.mapping(members, depth)
        return self._text(_as_text(value), LONGEST_TEXT_OF_OBJECT)

    def _items(self, values: Any, depth: int) -> list[Any]:
        items: list[Any] = []
        for value in values:
            if self._is_full():
                break
            items.append(self.copy(value, depth + 1))
        return items

    def mapping(self, members: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        named: dict[str, Any] = {}
        for key, value in members.items():
            if self._is_full():
                break
            name = self._text(key if isinstance(key, str) else _as_text(key), LONGEST_NAME)
            named[name] = self.copy(value, depth + 1)
        return named

    @staticmethod
    def _members(value: Any) -> Mapping[Any, Any] | None:
        """Return the members of a mapping, a pydantic model or a dataclass by name; None for anything else."""
        if isinstance(value, Mapping):
            return value
        try:
            if not isinstance(value, type) and callable(getattr(value, "model_dump", None)):
                members = value.model_dump(warnings=False)
                return members if isinstance(members, Mapping) else None
            if is_dataclass(value) and not isinstance(value, type):
                return {field.name: getattr(value, field.name) for field in fields(value)}
        except Exception:  # an object that fails to list its members is shown as text
            return None
        return None

    def _is_full(self) -> bool:
        """Return whether there is no room for one more member; the copy is incomplete then."""
        if self.room > 0:
            return False
        self.room = -1
        return True

    def _text(self, text: str, longest: int = MOST) -> str:
        room = min(max(self.room, 0), longest)
        self.room -= min(len(text), longest + 1)
        return redact_text(str(text[: room + _BEYOND]))[:room] if room else ""


def _as_text(value: Any) -> str:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"<{len(value)} bytes>"
    if isinstance(value, (Mapping, list, tuple, set, frozenset)):
        return f"<{type(value).__name__}>"
    try:
        return str(value)
    except Exception as error:  # the event is logged in any case
        return f"<{type(value).__name__}: {type(error).__name__}>"
