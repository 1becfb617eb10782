"""The module's configuration: every mistake is a `ValueError` that names its key."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NoReturn

from .selection import Selection

DEFAULT_PATH = "{home}/projects/{project}/sessions/{session_id}/events.jsonl"
PLACEHOLDERS = ("home", "project", "session_id")

_KEYS = ("path", "max_bytes", "keep", "raw", "events", "exclude")
_WITHOUT_EFFECT = ("mode", "auto_discover")
"""Keys of bundles that were written for another event log: what they choose is the only way here."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What is logged, and where."""

    path: str
    """With `PLACEHOLDERS` in braces."""
    max_bytes: int
    """Bytes of one file, unless a single line has more."""
    keep: int
    """Full files that are kept beside the one that is written."""
    raw: bool
    """Whether whole requests and responses are logged."""
    selection: Selection


def read_config(config: dict[str, Any]) -> Settings:
    """Return the settings that `config` stands for; the keys that bundles of the field use are understood."""
    config = _in_own_words(config)
    for key in config:
        if key not in _KEYS:
            close = get_close_matches(str(key), _KEYS, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"there are: {', '.join(_KEYS)}"
            _fail(str(key), f"unknown key; {hint}")
    return Settings(
        path=_path(config.get("path", DEFAULT_PATH)),
        max_bytes=_whole("max_bytes", config.get("max_bytes", 10 * 1024 * 1024), least=1),
        keep=_whole("keep", config.get("keep", 3), least=0),
        raw=_flag("raw", config.get("raw", False)),
        selection=Selection(
            _patterns("events", config.get("events", ["*"])), _patterns("exclude", config.get("exclude", []))
        ),
    )


def _in_own_words(config: dict[str, Any]) -> dict[str, Any]:
    own = {key: value for key, value in config.items() if key not in _WITHOUT_EFFECT}
    if "session_log_template" in own:
        own.setdefault("path", own.pop("session_log_template"))
    if "additional_events" in own:
        added = _patterns("additional_events", own.pop("additional_events"))
        own["events"] = [*own.get("events", ["*"]), *added]
    return own


def _path(value: Any) -> str:
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(path, str) or not path or "\0" in path:
        _fail("path", "must be the path of a file")
    for name in re.findall(r"\{([^{}]*)\}", path):
        if name not in PLACEHOLDERS:
            _fail("path", f"unknown placeholder '{{{name}}}'; there are: {', '.join(PLACEHOLDERS)}")
    return path


def _whole(key: str, value: Any, *, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        _fail(key, f"must be a whole number from {least} on, not {value!r}")
    return value


def _flag(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        _fail(key, "must be true or false")
    return value


def _patterns(key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)):
        _fail(key, "must be a list of event names; 'tool:*' stands for all that begin so")
    for entry in value:
        if not isinstance(entry, str) or not entry or "*" in entry[:-1]:
            _fail(key, f"{entry!r} is no event name; a * may only end one, as in 'tool:*'")
    return tuple(value)


def _fail(key: str, message: str) -> NoReturn:
    raise ValueError(f"hooks-logging: {key}: {message}")
