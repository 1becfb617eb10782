"""Find the servers of the current folder as its sessions would, for commands."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from amplifier_core.errors import AmplifierError, BundleError
from amplifier_foundation.cli.app import find_own_bundle, plugins_of, read_bundle_at, read_settings_here

from ..config import NAME, McpConfig, read_config
from ..errors import ServerNotFound
from ..servers import CONFIG, Server, find_servers

if TYPE_CHECKING:
    from collections.abc import Mapping

    import click


class Found(NamedTuple):
    """The servers here."""

    config: McpConfig
    servers: list[Server]
    problems: list[str]
    bundle: str
    """The name of the bundle here with `tool-mcp`; "" where sessions have no servers."""


def find_servers_here(ctx: click.Context) -> Found:
    """Return the servers of the bundle, the settings and the `.mcp.json` here.

    Those of a project that is not trusted are problems. Raises `ValueError` and the errors of settings.
    """
    settings = read_settings_here()
    given, bundle, from_bundle = (settings.get(("overrides", NAME)) or {}).get("config") or {}, "", set[str]()
    if find_own_bundle(settings) is not None:
        with suppress(BundleError):  # `bundle validate` is for it
            loaded = read_bundle_at(None, plugins_of(ctx), settings)
            entry = next((each for each in loaded.tools if each.get("module") == NAME), None)
            if entry is not None:
                own = set(given.get("servers") or {})
                given, bundle = entry.get("config") or {}, loaded.name
                from_bundle = set(given.get("servers") or given.get("mcpServers") or {}) - own
    config = read_config(given)
    every = config.model_copy(
        update={"servers": {name: each.model_copy(update={"enabled": True}) for name, each in config.servers.items()}}
    )
    servers, problems = find_servers(every, Path.cwd(), {})
    shown = [_name_source(each, config.servers.get(each.name), from_bundle, settings.layers) for each in servers]
    return Found(config, shown, problems, bundle)


def _name_source(server: Server, config: Any, from_bundle: set[str], layers: Any) -> Server:
    if server.source != CONFIG:
        return server
    keys = ("overrides", NAME, "config", "servers", server.name)
    holders = [each.source for each in layers if _has(each.values, keys)]
    source = "bundle" if server.name in from_bundle else f"{holders[-1]} settings" if holders else "settings"
    return replace(server, source=source, config=config)


def _has(values: Mapping[str, Any], keys: tuple[str, ...]) -> bool:
    found: Any = values
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found is not None


def find_server(ctx: click.Context, name: str) -> tuple[Found, Server]:
    """Return the server of a name, also one that is not enabled. Raises `ServerNotFound`."""
    found = find_servers_here(ctx)
    for server in found.servers:
        if server.name == name:
            return found, server
    about = [each for each in found.problems if f"the MCP server {name}:" in each or "are left out" in each]
    if about:
        raise AmplifierError("; ".join(about))
    raise ServerNotFound(name, [each.name for each in found.servers])
