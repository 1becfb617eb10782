"""Read the `config:` of the module in a bundle."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .tool import MAX_ATTEMPTS, MAX_DEPTH, MAX_PARALLEL

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

NAME = "tool-fork"


class ForkConfig(BaseModel):
    """The limits of the tool."""

    model_config = ConfigDict(extra="forbid", strict=True)

    max_attempts: Annotated[int, Field(ge=1, le=20, description="The most forks of one call.")] = MAX_ATTEMPTS
    max_parallel: Annotated[int, Field(ge=1, le=20, description="The most forks at the same time.")] = MAX_PARALLEL
    max_depth: Annotated[
        int, Field(ge=1, le=5, description="The most forks in a row: a fork, a fork of that fork, and so on.")
    ] = MAX_DEPTH
    timeout: Annotated[
        float | None, Field(gt=0, allow_inf_nan=False, description="Seconds for a fork; default: those of its bundle.")
    ] = None


def read_config(config: Mapping[str, Any]) -> ForkConfig:
    """Return the checked configuration. Raises `ValueError`, with the key."""
    try:
        return ForkConfig.model_validate(config)
    except ValidationError as error:
        problem = error.errors()[0]
        key, message = str(problem["loc"][0]), problem["msg"]
        if problem["type"] == "extra_forbidden":
            known = list(ForkConfig.model_fields)
            close = get_close_matches(key, known, n=1)
            message = "unknown key; " + (f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}")
        raise ValueError(f"{NAME}: {key}: {message}") from None
