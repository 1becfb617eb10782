"""Define content blocks as plain dataclasses: a provider shows them while a response streams, and afterwards."""

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
    """One block; `raw` is the provider's own form of it, if it is kept."""

    type: ContentBlockType
    raw: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name; an empty `raw` is left out."""
        data = {field.name: getattr(self, field.name) for field in fields(self)} | {"type": self.type.value}
        if self.raw is None:
            del data["raw"]
        return data


@dataclass
class TextContent(ContentBlock):
    """Text for a reader."""

    type: ContentBlockType = ContentBlockType.TEXT
    text: str = ""


@dataclass
class ThinkingContent(ContentBlock):
    """A model's thinking."""

    type: ContentBlockType = ContentBlockType.THINKING
    text: str = ""


@dataclass
class ToolCallContent(ContentBlock):
    """A model's request to call a tool."""

    type: ContentBlockType = ContentBlockType.TOOL_CALL
    id: str = ""
    name: str = ""
    arguments: dict[str, Any] | None = None


@dataclass
class ToolResultContent(ContentBlock):
    """The output, or the error, of a tool call."""

    type: ContentBlockType = ContentBlockType.TOOL_RESULT
    tool_call_id: str = ""
    output: Any = None
    error: str | None = None
