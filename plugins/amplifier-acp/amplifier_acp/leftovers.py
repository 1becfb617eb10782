"""Delete what an agent that was killed has left: forks that were not to be kept, and sessions without a message.

A session that another process has opened since is somebody's, and one of the last hour may be opened again by the
editor whose agent was killed.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import SessionNotFound

from .options import EPHEMERAL, MADE_HERE, chosen_of

if TYPE_CHECKING:
    from datetime import datetime

    from amplifier_core.storage import SessionRecord, SessionStore

logger = logging.getLogger(__name__)

ALONE_FOR = timedelta(hours=1)
"""How long ago a session was changed that is left."""
NEWEST = 1_000
"""Sessions that are looked at, the last changed: a start takes no longer where there are more."""


def made_here(session_id: str) -> dict[str, Any]:
    """Return the metadata of a session that this process makes."""
    from amplifier_foundation.sessions.presence import KEY, this_process

    process = this_process()
    return {MADE_HERE: [session_id, process], KEY: process}


async def clear_leftovers(store: SessionStore, now: datetime) -> None:
    """Delete what nobody needs and no living process has made, or has open; a problem is logged."""
    try:
        for record in await store.sessions(limit=NEWEST):
            if now - record.updated > ALONE_FOR and _is_left(record):
                with suppress(SessionNotFound):  # another agent was faster
                    await store.delete(record.session_id)
    except Exception as error:  # the store may be locked, or full: the next agent tries again
        logger.info("what a killed agent has left cannot be deleted for now: %s", error)


def _is_left(record: SessionRecord) -> bool:
    from amplifier_foundation.sessions.lock import holder_of
    from amplifier_foundation.sessions.presence import KEY, is_gone

    process = record.metadata.get(KEY)
    if not isinstance(process, str) or record.metadata.get(MADE_HERE) != [record.session_id, process]:
        return False
    if record.message_count and not chosen_of(record).get(EPHEMERAL):
        return False
    return is_gone(process) and holder_of(record.session_id) is None
