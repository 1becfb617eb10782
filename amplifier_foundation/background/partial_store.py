"""Complete a storage without an inbox: its sessions stay in it, events and deliveries are kept in memory."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, cast

from amplifier_core.storage import Inbox, SessionStorage, SessionStore

from ..sessions.session_storage import as_session_store

if TYPE_CHECKING:
    from amplifier_core.storage import DurableStore

logger = logging.getLogger(__name__)


def complete_store(storage: DurableStore | SessionStore | SessionStorage | None) -> DurableStore:
    """Return a store for background sessions: `storage` itself, or one that keeps the missing parts in memory.

    Without durable deliveries, the end of the process loses the waiting events; a warning says so.
    """
    if storage is None:
        from amplifier_core.testing import MemoryStore

        return MemoryStore()
    store = as_session_store(storage)
    if isinstance(store, Inbox):
        return cast("DurableStore", store)
    from .memory_inbox import MemoryInboxStore

    logger.warning(
        "%s keeps no inbox: events that wait for background sessions are kept in memory, and lost when the process "
        "ends. storage-sqlite keeps them",
        type(storage).__name__,
    )
    return cast("DurableStore", MemoryInboxStore(store))
