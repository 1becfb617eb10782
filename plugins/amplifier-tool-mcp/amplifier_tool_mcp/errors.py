"""Name the failures of servers."""

from __future__ import annotations

from amplifier_core.errors import AmplifierError


class ServerError(AmplifierError):
    """A server cannot be used now; the message says why, and what to do."""


class ServerLost(ServerError):
    """A server ended, or its connection broke, during a request."""


class ToolChanged(ServerError):
    """A server has changed or removed a tool since the session began."""


class ServerNotFound(ServerError, LookupError):
    """No server has this name."""

    def __init__(self, name: str, known: list[str]) -> None:
        listed = f"There are {', '.join(known)}" if known else "There is none"
        super().__init__(f"no MCP server is called '{name}'. {listed}. Add one: amplifier mcp add NAME -- COMMAND")
