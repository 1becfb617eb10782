"""What a bundle may say in the `config:` of a file watcher."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from amplifier_core.errors import TriggerConfigError

from .patterns import Patterns

if TYPE_CHECKING:
    from collections.abc import Mapping


def _compilable(lines: list[str]) -> list[str]:
    Patterns(lines)
    return lines


PatternList = Annotated[list[str], AfterValidator(_compilable)]
Milliseconds = Annotated[int, Field(ge=0, le=86_400_000)]


class FileWatcherConfig(BaseModel):
    """Which files are watched, and how long a change must have settled."""

    model_config = ConfigDict(extra="forbid", strict=True)

    path: Annotated[str, Field(min_length=1, description="The folder, relative to the working folder.")] = "."
    patterns: Annotated[PatternList, Field(min_length=1, description="Files that count, as in .gitignore.")] = ["**/*"]
    ignore: Annotated[PatternList, Field(description="Files that do not, besides the usual ones.")] = []
    debounce_ms: Annotated[Milliseconds, Field(description="How long a path must be quiet before it fires.")] = 1000
    max_wait_ms: Annotated[
        Milliseconds | None, Field(description="How long a path that is never quiet waits; default: 10 x debounce_ms.")
    ] = None
    recursive: Annotated[bool, Field(description="Whether folders in the folder are watched too.")] = True

    @model_validator(mode="after")
    def _patient_enough(self) -> FileWatcherConfig:
        if self.max_wait_ms is not None and self.max_wait_ms < self.debounce_ms:
            raise ValueError(f"max_wait_ms must be at least debounce_ms ({self.debounce_ms})")
        return self


def read_config(trigger: str, config: Mapping[str, Any]) -> FileWatcherConfig:
    """Return the checked configuration. Raises `TriggerConfigError` for the first thing that is wrong with it."""
    try:
        return FileWatcherConfig.model_validate(config)
    except ValidationError as error:
        fault = min(error.errors(), key=lambda fault: fault["type"] != "extra_forbidden")
        key = str(fault["loc"][0]) if fault["loc"] else ""
        message = fault["msg"].removeprefix("Value error, ")
        if fault["type"] == "extra_forbidden":
            message = _unknown_key(key)
        raise TriggerConfigError(trigger, key, message) from None


def _unknown_key(key: str) -> str:
    close = get_close_matches(key, FileWatcherConfig.model_fields, n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"known are {', '.join(FileWatcherConfig.model_fields)}"
    return f"unknown key; {hint}"
