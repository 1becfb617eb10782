"""Find the clock by which it is decided what is old, due or expired in a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_core.clock import SystemClock

if TYPE_CHECKING:
    from amplifier_core.clock import Clock
    from amplifier_core.storage import SessionStore


async def clock_of(store: SessionStore) -> Clock:
    """Return the clock that counts for what is stored: of a store that hosts share its own, else that of this machine.

    Raises `StoreUnavailable`.
    """
    if hasattr(store, "fenced"):  # most stores have not: the contract is not even imported
        from amplifier_core.shared_stores import SharedStore

        from .hosts.clock import StoreClock

        if isinstance(store, SharedStore):
            clock = StoreClock()
            await clock.follow(store)
            return clock
    return SystemClock()
