"""Begin the conversation with the editor: `initialize` and `authenticate`, for which nothing else is imported."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from amplifier_core.entry_points import find_entry_points

from .peer import INVALID_PARAMS, RpcError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .peer import Params

VERSION = 1
"""The version of the protocol."""
MCP = "tool-mcp"
"""The module that mounts MCP servers."""
_KEYLESS = ("provider-playbook", "provider-replay", "provider-ollama")


class Handshake:
    """Knows what the editor can do."""

    def __init__(self) -> None:
        self._client: dict[str, Any] = {}

    @property
    def shows_children(self) -> bool:
        """Whether the editor understands the sessions below another one."""
        return isinstance(self._client.get("subagents"), dict)

    def offers(self, *names: str) -> bool:
        """Return whether a capability of the editor, at a path of names, is true."""
        found: Any = self._client
        for name in names:
            found = found.get(name) if isinstance(found, dict) else None
        return found is True

    async def initialize(self, params: Params) -> dict[str, Any]:
        """Answer with the version and the abilities of this agent."""
        wanted = params.get("protocolVersion")
        if isinstance(wanted, bool) or not isinstance(wanted, int) or not 0 <= wanted < 1 << 16:
            raise RpcError(INVALID_PARAMS, "protocolVersion: must be a number from 0 to 65535")
        capabilities = params.get("clientCapabilities")
        self._client = capabilities if isinstance(capabilities, dict) else {}
        return {
            "protocolVersion": VERSION,
            "agentInfo": {"name": "amplifier", "title": "Amplifier", "version": version("amplifier")},
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
                "mcpCapabilities": {"http": mounts_servers(), "sse": False},
                "sessionCapabilities": {name: {} for name in ("list", "delete", "resume", "close", "fork")},
            },
            "authMethods": list(_list_logins()) if self.offers("auth", "terminal") else [],
        }

    async def authenticate(self, params: Params) -> dict[str, Any]:
        """Refuse: keys are kept by `amplifier auth login`, in a terminal."""
        raise RpcError(INVALID_PARAMS, "methodId: none is called; keep a key with: amplifier auth login PROVIDER")


def mounts_servers() -> bool:
    """Return whether MCP servers of the editor can be mounted: their module is installed."""
    return any(entry.name == MCP for entry in find_entry_points("amplifier.modules"))


def _list_logins() -> Iterator[dict[str, Any]]:
    """Yield a login for each installed provider with a key; the editor runs it in a terminal of its own."""
    for entry in find_entry_points("amplifier.modules"):
        if entry.name.startswith("provider-") and entry.name not in _KEYLESS:
            name = entry.name.removeprefix("provider-")
            described = {"name": f"Key of {name}", "description": f"Runs: amplifier auth login {name}"}
            yield {"type": "terminal", "id": f"login-{name}", **described, "args": ["--login", name]}
