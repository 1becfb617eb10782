"""The module's configuration: every mistake is a `ValueError` that names its key."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_BYTES = 65_536

_KEYS = ("allow", "max_bytes")


@dataclass(frozen=True, slots=True)
class Settings:
    """Which events may be emitted."""

    allow: tuple[str, ...] | None = None
    """Beginnings of the names that may be; None: every name that is not reserved."""
    max_bytes: int = MAX_BYTES
    """Bytes of an event's data, as JSON."""

    def allows(self, name: str) -> bool:
        """Return whether the name has one of the beginnings."""
        return self.allow is None or name.startswith(self.allow)


def read_config(config: Mapping[str, Any]) -> Settings:
    """Return the settings; a `*` at the end of a beginning says nothing more."""
    for key in config:
        if key not in _KEYS:
            close = get_close_matches(str(key), _KEYS, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"there are: {', '.join(_KEYS)}"
            _fail(str(key), f"unknown key; {hint}")
    return Settings(_prefixes(config.get("allow")), _bytes(config.get("max_bytes", MAX_BYTES)))


def _prefixes(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(prefix, str) and prefix.rstrip("*") for prefix in value):
        _fail("allow", "must be a list of beginnings of names, such as [work:]")
    return tuple(prefix.removesuffix("*") for prefix in value)


def _bytes(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 2:
        _fail("max_bytes", "must be a whole number from 2 on")
    return value


def _fail(key: str, message: str) -> NoReturn:
    raise ValueError(f"tool-emit: {key}: {message}")
