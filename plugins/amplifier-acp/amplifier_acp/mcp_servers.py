"""Hand the MCP servers of the editor to the module `tool-mcp` of a session, by a capability: its plan is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .handshake import MCP, mounts_servers
from .params import McpServer, check
from .peer import INVALID_PARAMS, RpcError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_foundation.bundle.model import Bundle

CAPABILITY = "mcp.servers"
"""The capability with the servers of the editor: by name, as in `.mcp.json`."""


def read_servers(given: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the servers of a request by name. Raises `RpcError` for what this agent does not offer, by its name."""
    servers: dict[str, Any] = {}
    for each in (check(McpServer, one) for one in given):
        if not mounts_servers():
            raise _refuse(f"{each.name}: {MCP} is not installed. Install it with: pip install amplifier-{MCP}")
        if each.type not in (None, "stdio", "http"):
            raise _refuse(f"{each.name}: the transport {each.type} is not offered by this agent")
        if each.name in servers:
            raise _refuse(f"{each.name}: is given twice")
        if (each.url if each.type == "http" else each.command) is None:
            raise _refuse(f"{each.name}: has no {'url' if each.type == 'http' else 'command'}")
        servers[each.name] = _spell(each)
    return servers


def add_module(bundle: Bundle, servers: dict[str, Any]) -> None:
    """Have a session mount the servers of its editor, also where its bundle has none."""
    if servers and not any(entry.get("module") == MCP for entry in bundle.tools):
        bundle.tools.append({"module": MCP})


def _spell(server: McpServer) -> dict[str, Any]:
    """Return a server as `.mcp.json` spells it; its secrets are hidden in every text from now on."""
    from amplifier_core.utils.secrets import hide_secret, is_secret_variable

    target: dict[str, Any] = {"url": server.url}
    if server.type != "http":
        target = {"command": server.command, "args": server.args or []}
    for key, pairs in (("env", server.env), ("headers", server.headers)):
        if pairs:
            target[key] = {pair.name: pair.value for pair in pairs}
            for pair in pairs:
                if is_secret_variable(pair.name):
                    hide_secret(pair.value.removeprefix("Bearer "))
    return target


def _refuse(text: str) -> RpcError:
    return RpcError(INVALID_PARAMS, f"mcpServers: {text}", {"member": "mcpServers"})
