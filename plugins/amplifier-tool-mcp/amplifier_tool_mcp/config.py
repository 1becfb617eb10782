"""Read the `config:` of the module in a bundle, and the servers of `.mcp.json` and of editors."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from amplifier_core.permissions.hidden import is_printable

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "tool-mcp"
CONNECTING = ("type", "command", "args", "env", "cwd", "url", "headers")
"""The keys of a server in the published convention; those that other programs add to `.mcp.json` are left."""


class ServerConfig(BaseModel):
    """A server: a program that is run, or the address of one that runs."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Annotated[
        Literal["stdio", "http", "streamable-http"] | None, Field(description="Found by `command` or `url`.")
    ] = None
    command: Annotated[str | None, Field(min_length=1, description="The program to run.")] = None
    args: Annotated[list[str], Field(description="Its arguments.")] = []
    env: Annotated[dict[str, str], Field(description="Variables of its environment; ${NAME} stands for a key.")] = {}
    cwd: Annotated[str | None, Field(description="The folder to run it in; default: the working folder.")] = None
    url: Annotated[str | None, Field(min_length=1, description="The address of a streamable HTTP server.")] = None
    headers: Annotated[dict[str, str], Field(description="Headers of each request; ${NAME} stands for a key.")] = {}
    timeout: Annotated[float | None, Field(gt=0, description="Seconds of one call; default: `call_timeout`.")] = None
    tools: Annotated[list[str] | None, Field(description="The tools to mount, `*` for any characters.")] = None
    enabled: Annotated[bool, Field(description="Whether it is started at all.")] = True
    trusted: Annotated[
        bool,
        Field(description="Its results are no text of strangers, and its hints count. Only your own settings say so."),
    ] = False

    @field_validator("type", mode="before")
    @classmethod
    def _read_type(cls, value: object) -> object:
        if value == "sse":
            raise ValueError("the transport sse was replaced in 2025; use the server's streamable HTTP address")
        return "http" if value in ("streamable-http", "streamableHttp", "streamable_http") else value

    @model_validator(mode="after")
    def _check_target(self) -> ServerConfig:
        if (self.command is None) == (self.url is None):
            raise ValueError("needs either a command or a url")
        if self.type is not None and (self.type == "stdio") != (self.command is not None):
            raise ValueError(f"the type {self.type} needs a {'command' if self.type == 'stdio' else 'url'}")
        if self.url is not None and not self.url.startswith(("http://", "https://", "${")):
            raise ValueError("url: must begin with https:// or http://")
        return self

    @property
    def kind(self) -> str:
        """`stdio` or `http`."""
        return "http" if self.command is None else "stdio"

    @property
    def problem(self) -> str:
        """Why it cannot be started, "" where nothing speaks against it: the other servers do without it."""
        if self.command is not None and "://" in self.command:
            return "command: is an address; a url stands alone, and begins with https:// or http://"
        return ""


class McpConfig(BaseModel):
    """The servers and their limits."""

    model_config = ConfigDict(extra="forbid", strict=True)

    servers: Annotated[
        dict[str, ServerConfig],
        Field(validation_alias=AliasChoices("servers", "mcpServers"), description="Servers by name."),
    ] = {}
    project_servers: Annotated[bool, Field(description="Whether those of a trusted `.mcp.json` are started.")] = True
    start_timeout: Annotated[
        float, Field(ge=0, le=600, description="Seconds that the first request waits for servers.")
    ] = 10
    call_timeout: Annotated[float, Field(gt=0, description="Seconds of one call.")] = 300
    max_result_chars: Annotated[int, Field(ge=100, description="Characters of a result; the rest is cut.")] = 100_000

    @field_validator("servers")
    @classmethod
    def _check_names(cls, servers: dict[str, ServerConfig]) -> dict[str, ServerConfig]:
        for name in servers:
            check_name(name)
        return servers


def check_name(name: str) -> str:
    """Return the name of a server. Raises `ValueError` for one that cannot be typed."""
    if not 0 < len(name) <= 64 or not is_printable(name) or name != name.strip():
        raise ValueError(f"{name!r} is no name of a server; use letters, digits, - and _")
    return name


def read_config(config: Mapping[str, Any]) -> McpConfig:
    """Return the checked configuration. Raises `ValueError`, with the key."""
    try:
        return McpConfig.model_validate(config)
    except ValidationError as error:
        raise ValueError(f"{NAME}: {_describe(error, McpConfig)}") from None


def read_server(name: str, given: Mapping[str, Any]) -> ServerConfig:
    """Return a server of `.mcp.json` or of an editor; keys beyond the convention are left. Raises `ValueError`."""
    check_name(name)
    try:
        return ServerConfig.model_validate({key: value for key, value in given.items() if key in CONNECTING})
    except ValidationError as error:
        raise ValueError(f"{name}: {_describe(error, ServerConfig)}") from None


def _describe(error: ValidationError, model: type[BaseModel]) -> str:
    problem = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")  # unknown keys come first
    place, message = ".".join(map(str, problem["loc"])), problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "extra_forbidden":
        known = list((ServerConfig if len(problem["loc"]) > 1 else model).model_fields)
        close = get_close_matches(str(problem["loc"][-1]), known, n=1)
        message = "unknown key; " + (f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}")
    return f"{place}: {message}" if place else message
