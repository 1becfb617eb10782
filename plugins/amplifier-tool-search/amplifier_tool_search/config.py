"""Read the `config:` of the module in a bundle."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "tool-search"


class SearchConfig(BaseModel):
    """The folder of the tool, and its limits."""

    model_config = ConfigDict(extra="forbid", strict=True)

    working_dir: Annotated[
        str,
        BeforeValidator(lambda value: str(value) if isinstance(value, Path) else value),
        Field(description="The folder to search; a session's own working folder has priority."),
    ] = "."
    ripgrep: Annotated[bool, Field(description="Whether to use ripgrep where it is installed.")] = True
    timeout: Annotated[float, Field(gt=0, le=3600, description="Seconds until a search is stopped.")] = 30.0

    @field_validator("working_dir")
    @classmethod
    def _check_folder(cls, given: str) -> str:
        path = Path(given).expanduser()
        if not path.is_dir():
            raise ValueError(f"{path} is not a folder; create it or name another one")
        return str(path)


def read_config(config: Mapping[str, Any]) -> SearchConfig:
    """Return the checked configuration. Raises `ValueError`, with the key."""
    try:
        return SearchConfig.model_validate(config)
    except ValidationError as error:
        problem = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")  # unknown keys come first
        key, message = str(problem["loc"][0]), problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            known = list(SearchConfig.model_fields)
            close = get_close_matches(key, known, n=1)
            message = "unknown key; " + (f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}")
        raise ValueError(f"{NAME}: {key}: {message}") from None
