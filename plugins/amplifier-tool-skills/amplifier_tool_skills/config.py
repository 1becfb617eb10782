"""Read the configuration of the tool."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .catalog import LIST_CHARS, OWNERS


class SkillsConfig(BaseModel):
    """The keys of `config:`."""

    model_config = ConfigDict(extra="forbid")

    sources: Annotated[
        list[Literal["user", "project", "bundle"]], Field(min_length=1, description="Whose skills and commands count.")
    ] = [*OWNERS]
    list_chars: Annotated[
        int, Field(ge=0, le=100_000, description="The most characters of the list of skills that models see.")
    ] = LIST_CHARS


def read_config(config: dict[str, Any]) -> SkillsConfig:
    """Return the checked configuration. Raises `ValueError`, with the key."""
    try:
        return SkillsConfig.model_validate(config)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        key, message = ".".join(map(str, problem["loc"])), problem["msg"]
        if problem["type"] == "extra_forbidden":
            known = list(SkillsConfig.model_fields)
            close = get_close_matches(key, known, n=1)
            message = "unknown key; " + (f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}")
        raise ValueError(f"tool-skills: {key}: {message}") from None
