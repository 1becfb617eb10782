"""Define the data of tools, hooks, providers and modules: descriptions, results and statuses."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_serializer, field_validator, model_serializer

from .message_models import ImageBlock, TextBlock, decimal_or_error
from .model_drafts import ModelDraft, new_list

if TYPE_CHECKING:
    from collections.abc import Mapping

# Tab, newline and carriage return stay. A lone surrogate goes too: it cannot be written as UTF-8.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return _UNPRINTABLE.sub("", value)
    if isinstance(value, dict):
        return {_printable(key): _printable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_printable(item) for item in value]
    return value


def _to_json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=_decimal_text)
    if "\\u00" in text:  # json escapes control characters: they would outlive the cleaning below
        text = json.dumps(_printable(value), ensure_ascii=False, default=_decimal_text)
    return text


def _decimal_text(value: Any) -> str:
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def _without_image_data(item: Any) -> Any:
    """Return a block as a dict, its image bytes left out; anything else as it is."""
    block = item.model_dump() if isinstance(item, TextBlock | ImageBlock) else item
    if not isinstance(block, dict) or block.get("type") != "image":
        return block
    source = block.get("source")
    kept = {key: source[key] for key in ("type", "media_type") if key in source} if isinstance(source, dict) else {}
    return {"type": "image", "source": kept, "omitted": "image data"}


class _Model(BaseModel):
    model_config = ConfigDict(defer_build=True)  # each is built at its first use


class ToolResult(_Model):
    """The result of a tool: `output` for the model, `error` ({"message": …}) for a failure.

    `content` holds blocks instead of, or besides, `output`. A failure without output takes the error's message as its
    output: a model reads nothing else.
    """

    success: bool = True
    output: Any | None = None
    error: dict[str, Any] | None = None
    content: list[TextBlock | ImageBlock] | None = None

    @field_validator("content", mode="before")
    @classmethod
    def normalize_content(cls, content: Any) -> Any:
        """Take one block, or plain text, for a list of one."""
        if content is None:
            return None
        items = content if isinstance(content, list | tuple) else [content]
        return [TextBlock(text=item) if isinstance(item, str) else item for item in items]

    def model_post_init(self, context: Any, /) -> None:
        """Fill an absent output from the error's message."""
        if not self.success and self.output is None and self.error is not None:
            self.output = self.error.get("message")

    @field_serializer("content", when_used="unless-none")
    def serialize_content(self, content: list[TextBlock | ImageBlock]) -> list[dict[str, Any]]:
        """Write each block without its unused fields."""
        return [block.model_dump(exclude_none=True) for block in content]

    @model_serializer(mode="wrap")
    def serialize_model(self, handler: Any) -> Any:
        """Write a result without blocks as it was written before there were blocks."""
        data = handler(self)
        if isinstance(data, dict) and data.get("content", ...) is None:
            del data["content"]
        return data

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> ToolResult:
        """Return a copy; blocks in `update` are checked like those of a new result."""
        if update and "content" in update:
            update = {**update, "content": ToolResult(content=update["content"]).content}
        return super().model_copy(update=update, deep=deep)

    def get_serialized_output(self) -> str:
        """Return the result as a model reads it: the output as text or JSON, else the blocks' text, else "Success".

        A failure without any of them is an empty text. Control characters are left out, and a `Decimal` is written as a
        string. Raises `TypeError` for an output outside JSON.
        """
        output = self.output
        if output is None:
            text = self._content_text() or ("Success" if self.success else "")
        elif isinstance(output, str):
            text = output
        else:
            text = _to_json(output) if isinstance(output, dict | list | tuple | bool) else str(output)
        return text if text.isprintable() else _UNPRINTABLE.sub("", text)

    def _content_text(self) -> str:
        blocks = self.content or []
        return "\n".join(block.text if isinstance(block, TextBlock) else "[image]" for block in blocks)

    def safe_hook_presentation(self) -> dict[str, Any]:
        """Return the result for hooks and logs: a dict without the bytes of any image."""
        output = self.output
        if isinstance(output, list):
            output = [_without_image_data(item) for item in output]
        shown = {"success": self.success, "output": _without_image_data(output), "error": self.error}
        if self.content is not None:
            shown["content"] = [_without_image_data(block) for block in self.content]
        return shown


class ContextInjection(_Model):
    """One hook's text for the model."""

    content: str
    role: Literal["system", "user", "assistant"] = "system"
    ephemeral: bool = False
    append_to_last_tool_result: bool = False
    hook_name: str = "unknown"
    event: str = ""


