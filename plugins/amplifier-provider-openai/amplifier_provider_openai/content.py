"""Read messages in the forms that loops and contexts give them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from amplifier_core.message_models import Degradation
from amplifier_providers.schemas import is_object, iterate_schemas

if TYPE_CHECKING:
    from amplifier_core import ChatRequest, Message

Block = dict[str, Any]

INSTRUCTING = ("system", "developer")
_SCHEMA_NAME = re.compile(r"[^\w-]")
_KINDS = {"type", "enum", "const", "anyOf", "$ref"}
_NOT_STRICT = {
    *("allOf", "oneOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "patternProperties"),
    *("prefixItems", "contains", "uniqueItems", "minLength", "maxLength", "propertyNames", "default"),
}
"""Keywords of JSON Schema that the strict mode refuses."""


class Media(NamedTuple):
    """An image or a document: its address (a data URL for its bytes), or the id of a file of the service."""

    is_image: bool
    url: str
    file_id: str


class Call(NamedTuple):
    """A request in the form of the service, and what it could not keep of the original."""

    model: str
    body: dict[str, Any]
    degradation: Degradation | None


Lost = list[tuple[str, str, str]]
"""What was requested, what is sent instead, and why."""


def read_blocks(message: Message) -> list[Block]:
    """Return the blocks of a message as dicts, its tool calls among them; empty texts are left out."""
    blocks: list[Block]
    if isinstance(message.content, str):
        blocks = [{"type": "text", "text": message.content}]
    else:
        blocks = [block.model_dump(exclude_none=True) for block in message.content]
    kept = [block for block in blocks if block["type"] != "text" or block["text"].strip()]
    known = {block["id"] for block in kept if block["type"] == "tool_call"}
    for call in getattr(message, "tool_calls", None) or ():
        if call.get("id") not in known:
            name, given = call.get("tool") or call.get("name"), call.get("arguments") or {}
            kept.append({"type": "tool_call", "id": call.get("id"), "name": name, "input": given})
    return kept


def read_media(source: dict[str, Any]) -> Media:
    """Return the image or the document of a source: base64 data, a URL, or a file of the service."""
    media_type, url = str(source.get("media_type", "")), str(source.get("url", ""))
    if "data" in source:
        data = source["data"]
        if source.get("type") == "text":
            from base64 import b64encode

            data = b64encode(str(data).encode()).decode()
        url = f"data:{media_type or 'image/png'};base64,{data}"
    is_document = (not media_type.startswith("image/") and bool(media_type)) or url.lower().endswith(".pdf")
    return Media(not (is_document or url.startswith("data:application/")), url, str(source.get("file_id", "")))


def read_text(output: Any) -> str:
    """Return a tool's output as text."""
    return output if isinstance(output, str) else json.dumps(output, ensure_ascii=False, default=str)


def read_schema(request: ChatRequest) -> dict[str, Any] | None:
    """Return the wanted schema with its name; None without one.

    A schema that does not say whether it is strict is so if the strict mode of the service takes it.
    """
    wanted = request.response_format
    if wanted is None or wanted.type != "json_schema":
        return None
    given = wanted.json_schema
    schema = given.get("schema", given)
    name = _SCHEMA_NAME.sub("_", str(given.get("name") or schema.get("title") or "answer"))[:64]
    strict = wanted.strict if wanted.strict is not None else given.get("strict")
    if strict is None:
        strict = is_object(schema) and all(map(_is_strict, iterate_schemas(schema)))
    return {"name": name, "schema": schema, "strict": strict}


def _is_strict(schema: Any) -> bool:
    """Return whether the strict mode takes a schema, without those in it: each member is required, and no other."""
    if not isinstance(schema, dict) or not _KINDS & schema.keys() or _NOT_STRICT & schema.keys():
        return False
    is_closed = schema.get("additionalProperties") is False
    return not is_object(schema) or (is_closed and {*schema.get("properties", ())} == {*schema.get("required", ())})


def join_lost(lost: Lost) -> Degradation | None:
    """Return what a request lost as one degradation."""
    if not lost:
        return None
    requested, actual, reason = ("; ".join(parts) for parts in zip(*lost, strict=True))
    return Degradation(requested=requested, actual=actual, reason=reason)
