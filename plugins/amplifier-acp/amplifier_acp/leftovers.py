"""Delete what an agent that was killed has left: forks that were not to be kept, and sessions without a message."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import SessionNotFound

from .options import EPHEMERAL, chosen_of

if TYPE_CHECKING:
    from amplifier_core.storage import SessionRecord, SessionStore

logger = logging.getLogger(__name__)

MADE_HERE = "made_in_editor"
"""The member of a record's metadata with the id of its session; a fork has inherited that of its source."""
NEWEST = 1_000
"""Sessions that are looked at, the last changed: a start takes no longer where there are more."""


def made_here(session_id: str) -> dict[str, Any]:
    """Return the metadata of a session that this process makes."""
    from amplifier_foundation.sessions.presence import KEY, this_process

    return {MADE_HERE: session_id, KEY: this_process()}


async def clear_leftovers(store: SessionStore) -> None:
    """Delete what nobody needs and no living process has made, or has open; a problem is logged."""
    try:
        for record in await store.sessions(limit=NEWEST):
            if _is_left(record):
                with suppress(SessionNotFound):  # another agent was faster
                    await store.delete(record.session_id)
    except Exception as error:  # the store may be locked, or full: the next agent tries again
        logger.info("what a killed agent has left cannot be deleted for now: %s", error)


def _is_left(record: SessionRecord) -> bool:
    from amplifier_foundation.sessions.lock import holder_of
    from amplifier_foundation.sessions.presence import KEY, is_gone

    if record.metadata.get(MADE_HERE) != record.session_id:
        return False
    if record.message_count and not chosen_of(record).get(EPHEMERAL):
        return False
    process = record.metadata.get(KEY)
    return isinstance(process, str) and is_gone(process) and holder_of(record.session_id) is None
