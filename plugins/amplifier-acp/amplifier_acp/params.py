"""Check the parameters of requests."""

from __future__ import annotations

import os
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, AliasGenerator, BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from .peer import INVALID_PARAMS, RpcError


def _check_absolute(path: str) -> str:
    if not os.path.isabs(path) or "\0" in path:  # noqa: PTH117 - a text is checked, before it is a path
        raise ValueError("must be an absolute path")
    return path


Folder = Annotated[str, AfterValidator(_check_absolute)]


class Params(BaseModel):
    """The common part: strict types, names as the protocol spells them, `_meta`; members of later versions are left."""

    model_config = ConfigDict(
        strict=True, extra="ignore", alias_generator=AliasGenerator(to_camel), populate_by_name=False
    )

    meta: Annotated[dict[str, Any] | None, Field(alias="_meta")] = None


class OfSession(Params):
    """What names a session."""

    session_id: str


class InFolder(Params):
    """What opens a session in a folder. What this agent does not offer must be absent or empty."""

    cwd: Folder
    mcp_servers: list[dict[str, Any]] = []
    additional_directories: list[str] | None = None
    system_prompt: Any = None


class Pair(Params):
    """A variable of an environment, or a header."""

    name: str
    value: str


class McpServer(Params):
    """An MCP server of the editor."""

    name: str
    type: str | None = None
    command: str | None = None
    args: list[str] | None = None
    env: list[Pair] | None = None
    url: str | None = None
    headers: list[Pair] | None = None


class NewSession(InFolder):
    """`session/new`."""

    mcp_servers: list[dict[str, Any]]


class LoadSession(OfSession, NewSession):
    """`session/load`."""


class ContinueSession(OfSession, InFolder):
    """`session/resume` and `session/fork`."""


class ListSessions(Params):
    """`session/list`."""

    cwd: Folder | None = None
    cursor: str | None = None


class Text(Params):
    """A block of text."""

    type: Literal["text"]
    text: str


class Media(Params):
    """An image, or a sound; `data` is base64."""

    type: Literal["image", "audio"]
    data: str
    mime_type: str
    uri: str | None = None


class ResourceLink(Params):
    """A link to a file, or anything else with an address."""

    type: Literal["resource_link"]
    uri: str
    name: str


class ResourceContents(Params):
    """The text of a resource, or its bytes in base64."""

    uri: str
    text: str | None = None
    blob: str | None = None
    mime_type: str | None = None


class Resource(Params):
    """A resource with its contents."""

    type: Literal["resource"]
    resource: ResourceContents


Block = Annotated[Text | Media | ResourceLink | Resource, Field(discriminator="type")]


class Prompt(OfSession):
    """`session/prompt`."""

    prompt: list[Block]


class SetMode(OfSession):
    """`session/set_mode`."""

    mode_id: str


class SetConfigOption(OfSession):
    """`session/set_config_option`."""

    config_id: str
    value: str | bool


Model = TypeVar("Model", bound=BaseModel)


def check(model: type[Model], params: dict[str, Any]) -> Model:
    """Return checked parameters. Raises `RpcError` with the name of the wrong member."""
    try:
        return model.model_validate(params)
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(str(part) for part in problem["loc"])
        message = problem["msg"].removeprefix("Value error, ")
        raise RpcError(INVALID_PARAMS, f"{place}: {message}", {"member": place}) from None
