"""Name the failures of servers."""

from __future__ import annotations

from amplifier_core.errors import AmplifierError

EFFECT = "The call may have had an effect"
UNREADABLE = "Failed to parse JSON response"
"""The words of a transport, and of the SDK's, for an answer that is no message."""


class ServerError(AmplifierError):
    """A server cannot be used now; the message says why, and what to do."""


def describe_error(error: BaseException) -> str:
    """Return the text of an error, with its remedy if it has one, or its class for one without a text."""
    text, remedy = str(error) or type(error).__name__, vars(error).get("remedy")
    return f"{text}. {remedy.rstrip('.')}" if remedy and remedy not in text else text


class ServerLost(ServerError):
    """A server ended, or its connection broke, during a request."""


class InvalidAnswer(ServerError):
    """A server answers a request with something that is no answer of the protocol: the call may have had an effect."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"the MCP server '{name}' answers against the protocol ({problem}). {EFFECT}")


class CallRefused(ServerError):
    """A server refuses a request by the status of HTTP alone."""

    def __init__(self, name: str, status: int) -> None:
        remedy = "Try again later" if status == 429 else "Check its address and its headers"
        super().__init__(f"the MCP server '{name}' refuses the call (HTTP {status}). {remedy}")


class ToolChanged(ServerError):
    """A server has changed or removed a tool since the session began."""


class ServerNotFound(ServerError, LookupError):
    """No server has this name."""

    def __init__(self, name: str, known: list[str]) -> None:
        listed = f"There are {', '.join(known)}" if known else "There is none"
        super().__init__(f"no MCP server is called '{name}'. {listed}. Add one: amplifier mcp add NAME -- COMMAND")
