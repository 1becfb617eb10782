"""Define what a store may answer about its sessions without a look at all of them.

A store may implement `SessionQueries`; `amplifier_core.testing.store_checks` tests it against that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from .contracts import Contract

if TYPE_CHECKING:
    from .storage import SessionRecord

__all__ = ["SessionQueries"]


@runtime_checkable
class SessionQueries(Protocol, metaclass=Contract):
    """Find the sessions below one, and those with a member in their metadata. Damaged records are listed, too."""

    async def sessions_below(self, session_id: str, *, limit: int | None = None) -> list[SessionRecord]:
        """Return at most `limit` sessions below a session, those above first.

        A fork stands below its source, and every other session below its parent. An unknown session has none.
        """
        ...

    async def sessions_with(
        self, member: str, *, project: str | None = None, limit: int | None = None
    ) -> list[SessionRecord]:
        """Return sessions with this member in their metadata, the last updated first: of one project, or all."""
        ...