class HookResult(_Model):
    """A hook's answer to an event; `approval_timeout` is in seconds."""

    action: Literal["continue", "deny", "modify", "inject_context", "ask_user"] = "continue"
    data: dict[str, Any] | None = None
    reason: str | None = None
    context_injection: str | None = None
    context_injection_role: Literal["system", "user", "assistant"] = "system"
    ephemeral: bool = False
    approval_prompt: str | None = None
    approval_options: list[str] | None = None
    approval_timeout: float = 300.0
    approval_default: Literal["allow", "deny"] = "deny"
    suppress_output: bool = False
    user_message: str | None = None
    user_message_level: Literal["info", "warning", "error"] = "info"
    user_message_source: str | None = None
    append_to_last_tool_result: bool = False
    context_injections: list[ContextInjection] = Field(default_factory=new_list)
    approval_preview: str | None = None
    """What the call would change, beside the prompt; the kernel asks the tool for it (`previews`)."""


_CONTINUE = {name: field.default for name, field in HookResult.model_fields.items()}


def continue_with(data: dict[str, Any]) -> HookResult:
    """Return `HookResult(data=data)` without a validation: the kernel's hottest path, so it calls nothing else."""
    draft: Any = ModelDraft()
    values = draft.__dict__
    values |= _CONTINUE  # into an empty dict, it copies the whole table at once
    values["data"], values["context_injections"] = data, []
    draft.__pydantic_fields_set__ = {"data"}
    draft.__pydantic_extra__ = draft.__pydantic_private__ = None
    draft.__class__ = HookResult
    result: HookResult = draft
    return result


class Pricing(_Model):
    """The price of a model, in `currency` per million tokens."""

    input_per_million: float
    output_per_million: float
    cache_read_per_million: float | None = None
    cache_write_per_million: float | None = None
    currency: str = "USD"


class ModelInfo(_Model):
    """A provider's model; `context_window` and `max_output_tokens` are in tokens."""

    id: str
    display_name: str
    context_window: int
    max_output_tokens: int
    capabilities: list[str] = Field(default_factory=new_list)
    defaults: dict[str, Any] = Field(default_factory=dict)
    pricing: Pricing | None = None


class ConfigField(_Model):
    """One question of a provider's set-up."""

    id: str
    display_name: str
    field_type: Literal["text", "secret", "choice", "boolean"] = "text"
    prompt: str
    env_var: str | None = None
    choices: list[str] | None = None
    required: bool = True
    default: str | None = None
    show_when: dict[str, str] | None = None
    requires_model: bool = False


class ProviderInfo(_Model):
    """The description of a provider: its abilities, and the settings that it needs."""

    id: str
    display_name: str
    credential_env_vars: list[str] = Field(default_factory=new_list)
    capabilities: list[str] = Field(default_factory=new_list)
    defaults: dict[str, Any] = Field(default_factory=dict)
    config_fields: list[ConfigField] = Field(default_factory=new_list)


class ModuleInfo(_Model):
    """The description of an installed module."""

    id: str
    name: str
    version: str
    type: Literal["orchestrator", "provider", "tool", "context", "hook", "resolver"]
    mount_point: str
    description: str
    config_schema: dict[str, Any] | None = None


class SessionStatus(_Model):
    """The progress of a session: times in UTC, cost in US dollars (a Decimal; a string in JSON, never a float)."""

    session_id: str
    started_at: datetime = Field(default_factory=lambda: datetime.now(UTC))
    ended_at: datetime | None = None
    status: Literal["running", "completed", "failed", "cancelled"] = "running"
    total_messages: int = 0
    tool_invocations: int = 0
    tool_successes: int = 0
    tool_failures: int = 0
    total_input_tokens: int = 0
    total_output_tokens: int = 0
    cost_usd: Decimal | None = None
    last_activity: datetime | None = None
    last_error: dict[str, Any] | None = None

    @field_validator("cost_usd", mode="before")
    @classmethod
    def reject_float_cost_usd(cls, v: Any) -> Any:
        """Refuse a float."""
        return decimal_or_error(v)

    @field_serializer("cost_usd")
    def serialize_cost_usd(self, v: Decimal | None) -> str | None:
        """Write the cost digit by digit."""
        return None if v is None else str(v)

    def to_dict(self) -> dict[str, Any]:
        """Return the status as JSON types."""
        return self.model_dump(mode="json")
