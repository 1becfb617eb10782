"""The module's configuration: every mistake is a `ValueError` that names its key."""

from __future__ import annotations

import math
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

_KEYS = ("working_dir", "allow_write", "max_bytes", "grep_timeout")


@dataclass(frozen=True, slots=True)
class Settings:
    """What the tools may do, and where."""

    working_dir: Path
    allow_write: bool
    max_bytes: int
    """Bytes of a file that one read_file returns."""
    grep_timeout: float
    """Seconds after which a search is given up."""


def read_config(config: dict[str, Any], session_folder: str | None) -> Settings:
    """Return the settings; the session's own working folder counts before the configured one and the current one."""
    for key in config:
        if key not in _KEYS:
            close = get_close_matches(str(key), _KEYS, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"there are: {', '.join(_KEYS)}"
            _fail(str(key), f"unknown key; {hint}")
    return Settings(
        working_dir=_folder(session_folder or config.get("working_dir", ".")),
        allow_write=_flag("allow_write", config.get("allow_write", True)),
        max_bytes=math.ceil(_positive("max_bytes", config.get("max_bytes", 256 * 1024))),
        grep_timeout=_positive("grep_timeout", config.get("grep_timeout", 30)),
    )


def _folder(value: Any) -> Path:
    if not isinstance(value, (str, Path)):
        _fail("working_dir", "must be the path of a folder")
    path = Path(value).expanduser()
    if not path.is_dir():
        _fail("working_dir", f"{path} is not a folder; create it or name another one")
    return path


def _flag(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        _fail(key, "must be true or false")
    return value


def _positive(key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        _fail(key, "must be a number above 0")
    return value


def _fail(key: str, message: str) -> NoReturn:
    raise ValueError(f"tool-filesystem: {key}: {message}")
