"""Tell an editor of the sessions below its sessions: agents at work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from amplifier_core.hook_data import SpawnOutcome, SpawnRequest

    from .handshake import Handshake
    from .peer import Peer

_REASONS = {"completed": "end_turn", "cancelled": "cancelled"}


class Children:
    """A plugin that hears of each spawned session; an editor that does not understand them is told nothing."""

    def __init__(self, peer: Peer, handshake: Handshake) -> None:
        self._peer = peer
        self._handshake = handshake

    @hookimpl
    async def amplifier_before_spawn(self, request: SpawnRequest) -> None:
        """Announce a session on the one above it."""
        title = str(request.metadata.get("name") or request.bundle)
        self._tell(request.parent_id, request.session_id, {"title": title, "state": {"state": "running"}})

    @hookimpl
    async def amplifier_after_spawn(self, result: SpawnOutcome) -> None:
        """Tell that a session has ended."""
        reason = _REASONS.get(result.status, "error")
        self._tell(result.parent_id, result.session_id, {"state": {"state": "idle", "stopReason": reason}})

    def _tell(self, parent_id: str | None, session_id: str, told: dict[str, Any]) -> None:
        if parent_id and self._handshake.shows_children:
            update = {"sessionUpdate": "subagent_update", "sessionId": session_id, **told}
            self._peer.update(parent_id, update)
