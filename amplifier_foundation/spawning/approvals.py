"""Ask for the permissions of child sessions: at the parent's approval system, one at a time, and by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import asyncio

    from amplifier_core.approval import ApprovalSystem


class ChildApprovals:
    """Puts a child's questions to the approval system of the session at the top of its tree.

    Siblings wait for each other. A question begins with the name of its session, unless the system shows the name
    itself (`tells_who = True`).
    """

    def __init__(self, outer: ApprovalSystem, who: str, turn: asyncio.Lock) -> None:
        self._outer = outer
        self._who = who
        self._turn = turn

    @classmethod
    def of(cls, outer: ApprovalSystem, who: str, turn: asyncio.Lock) -> ChildApprovals:
        """Return the approval system of the child `who` of a parent with `outer`; their whole tree shares `turn`."""
        if isinstance(outer, cls):
            return cls(outer._outer, f"{outer._who} > {who}", turn)
        return cls(outer, who, turn)

    async def request_approval(
        self,
        prompt: str,
        options: list[str],
        timeout: float,  # noqa: ASYNC109 - a published signature
        default: Literal["allow", "deny"],
    ) -> str:
        """Return the chosen option; the time limit begins with this child's turn."""
        asked = prompt if getattr(self._outer, "tells_who", False) else f"{self._who}: {prompt}"
        async with self._turn:
            return await self._outer.request_approval(asked, options, timeout, default)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._outer, name)
