"""Read the `config:` of the module in a bundle."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "context-simple"


class ContextConfig(BaseModel):
    """The limit of a request, and the shares of it that compaction begins and ends at."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    max_tokens: Annotated[
        int | None, Field(description="Tokens of a request, at most; default: the provider's context window.")
    ] = None

    compact_threshold: Annotated[
        float, Field(gt=0, le=1, description="Share of the limit from which requests are compacted.")
    ] = 0.92
    target_usage: Annotated[float, Field(gt=0, le=1, description="Share of the limit that compaction keeps.")] = 0.5

    @field_validator("max_tokens", mode="before")
    @classmethod
    def _check_limit(cls, most: object) -> object:
        if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
            raise ValueError("must be a number of tokens, 1 or more")
        return most


def read_config(config: Mapping[str, Any]) -> ContextConfig:
    """Return the checked configuration. Raises `ValueError`, with the key."""
    if not config:
        return _usual()
    try:
        return ContextConfig.model_validate(config)
    except ValidationError as error:
        problem = error.errors()[0]
        key, message = problem["loc"][0], problem["msg"].removeprefix("Value error, ")
        raise ValueError(f"{NAME}: {key}: {message}, not {problem['input']!r}") from None


@cache
def _usual() -> ContextConfig:
    """Return the configuration of nearly all sessions."""
    return ContextConfig()


def check_keys(config: Mapping[str, Any]) -> list[str]:
    """Return a warning for each unknown key. Raises `ValueError` for one that looks mistyped."""
    known = list(ContextConfig.model_fields)
    unknown = [str(key) for key in config if key not in known]
    for key in unknown:
        if close := get_close_matches(key, known, n=1, cutoff=0.85):
            raise ValueError(f"{NAME}: {key}: unknown key; did you mean '{close[0]}'?")
    return [f"{key}: unknown key without effect; known are {', '.join(known)}" for key in unknown]
