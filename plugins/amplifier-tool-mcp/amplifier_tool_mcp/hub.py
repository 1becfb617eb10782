"""Hold the servers of one session: start them, mount what they list, offer their prompts, and end them.

The servers start side by side when the module is mounted. The session waits for them before its first request, up to
`start_timeout`; the tools of one that is slower are mounted when it has listed them, and offered from the next turn on.
"""

from __future__ import annotations

import asyncio
import logging
import math
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any

from .connection import Connection
from .listing import MOST_TOOLS, plain
from .names import make_tool_name
from .tools import PROGRESS, McpTool, ResourceTool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_core import ModuleCoordinator
    from amplifier_core.models import HookResult

    from .config import McpConfig
    from .servers import Server

COMMANDS = "prompt.commands"
"""The channel with the slash commands of modules."""
ANNOUNCEMENTS = "observability.events"
"""The channel with the events of modules."""
BEGINNINGS = ("session:start", "session:resume")
COMMANDS_WITHIN = 1.5
"""Seconds that a list of slash commands waits for servers; who asks gives up after two."""
SHOWN = 5
"""Problems of one list that are told."""
logger = logging.getLogger(__name__)


class Hub:
    """The servers of one session."""

    def __init__(
        self,
        coordinator: ModuleCoordinator,
        config: McpConfig,
        servers: Sequence[Server],
        problems: Sequence[str] = (),
    ) -> None:
        self._problems = problems
        self._coordinator = coordinator
        self._config = config
        self._connections = [Connection(each, self._take) for each in servers]
        self._tasks: dict[Connection, asyncio.Task[None]] = {}
        self._tools: dict[Connection, dict[str, McpTool]] = {each: {} for each in self._connections}
        self._names: dict[str, str] = {}
        self._resources: ResourceTool | None = None
        self._told: set[str] = set()
        self._deadline = 0.0

    def start(self) -> None:
        """Start the servers."""
        self._deadline = asyncio.get_running_loop().time() + self._config.start_timeout
        for each in self._connections:
            self._tasks[each] = asyncio.create_task(each.run(), name=f"mcp-{each.server.name}")
        for event in BEGINNINGS:
            self._coordinator.hooks.register(event, self._begin, name="tool-mcp")
        self._coordinator.register_contributor(COMMANDS, "tool-mcp", self._list_commands)
        self._coordinator.register_contributor(ANNOUNCEMENTS, "tool-mcp", lambda: [PROGRESS])

    async def close(self) -> None:
        """End the servers, side by side."""
        await asyncio.gather(*(each.close(task) for each, task in self._tasks.items()))

    def warn(self, text: str) -> None:
        """Tell the person, once."""
        if text in self._told:
            return
        self._told.add(text)
        shown = plain(text, 1000)
        if self._coordinator.display_system is not None:
            self._coordinator.display_system.show_message(shown, "warning", "tool-mcp")
        else:
            logger.warning("%s", shown)

    async def _wait(self, connections: Sequence[Connection], seconds: float = math.inf) -> None:
        """Wait until each of these servers has listed its tools, or failed, up to `start_timeout` or `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(min(self._deadline, asyncio.get_running_loop().time() + seconds)):
                for each in connections:
                    await each.is_settled.wait()

    async def _begin(self, event: str, data: dict[str, Any]) -> HookResult:
        """Let the session begin when its servers are there, and tell which are missing."""
        from amplifier_core.models import HookResult

        await self._wait(self._connections)
        for problem in self._problems:
            self.warn(problem)
        for each in self._connections:
            if not each.is_ready:
                self.warn(each.describe_missing(self._config.start_timeout))
        return HookResult()

    async def _take(self, connection: Connection) -> None:
        """Mount the tools that a server lists, and have those refused that it has changed or removed since."""
        server, known = connection.server, self._tools[connection]
        left_out = [*connection.listing.left_out]
        listed = {each.name: each for each in connection.listing.tools if _is_wanted(each.name, server.config.tools)}
        for name, each in listed.items():
            tool = known.get(name)
            if tool is None and len(known) >= MOST_TOOLS:  # tools stay mounted; it may list others for ever
                left_out.append(
                    f"its tool {plain(name, 100)!r} is left out: it had {MOST_TOOLS} others in this session"
                )
            elif tool is None:
                chosen = make_tool_name(server.slug, name, self._names)
                tool = known[name] = McpTool(connection, each, chosen, self._coordinator, self._config)
                await self._coordinator.mount("tools", tool, name=chosen)
            elif tool.listed.fingerprint != each.fingerprint:
                tool.refusal = (
                    f"the MCP server '{server.name}' has changed the description of its tool "
                    f"'{plain(name, 100)}' since this session began; the tool is not called any more. "
                    "A new session asks about it again"
                )
                self.warn(tool.refusal)
            else:
                tool.refusal = ""
        for name, tool in known.items():
            if name not in listed:
                tool.refusal = f"the MCP server '{server.name}' has the tool '{plain(name, 100)}' no longer"
        for problem in left_out[:SHOWN]:
            self.warn(f"the MCP server '{server.name}': {problem}")
        if len(left_out) > SHOWN:
            self.warn(f"the MCP server '{server.name}': {len(left_out) - SHOWN} more problems like these")
        if connection.listing.has_resources:
            await self._offer_resources(connection)

    async def _offer_resources(self, connection: Connection) -> None:
        if self._resources is None:
            self._resources = ResourceTool(self._config)
        self._resources.connections[connection.server.name] = connection
        await self._coordinator.mount("tools", self._resources, name=self._resources.name)

    async def _list_commands(self) -> list[dict[str, Any]]:
        """Return the prompts of the servers as slash commands; of one that is not ready, one for all of them."""
        from .prompts import make_command, make_pending_command

        await self._wait(self._connections, COMMANDS_WITHIN)
        offered = []
        for each in self._connections:
            if each.is_ready:
                offered += [
                    make_command(each, prompt, self._coordinator, self._config) for prompt in each.listing.prompts
                ]
            else:
                wait = partial(self._wait, [each])
                offered.append(make_pending_command(each, wait, self._coordinator, self._config))
        return offered


def _is_wanted(name: str, patterns: list[str] | None) -> bool:
    return patterns is None or any(fnmatchcase(name, each) for each in patterns)
