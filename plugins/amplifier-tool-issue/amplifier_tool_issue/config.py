"""Read the `config:` of the module in a bundle."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "tool-issue"

Operation = Literal["create", "list", "show", "update", "comment", "depend", "close"]
OPERATIONS: tuple[Operation, ...] = get_args(Operation)


class IssueConfig(BaseModel):
    """What the tool offers."""

    model_config = ConfigDict(extra="forbid")

    allow: Annotated[
        list[Operation], Field(min_length=1, description="The operations of the tool; default: every one.")
    ] = list(OPERATIONS)


def read_config(config: Mapping[str, Any]) -> IssueConfig:
    """Return the checked configuration. Raises `ValueError`, with the key."""
    try:
        return IssueConfig.model_validate(config)
    except ValidationError as error:
        problem = error.errors()[0]
        key, message = str(problem["loc"][0]), problem["msg"]
        if problem["type"] == "extra_forbidden":
            known = list(IssueConfig.model_fields)
            close = get_close_matches(key, known, n=1)
            message = "unknown key; " + (f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}")
        raise ValueError(f"{NAME}: {key}: {message}") from None
