"""Define the `config:` of a file watcher in a bundle."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from .patterns import translate

_CLASS = re.compile(r"(?<!\\)\[[^]]*\]")
_BACKSLASH = re.compile(r"(?<!\\)(?:\\\\)*(?:\\[^\W_]|(?<=\w)\\[*?])")
"""One before a letter or a digit, which needs none, or between a name and `*`: Windows parts folders by it."""


def _check_patterns(lines: list[str]) -> list[str]:
    for line in lines:
        translate(line)
        if _BACKSLASH.search(_CLASS.sub("", line)):
            raise ValueError(f"{line!r} has a backslash between folders; write / there, and [*] for a * in a name")
    return lines


PatternList = Annotated[list[str], AfterValidator(_check_patterns)]
Milliseconds = Annotated[int, Field(ge=0, le=86_400_000)]
Seconds = Annotated[float, Field(ge=0.01, le=86_400, allow_inf_nan=False)]
Polling = Literal["auto"] | bool


class FileWatcherConfig(BaseModel):
    """The files to watch, the way to watch them, and the rest before an event."""

    model_config = ConfigDict(extra="forbid", strict=True)

    path: Annotated[str, Field(min_length=1, description="The folder, relative to the working folder.")] = "."
    patterns: Annotated[PatternList, Field(min_length=1, description="Files that count, as in .gitignore.")] = ["**/*"]
    ignore: Annotated[PatternList, Field(description="Files that do not, besides the usual ones.")] = []
    gitignore: Annotated[bool, Field(description="Whether to heed the .gitignore files of the tree.")] = False
    recursive: Annotated[bool, Field(description="Whether folders in the folder are watched too.")] = True
    debounce_ms: Annotated[Milliseconds, Field(description="How long a path must be quiet before it fires.")] = 1000
    max_wait_ms: Annotated[
        Milliseconds | None, Field(description="How long a path that is never quiet waits; default: 10 x debounce_ms.")
    ] = None
    batch: Annotated[bool, Field(description="Whether all changes up to a quiet moment are one event.")] = False
    self_trigger: Annotated[
        bool, Field(description="Whether files fire that sessions of this trigger have written.")
    ] = False
    polling: Annotated[
        Polling, Field(description="Whether to look again and again; auto: only where the system tells of no changes.")
    ] = "auto"
    poll_interval: Annotated[Seconds, Field(description="Seconds between two looks.")] = 5.0

    @model_validator(mode="after")
    def _check_max_wait(self) -> FileWatcherConfig:
        if self.max_wait_ms is not None and self.max_wait_ms < self.debounce_ms:
            raise ValueError(f"max_wait_ms must be at least debounce_ms ({self.debounce_ms})")
        return self
