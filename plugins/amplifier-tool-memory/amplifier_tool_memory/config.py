"""Read the `config:` of the module in a bundle."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .tool import MOST_NOTES

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "tool-memory"

Operation = Literal["save", "search", "read", "list", "update", "delete"]


class MemoryConfig(BaseModel):
    """The operations and limits of the tool."""

    model_config = ConfigDict(extra="forbid", strict=True)

    allow: Annotated[
        list[Operation], Field(min_length=1, description="The operations of the tool; default: every one.")
    ] = list(get_args(Operation))
    max_notes: Annotated[int, Field(ge=1, le=1_000_000, description="The most notes of a project.")] = MOST_NOTES
    inject: Annotated[
        int, Field(ge=0, le=50, description="The newest notes whose titles are in the tool's description; 0: none.")
    ] = 0


def read_config(config: Mapping[str, Any]) -> MemoryConfig:
    """Return the checked configuration. Raises `ValueError`, with the key."""
    try:
        return MemoryConfig.model_validate(config)
    except ValidationError as error:
        problem = error.errors()[0]
        key, message = str(problem["loc"][0]), problem["msg"]
        if problem["type"] == "extra_forbidden":
            known = list(MemoryConfig.model_fields)
            close = get_close_matches(key, known, n=1)
            message = "unknown key; " + (f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}")
        raise ValueError(f"{NAME}: {key}: {message}") from None
