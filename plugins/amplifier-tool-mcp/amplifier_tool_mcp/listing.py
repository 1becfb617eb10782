"""Read what a server offers, as far as it can be used: its tools, its prompts, and whether it has resources."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from amplifier_core.permissions.hidden import replace_unprintable

from .errors import ServerError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcp import Client

MOST_PAGES, MOST_TOOLS, MOST_PROMPTS, MOST_RESOURCES = 100, 256, 256, 1000
"""Pages of a list, and entries that are used."""
FINGERPRINT = 32
"""Hex digits of a fingerprint. A server must not find two descriptions with the same one."""
LONGEST_DESCRIPTION, LONGEST_SCHEMA = 4000, 100_000
"""Characters of a tool's description, and of its schema as JSON; a tool with a longer schema is left out."""


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool as its server lists it."""

    name: str
    description: str
    schema: dict[str, Any] = field(repr=False)
    fingerprint: str
    """Hex digits of the digest of all that the server says about it."""
    reads_only: bool = False
    """Whether the server says that it changes nothing."""


@dataclass(frozen=True, slots=True)
class ListedPrompt:
    """A prompt as its server lists it, with the names of its arguments; those that it needs come first."""

    name: str
    description: str
    arguments: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Listing:
    """All that a server offers."""

    tools: tuple[ListedTool, ...] = ()
    prompts: tuple[ListedPrompt, ...] = ()
    has_resources: bool = False
    left_out: tuple[str, ...] = ()
    """Why tools cannot be used."""


async def read_listing(client: Client) -> Listing:
    """Ask for everything that the server says it has. Raises the errors of the SDK, and `ServerError`."""
    offered = client.server_capabilities
    tools: list[ListedTool] = []
    left_out: list[str] = []
    if offered.tools is not None:
        for each in await read_pages(client.list_tools, "tools", MOST_TOOLS + 1):
            try:
                tools.append(_read_tool(each))
            except ValueError as error:
                left_out.append(f"its tool {plain(each.name, 100)!r} is left out: {error}")
    if len(tools) > MOST_TOOLS:
        left_out.append(f"it lists more than {MOST_TOOLS} tools; the others are left out")
    prompts: list[ListedPrompt] = []
    if offered.prompts is not None:
        for each in await read_pages(client.list_prompts, "prompts", MOST_PROMPTS):
            if re.fullmatch(r"[A-Za-z0-9_.-]+", each.name):
                prompts.append(_read_prompt(each))
            else:
                left_out.append(f"its prompt {plain(each.name, 100)!r} is left out: its name cannot be typed")
    return Listing(tuple(tools[:MOST_TOOLS]), tuple(prompts), offered.resources is not None, tuple(left_out))


async def read_pages(ask: Callable[..., Awaitable[Any]], member: str, most: int) -> list[Any]:
    """Return the entries of all pages, up to `most`. Raises `ServerError` for pages without an end."""
    found: list[Any] = []
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(MOST_PAGES):
        page = await ask(cursor=cursor, cache_mode="bypass")
        found += getattr(page, member)
        cursor = page.next_cursor
        if cursor is None or len(found) >= most:
            return found[:most]
        if cursor in seen:
            raise ServerError(f"its list of {member} leads in a circle")
        seen.add(cursor)
    raise ServerError(f"its list of {member} has more than {MOST_PAGES} pages")


def plain(text: str | None, longest: int) -> str:
    """Return a stranger's text without control and invisible characters, cut after `longest` ones."""
    shown = replace_unprintable(text or "", lambda each: each if each in "\n\t" else "")
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"


def _read_tool(tool: Any) -> ListedTool:
    """Return a tool. Raises `ValueError` for one that no provider takes."""
    if not tool.name or len(tool.name) > 1000:
        raise ValueError("its name is empty, or too long")
    annotations = tool.annotations.model_dump(exclude_none=True) if tool.annotations is not None else {}
    said = [tool.name, tool.title, tool.description, tool.input_schema, annotations]
    text = json.dumps(said, sort_keys=True)
    if len(text) > LONGEST_SCHEMA:
        raise ValueError(f"its description and schema have more than {LONGEST_SCHEMA} characters")
    schema = _clean_schema(tool.input_schema)
    if schema.setdefault("type", "object") != "object":
        raise ValueError("the type of its arguments is no object")
    schema.setdefault("properties", {})
    if not isinstance(schema["properties"], dict):
        raise ValueError("its properties are no mapping")
    description = plain(tool.description or tool.title or tool.name, LONGEST_DESCRIPTION)
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:FINGERPRINT]
    return ListedTool(tool.name, description, schema, digest, annotations.get("read_only_hint") is True)


def _clean_schema(schema: Any) -> Any:
    """Return a schema whose descriptions have no hidden characters."""
    if isinstance(schema, list):
        return [_clean_schema(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: plain(each, LONGEST_DESCRIPTION)
        if key in ("title", "description", "$comment") and isinstance(each, str)
        else _clean_schema(each)
        for key, each in schema.items()
    }


def _read_prompt(prompt: Any) -> ListedPrompt:
    given = sorted(prompt.arguments or (), key=lambda each: not each.required)
    names, needed = tuple(each.name for each in given), tuple(each.name for each in given if each.required)
    return ListedPrompt(prompt.name, plain(prompt.description or prompt.title, 200), names, needed)
