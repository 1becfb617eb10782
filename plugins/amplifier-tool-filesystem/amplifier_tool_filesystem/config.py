"""The module's configuration: every mistake is a `ValueError` that names its key."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

KIBIBYTE = 1024


@dataclass(frozen=True, slots=True)
class Settings:
    """What the tools may do, and where."""

    working_dir: Path
    allow_write: bool = True
    max_bytes: int = 256 * KIBIBYTE
    """Bytes of a file that one read_file returns."""
    grep_timeout: float = 30.0
    """Seconds after which a search is given up."""


def read_config(config: dict[str, Any], session_folder: str | None) -> Settings:
    """Return the settings; the session's own working folder counts before the configured one and the current one."""
    known = Settings.__slots__
    for key in config:
        if key not in known:
            close = get_close_matches(str(key), known, n=1)
            _fail(str(key), f"unknown key; did you mean '{close[0]}'?" if close else f"there are: {', '.join(known)}")
    return Settings(
        _folder(session_folder or config.get("working_dir") or "."),
        _flag("allow_write", config.get("allow_write", True)),
        int(_number("max_bytes", config.get("max_bytes", Settings.max_bytes_default()))),
        _number("grep_timeout", config.get("grep_timeout", 30.0)),
    )
