"""Read the `config:` of the module in a bundle."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "loop-basic"
UNLIMITED = -1


class LoopConfig(BaseModel):
    """The limits of a turn, and its provider."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    max_iterations: Annotated[int, Field(description="The most model calls of one turn; -1 for any number.")] = 50
    max_parallel_tools: Annotated[
        int, Field(ge=1, description="The most tool calls of one response that run at the same time.")
    ] = 16
    max_result_chars: Annotated[
        int, Field(ge=1, description="The most characters of a tool's result for the model; the rest is cut.")
    ] = 200_000
    default_provider: Annotated[
        str | None, Field(description="The provider to ask; default: the one with the lowest priority.")
    ] = None

    @field_validator("max_iterations", mode="before")
    @classmethod
    def _check_limit(cls, most: object) -> object:
        if isinstance(most, bool) or not isinstance(most, int) or (most < 1 and most != UNLIMITED):
            raise ValueError("must be 1 or more, or -1 for no limit")
        return most


def read_config(config: Mapping[str, Any], module: str = NAME) -> LoopConfig:
    """Return the checked configuration. Raises `ValueError`, with the key."""
    if not config:
        return _usual()
    try:
        return LoopConfig.model_validate(config)
    except ValidationError as error:
        problem = error.errors()[0]
        key, message = problem["loc"][0], problem["msg"].removeprefix("Value error, ")
        raise ValueError(f"{module}: {key}: {message}, not {problem['input']!r}") from None


@cache
def _usual() -> LoopConfig:
    """Return the configuration of nearly all sessions."""
    return LoopConfig()


def check_keys(config: Mapping[str, Any], module: str = NAME) -> list[str]:
    """Return a warning for each unknown key. Raises `ValueError` for one that looks mistyped."""
    known = list(LoopConfig.model_fields)
    unknown = [str(key) for key in config if key not in known]
    for key in unknown:
        if close := get_close_matches(key, known, n=1, cutoff=0.85):
            raise ValueError(f"{module}: {key}: unknown key; did you mean '{close[0]}'?")
    return [f"{key}: unknown key without effect; known are {', '.join(known)}" for key in unknown]
