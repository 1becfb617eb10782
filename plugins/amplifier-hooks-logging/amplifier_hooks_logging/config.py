"""Read the `config:` of the module in a bundle."""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from .selection import Selection

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "hooks-logging"
DEFAULT_PATH = "{home}/projects/{project}/sessions/{session_id}/events.jsonl"
PLACEHOLDERS = ("home", "project", "session_id")
_WITHOUT_EFFECT = ("mode", "auto_discover")
"""Keys for another event log: there they choose the only way of this one."""


class LogConfig(BaseModel):
    """The file of a log, and the events in it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    path: Annotated[
        str,
        BeforeValidator(lambda value: os.fspath(value) if isinstance(value, os.PathLike) else value),
        Field(description="The file; {home}, {project} and {session_id} are filled in."),
    ] = DEFAULT_PATH
    max_bytes: Annotated[
        int, Field(ge=1, description="Bytes of one file; a line that would exceed them begins a new file.")
    ] = 10 * 1024 * 1024
    keep: Annotated[int, Field(ge=0, description="How many full files to keep.")] = 3
    raw: Annotated[bool, Field(description="Whether to log whole requests and responses.")] = False
    events: Annotated[list[str], Field(strict=False, description="Names, prefixes ('tool:*') or '*'.")] = ["*"]
    additional_events: Annotated[list[str], Field(strict=False, description="More names for `events`.")] = []
    exclude: Annotated[list[str], Field(strict=False, description="Names and prefixes not to log.")] = []

    @field_validator("path")
    @classmethod
    def _check_path(cls, path: str) -> str:
        if not path or "\0" in path:
            raise ValueError("must be the path of a file")
        for name in re.findall(r"\{([^{}]*)\}", path):
            if name not in PLACEHOLDERS:
                raise ValueError(f"unknown placeholder '{{{name}}}'; known are {', '.join(PLACEHOLDERS)}")
        return path

    @field_validator("events", "additional_events", "exclude")
    @classmethod
    def _check_patterns(cls, patterns: list[str]) -> list[str]:
        for pattern in patterns:
            if not pattern or "*" in pattern[:-1]:
                raise ValueError(
                    f"{pattern!r} is not an event name; only its last character may be a *, as in 'tool:*'"
                )
        return patterns

    @property
    def selection(self) -> Selection:
        """The events to log."""
        return Selection((*self.events, *self.additional_events), tuple(self.exclude))


def read_config(config: Mapping[str, Any]) -> LogConfig:
    """Return the checked configuration. Raises `ValueError` with the key.

    Bundles for another event log work: `session_log_template` is `path`.
    """
    own = {key: value for key, value in config.items() if key not in _WITHOUT_EFFECT}
    if "session_log_template" in own:
        own.setdefault("path", own.pop("session_log_template"))
    try:
        return LogConfig.model_validate(own)
    except ValidationError as error:
        problem = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")  # unknown keys come first
        key, message = str(problem["loc"][0]), problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            known = list(LogConfig.model_fields)
            close = get_close_matches(key, known, n=1)
            message = "unknown key; " + (f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}")
        raise ValueError(f"{NAME}: {key}: {message}") from None
