"""Import what the first event needs, once a start has told that all triggers are armed."""

from __future__ import annotations

import asyncio
from importlib import import_module

NEEDED = (
    "amplifier_foundation.background.handling",
    "amplifier_foundation.spawn",
    "amplifier_foundation.sources",
    "amplifier_core.models",
)


async def import_for_events() -> None:
    """Import in a thread what handles events; an event that is faster imports it itself."""
    for name in NEEDED:
        await asyncio.to_thread(import_module, name)
