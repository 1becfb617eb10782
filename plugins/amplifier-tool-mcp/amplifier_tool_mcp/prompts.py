"""Offer the prompts of servers as slash commands: `/mcp:SERVER:PROMPT name=value …`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from .errors import ServerError
from .listing import plain
from .results import read_content, shorten

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from amplifier_core import ModuleCoordinator

    from .config import McpConfig
    from .connection import Connection
    from .listing import ListedPrompt

LONGEST_PROMPT = 100_000
"""Characters of a prompt's text."""


def make_command(
    connection: Connection, prompt: ListedPrompt, coordinator: ModuleCoordinator, config: McpConfig
) -> dict[str, Any]:
    """Return a prompt as a slash command."""
    server = connection.server

    async def expand(argument: str) -> str:
        """Return the prompt's text. Raises `ServerError`."""
        given = read_arguments(prompt, argument)
        answer = await connection.call(lambda client: client.get_prompt(prompt.name, given), config.call_timeout)
        gate = getattr(coordinator, "permissions", None)
        if gate is not None and not server.trusted:
            gate.untrusted = gate.untrusted or f"it has read a prompt of the MCP server {server.name}"
        texts = [text for message in answer.messages for text in read_content([message.content])[0]]
        return shorten("\n\n".join(texts), LONGEST_PROMPT)

    hint = " ".join(f"{name}=…" if name in prompt.needed else f"[{name}=…]" for name in prompt.arguments)
    return {
        "name": f"mcp:{server.slug}:{prompt.name}",
        "description": prompt.description or f"A prompt of the MCP server {server.name}",
        "hint": plain(hint, 200),
        "expand": expand,
    }


def make_pending_command(
    connection: Connection, wait: Callable[[], Awaitable[None]], coordinator: ModuleCoordinator, config: McpConfig
) -> dict[str, Any]:
    """Return the command that stands for all prompts of a server that is not ready: it waits for the server."""
    server = connection.server

    async def expand(argument: str) -> str:
        """Return the text of the prompt that the argument begins with. Raises `ServerError`."""
        await wait()
        name, _, rest = argument.partition(" ")
        prompts = {each.name: each for each in connection.listing.prompts}
        if name in prompts:
            return str(await make_command(connection, prompts[name], coordinator, config)["expand"](rest))
        if not connection.is_ready:
            raise ServerError(connection.describe_missing(config.start_timeout))
        known = ", ".join(prompts) or "none"
        raise ServerError(f"the MCP server '{server.name}' has no prompt {name!r}; it has {plain(known, 500)}")

    return {
        "name": f"mcp:{server.slug}:",
        "description": f"A prompt of the MCP server {server.name}, which is not ready",
        "hint": "PROMPT",
        "expand": expand,
    }


def read_arguments(prompt: ListedPrompt, argument: str) -> dict[str, str]:
    """Return the arguments that a person typed; the only one of a prompt needs no name. Raises `ServerError`."""
    try:
        words = shlex.split(argument)
    except ValueError as error:
        raise ServerError(f"the arguments of '{prompt.name}' cannot be read: {error}") from None
    given: dict[str, str] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if sign and name in prompt.arguments:
            given[name] = value
        elif len(prompt.arguments) == 1:
            return {prompt.arguments[0]: argument.strip()}
        else:
            known = ", ".join(f"{each}=…" for each in prompt.arguments) or "no arguments"
            raise ServerError(f"'{word}' is no argument of the prompt '{prompt.name}'; it takes {known}")
    missing = [name for name in prompt.needed if name not in given]
    if missing:
        raise ServerError(f"the prompt '{prompt.name}' needs {', '.join(f'{each}=…' for each in missing)}")
    return given
