"""Offer background sessions, with a constructor and a method more; `amplifier_foundation.background` defines them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import amplifier_foundation.background as ours
from amplifier_core.errors import SessionNotFound
from amplifier_foundation.background import BackgroundSessionState

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["BackgroundSessionConfig", "BackgroundSessionManager", "BackgroundSessionState"]


class BackgroundSessionConfig(ours.BackgroundSessionConfig):
    """One background session; `name`, `bundle` and `triggers` may be given by position."""

    def __init__(self, name: str, bundle: str | None = None, triggers: list[Any] | None = None, **options: Any) -> None:
        super().__init__(name=name, bundle=bundle, triggers=[] if triggers is None else triggers, **options)


class BackgroundSessionManager(ours.BackgroundSessionManager):
    """Starts, watches and stops the background sessions of one parent session."""

    async def fire_manual(self, session_id: str, data: Mapping[str, Any] | None = None) -> bool:
        """Wake a background session by hand, as `fire` does; False also for an unknown one."""
        try:
            return await self.fire(session_id, data)
        except SessionNotFound:
            return False
