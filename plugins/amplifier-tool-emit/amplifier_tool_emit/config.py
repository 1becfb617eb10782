"""Read the `config:` of the module in a bundle."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "tool-emit"


class EmitConfig(BaseModel):
    """The events of the tool."""

    model_config = ConfigDict(extra="forbid", strict=True)

    allow: Annotated[
        list[str] | None,
        Field(description="Prefixes of names, such as 'work:'; default: every name."),
    ] = None
    max_bytes: Annotated[int, Field(ge=2, description="Bytes of an event's data, as JSON.")] = 65_536

    @field_validator("allow")
    @classmethod
    def _check_prefixes(cls, prefixes: list[str] | None) -> list[str] | None:
        for prefix in prefixes or ():
            if not prefix.rstrip("*"):
                raise ValueError(f"{prefix!r} is not a prefix of a name; leave out 'allow' for every name")
        return prefixes and [prefix.removesuffix("*") for prefix in prefixes]


def read_config(config: Mapping[str, Any]) -> EmitConfig:
    """Return the checked configuration. Raises `ValueError`, with the key."""
    try:
        return EmitConfig.model_validate(config)
    except ValidationError as error:
        problem = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")  # unknown keys come first
        key, message = str(problem["loc"][0]), problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            known = list(EmitConfig.model_fields)
            close = get_close_matches(key, known, n=1)
            message = "unknown key; " + (f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}")
        raise ValueError(f"{NAME}: {key}: {message}") from None
