"""Read the `config:` of the module in a bundle."""

from __future__ import annotations

import re
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from amplifier_core.permissions import is_secret
from amplifier_foundation.paths import data_home
from amplifier_sandbox.contracts import holds_home

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "tool-bash"
_SECRET_VARIABLE = re.compile(r".*(?:KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH).*|(?:LD|DYLD|BASH|GIT)_.*|BASH_ENV|ENV")


class Limits(BaseModel):
    """What one command may take; each process of it counts by itself."""

    model_config = ConfigDict(extra="forbid", strict=True)

    memory_mb: Annotated[int | None, Field(ge=16, description="Megabytes of address space; default: no limit.")] = None
    cpu_seconds: Annotated[int, Field(ge=1, description="Seconds of processor time.")] = 600
    open_files: Annotated[int, Field(ge=16, description="Open files.")] = 4096
    file_size_mb: Annotated[int, Field(ge=1, description="Megabytes of one file.")] = 2048
    processes: Annotated[int, Field(ge=8, description="Processes and threads; not for root.")] = 2048


class BashConfig(BaseModel):
    """The folder of the commands, their sandbox, and their limits."""

    model_config = ConfigDict(extra="forbid", strict=True)

    working_dir: Annotated[
        str,
        BeforeValidator(lambda value: str(value) if isinstance(value, Path) else value),
        Field(description="The folder of the commands; a session's own working folder has priority."),
    ] = "."
    sandbox: Annotated[
        Literal["auto", "bubblewrap", "landlock", "sandbox-exec", "off"],
        BeforeValidator(lambda value: {False: "off", True: "auto"}[value] if isinstance(value, bool) else value),
        Field(description="The sandbox; less than `auto` finds counts only with a rule in your own settings."),
    ] = "auto"
    network: Annotated[
        bool, Field(description="Whether a call may ask for the network; the permissions of hosts decide about it.")
    ] = False
    timeout: Annotated[
        float, Field(gt=0, allow_inf_nan=False, description="Seconds for a command that says nothing else.")
    ] = 120.0
    max_timeout: Annotated[
        float, Field(gt=0, allow_inf_nan=False, description="The most seconds that a call may ask for.")
    ] = 600.0
    grace: Annotated[
        float, Field(ge=0, allow_inf_nan=False, description="Seconds from SIGTERM to SIGKILL.")
    ] = 2.0  # fmt: skip
    max_output_chars: Annotated[
        int, Field(ge=200, description="Characters of output for one call; the middle is left out.")
    ] = 50_000
    max_background: Annotated[int, Field(ge=0, description="Commands in the background at the same time.")] = 8
    pass_environment: Annotated[
        list[str], Field(description="More names of the environment for commands; none that sounds like a secret.")
    ] = []
    readable: Annotated[
        list[str], Field(description="More folders for commands to read, such as that of a compiler.")
    ] = []  # fmt: skip
    limits: Annotated[Limits, Field(description="What one command may take.")] = Limits()

    @field_validator("working_dir")
    @classmethod
    def _check_folder(cls, given: str) -> str:
        path = Path(given).expanduser().resolve()
        if not path.is_dir():
            raise ValueError(f"{path} is not a folder; create it or name another one")
        return str(path)

    @model_validator(mode="after")
    def _check_timeouts(self) -> BashConfig:
        if "timeout" in self.model_fields_set and self.timeout > self.max_timeout:
            if "max_timeout" in self.model_fields_set:
                raise ValueError(f"max_timeout: must be at least timeout ({self.timeout:g})")
            self.max_timeout = self.timeout
        return self

    @field_validator("pass_environment")
    @classmethod
    def _check_names(cls, names: list[str]) -> list[str]:
        for name in names:
            if _SECRET_VARIABLE.fullmatch(name.upper()):
                raise ValueError(f"{name} may be a secret, or change what programs do; commands do not get it")
        return names

    @field_validator("readable")
    @classmethod
    def _check_readable(cls, given: list[str]) -> list[str]:
        return [_check_readable_folder(each) for each in given]


def _check_readable_folder(given: str) -> str:
    path = Path(given).expanduser().resolve()
    if not path.is_dir():
        raise ValueError(f"{path} is not a folder")
    if holds_home(str(path)) or any(is_secret(str(each)) for each in (path, *path.parents)):
        raise ValueError(f"{path} holds your home folder or secrets; name a folder inside of it")
    own = data_home().resolve()
    if own.is_relative_to(path) or path.is_relative_to(own):
        raise ValueError(f"{path} holds amplifier's own data, or is in it; name another folder")
    return str(path)


def read_config(config: Mapping[str, Any], session_folder: str | None) -> BashConfig:
    """Return the checked configuration; the session's own working folder has priority. Raises `ValueError`."""
    folder = session_folder or config.get("working_dir", ".")
    try:
        return BashConfig.model_validate({**config, "working_dir": folder})
    except ValidationError as error:
        problem = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")  # unknown keys come first
        key = ".".join(str(part) for part in problem["loc"])
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            model = Limits if key.startswith("limits.") else BashConfig
            known = list(model.model_fields)
            close = get_close_matches(str(problem["loc"][-1]), known, n=1)
            message = "unknown key; " + (f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}")
        raise ValueError(": ".join(filter(None, (NAME, key, message)))) from None
