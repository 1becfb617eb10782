"""Define how a session asks its user for permission."""

from __future__ import annotations

from typing import Literal, Protocol, runtime_checkable


class ApprovalTimeoutError(Exception):
    """Nobody answered in time; the default of the question stands."""


@runtime_checkable
class ApprovalSystem(Protocol):
    """Puts questions to the user."""

    async def request_approval(
        self,
        prompt: str,
        options: list[str],
        timeout: float,  # noqa: ASYNC109 - a published signature
        default: Literal["allow", "deny"],
    ) -> str:
        """Return the chosen option.

        Raises `ApprovalTimeoutError` when `timeout` seconds pass without an answer.
        """
        ...
