"""Offer the tools, resources and prompts of MCP servers to a session.

The servers are in the module's configuration, in the `.mcp.json` of a trusted project, or come from the editor. Without
any, nothing is imported and nothing starts.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from amplifier_core import ModuleCoordinator

__amplifier_module_type__ = "tool"

EXPLAINED = "permission.tool"
"""The capability with the name of a tool whose permissions are explained, and no session begins."""
EDITOR = "mcp.servers"
"""The capability with the servers of the editor: by name, as in `.mcp.json`."""


def check_config(config: dict[str, Any]) -> list[str]:
    """Return a warning for each server that cannot be started.

    Raises `ValueError`, with the key, for a configuration that cannot work.
    """
    from .config import read_config

    return [f"servers.{name}: {each.problem}" for name, each in read_config(config).servers.items() if each.problem]


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema of the configuration."""
    from .config import McpConfig

    return McpConfig.model_json_schema()


async def mount(
    coordinator: ModuleCoordinator, config: dict[str, Any] | None = None
) -> Callable[[], Awaitable[None]] | None:
    """Start the servers, and mount their tools when they have listed them; return a function that ends them.

    A session waits for them before its first request, up to `start_timeout`. None starts where the permissions of a
    tool are explained. Raises `ValueError`, with the key, for a configuration that cannot work.
    """
    folder, editor = coordinator.get_capability("session.working_dir") or ".", coordinator.get_capability(EDITOR)
    if not config and not editor and not _has_project_file(folder):
        return None
    from .config import read_config
    from .servers import find_servers

    checked = read_config(config or {})
    servers, problems = find_servers(checked, Path(folder), editor or {})
    explained = coordinator.get_capability(EXPLAINED)
    if explained is not None:
        from .tools import find_stand_in

        tool = find_stand_in(explained, servers, checked)
        if tool is not None:
            await coordinator.mount("tools", tool, name=tool.name)
        return None
    from .hub import Hub

    hub = Hub(coordinator, checked, servers, problems)
    hub.start()
    return hub.close


def _has_project_file(folder: str | os.PathLike[str]) -> bool:
    """Return whether there may be one; `read_project` decides."""
    here = Path(os.path.realpath(folder))
    return any((each / ".mcp.json").is_file() for each in (here, *here.parents))
