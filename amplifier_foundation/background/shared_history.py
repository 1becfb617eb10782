"""Begin the session of an event with the history of another session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_core.errors import BundleValidationError, SessionNotFound

from ..sessions.forks import fork_place
from ..sessions.stored_history import stored_transcript
from ..spawning.child import share_stored

if TYPE_CHECKING:
    from amplifier_core.storage import DurableStore

    from ..spawning.child import Spawn
    from .state import BackgroundSessionState


async def share_history(spawn: Spawn, store: DurableStore, background: BackgroundSessionState, source: str) -> None:
    """Begin `spawn` with the settled history of `source`; `last` is the session of the last handled event.

    Raises `BundleValidationError` for a missing session, but not for `last`: there is none yet, or somebody deleted it.
    """
    try:
        record = await store.get(await _last_session_id(store, background) if source == "last" else source)
    except SessionNotFound:
        if source == "last":
            return
        remedy = "Name one of: amplifier session list --all, or last"
        raise BundleValidationError(f"fork_from: no session '{source}'. {remedy}") from None
    place = await fork_place(store, record)
    share_stored(spawn, record, stored_transcript(store, record).fork(place.at))
    spawn.turns = place.turns


async def _last_session_id(store: DurableStore, background: BackgroundSessionState) -> str:
    done = await store.deliveries(project=background.project, queue=background.queue, state="done", limit=1)
    if not done or done[0].session_id is None:
        raise SessionNotFound("last")
    return done[0].session_id
