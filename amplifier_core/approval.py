"""Define how a session asks its user for permission."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from .contracts import Contract

if TYPE_CHECKING:
    from .coordinator import ModuleCoordinator
    from .models import HookResult


class ApprovalTimeoutError(Exception):
    """Nobody answered in time; the default of the question stands."""


@runtime_checkable
class ApprovalSystem(Protocol, metaclass=Contract):
    """Puts questions to the user.

    After a newline, a prompt about a tool call has what the call would change, where its tool says so (`previews`). A
    system with `shows_previews = False` gets no such prompts.
    """

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


@runtime_checkable
class DeferredApprovals(ApprovalSystem, Protocol, metaclass=Contract):
    """Puts questions about tool calls aside, to be answered when the session has ended."""

    async def answer_call(self, coordinator: ModuleCoordinator, question: HookResult) -> HookResult:
        """Return `continue` for an approved call, else `deny`.

        The data of `question` is that of the call's `tool:pre`, and `approval_preview` what the call would change. A
        denial with `held` in its data is no answer yet: the
        orchestrator leaves the call without a result and ends the turn. Only one with `holds_calls` is asked to.
        """
        ...
