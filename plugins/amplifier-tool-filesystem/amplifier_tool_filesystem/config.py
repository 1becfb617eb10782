"""Read the `config:` of the module in a bundle."""

from __future__ import annotations

import math
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "tool-filesystem"


class FilesystemConfig(BaseModel):
    """The folder of the tools, and their limits."""

    model_config = ConfigDict(extra="forbid", strict=True)

    working_dir: Annotated[
        str,
        BeforeValidator(lambda value: str(value) if isinstance(value, Path) else value),
        Field(description="The folder of the tools; a session's own working folder has priority."),
    ] = "."
    allow_write: Annotated[bool, Field(description="Whether to offer write_file, edit_file and edit_notebook.")] = True
    max_bytes: Annotated[
        int,
        BeforeValidator(lambda value: math.ceil(value) if isinstance(value, float) and math.isfinite(value) else value),
        Field(ge=1, description="Characters for one read_file, as JSON; keep it below the loop's max_result_chars."),
    ] = 190_000
    max_image_bytes: Annotated[int, Field(ge=1, description="Bytes of an image for one read_file.")] = 3_750_000
    read_before_write: Annotated[
        bool,
        Field(description="Whether a session must have read from an existing file, as it is now, before a change."),
    ] = False
    grep_timeout: Annotated[
        float, Field(gt=0, allow_inf_nan=False, description="Seconds until a search is stopped.")
    ] = 30.0

    @field_validator("working_dir")
    @classmethod
    def _check_folder(cls, given: str) -> str:
        path = Path(given).expanduser()
        if not path.is_dir():
            raise ValueError(f"{path} is not a folder; create it or name another one")
        return str(path)


def read_config(config: Mapping[str, Any], session_folder: str | None) -> FilesystemConfig:
    """Return the checked configuration; the session's own working folder has priority. Raises `ValueError`."""
    folder = session_folder or config.get("working_dir", ".")
    try:
        return FilesystemConfig.model_validate({**config, "working_dir": folder})
    except ValidationError as error:
        problem = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")  # unknown keys come first
        key, message = str(problem["loc"][0]), problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            known = list(FilesystemConfig.model_fields)
            close = get_close_matches(key, known, n=1)
            message = "unknown key; " + (f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}")
        raise ValueError(f"{NAME}: {key}: {message}") from None
