"""Read the `config:` of the module in a bundle: the commands of each event, as settings of Claude Code name them."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "hooks-shell"
OnError = Literal["deny", "continue"]
EVENTS = (
    "PreToolUse",
    "PostToolUse",
    "UserPromptSubmit",
    "Notification",
    "Stop",
    "SubagentStop",
    "PreCompact",
    "SessionStart",
    "SessionEnd",
)
GUARDS = ("PreToolUse", "UserPromptSubmit")
"""The events whose commands decide whether something happens."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Command(_Section):
    """One command of an event."""

    type: Annotated[Literal["command"], Field(description="The kind of hook; there is no other one.")] = "command"
    command: Annotated[str, Field(min_length=1, description="The command, as a text for bash.")]
    timeout: Annotated[
        float, Field(gt=0, le=3600, allow_inf_nan=False, strict=False, description="Seconds until it is killed.")
    ] = 60.0
    on_error: Annotated[OnError | None, Field(description="As at the top, for this command alone.")] = None
    bundle_dir: Annotated[
        str | None, Field(description="The folder of its bundle, for scripts in it; a bundle in a file says it itself.")
    ] = None


class Matcher(_Section):
    """The commands for the tools that a pattern names."""

    matcher: Annotated[
        str, Field(max_length=1000, description="A regular expression of names of tools; empty or `*`: all.")
    ] = ""
    hooks: Annotated[list[Command], Field(description="The commands; they run at the same time.")]

    @field_validator("matcher")
    @classmethod
    def _check_matcher(cls, pattern: str) -> str:
        try:
            re.compile("" if pattern == "*" else pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
        return pattern


class ShellConfig(_Section):
    """The commands of a session."""

    hooks: Annotated[dict[str, list[Matcher]], Field(description="By event, what to run.")] = {}
    on_error: Annotated[
        OnError,
        Field(description="What a command that fails means for the tool call or the prompt that it is asked about."),
    ] = "deny"
    max_stop_blocks: Annotated[
        int, Field(ge=0, le=1000, description="How often the commands of Stop may send one turn on.")
    ] = 5
    pass_environment: Annotated[list[str], Field(description="More names of the environment for commands.")] = []

    @field_validator("hooks", mode="before")
    @classmethod
    def _check_events(cls, hooks: Any) -> Any:
        for event in hooks if isinstance(hooks, dict) else ():
            if event not in EVENTS:
                raise ValueError(f"unknown event '{event}'; {_suggest(str(event), EVENTS)}")
        return hooks


def read_config(config: Mapping[str, Any]) -> ShellConfig:
    """Return the checked configuration. Raises `ValueError` with the key."""
    try:
        return ShellConfig.model_validate(dict(config))
    except ValidationError as error:
        problem = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")  # unknown keys come first
        key, message = ".".join(str(part) for part in problem["loc"]), problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            models: dict[int, type[BaseModel]] = {1: ShellConfig, 4: Matcher}  # hooks.EVENT.0.KEY
            known = tuple(models.get(len(problem["loc"]), Command).model_fields)
            message = f"unknown key; {_suggest(str(problem['loc'][-1]), known)}"
        raise ValueError(f"{NAME}: {key}: {message}") from None


def _suggest(name: str, known: tuple[str, ...]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}"
