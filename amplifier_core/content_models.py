"""Content blocks as plain dataclasses: what a provider shows of a response while, and after, it streams."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import Any


class ContentBlockType(str, Enum):  # noqa: UP042  # str() of a member is published as 'ContentBlockType.TEXT'
    """The kinds of block."""

    TEXT = "text"
    THINKING = "thinking"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"


@dataclass
class ContentBlock:
    """One block; `raw` is what the provider sent, where it is kept."""

    type: ContentBlockType
    raw: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name, `raw` only when there is one."""
        data = {field.name: getattr(self, field.name) for field in fields(self)} | {"type": self.type.value}
        if self.raw is None:
            del data["raw"]
        return data


@dataclass
class TextContent(ContentBlock):
    """Text that is meant to be read."""

    type: ContentBlockType = ContentBlockType.TEXT
    text: str = ""


@dataclass
class ThinkingContent(ContentBlock):
    """A model's thinking."""

    type: ContentBlockType = ContentBlockType.THINKING
    text: str = ""


@dataclass
class ToolCallContent(ContentBlock):
    """The wish of a model to have a tool called."""

    type: ContentBlockType = ContentBlockType.TOOL_CALL
    id: str = ""
    name: str = ""
    arguments: dict[str, Any] | None = None


@dataclass
class ToolResultContent(ContentBlock):
    """What a tool returned, or the error that it ended with."""

    type: ContentBlockType = ContentBlockType.TOOL_RESULT
    tool_call_id: str = ""
    output: Any = None
    error: str | None = None
