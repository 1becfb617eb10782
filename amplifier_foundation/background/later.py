"""Import what the first event needs, once a start has told that all triggers are armed."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING

from .tasks import run_beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NEEDED = (
    "amplifier_foundation.background.handling",
    "amplifier_foundation.spawn",
    "amplifier_foundation.sources",
    "amplifier_core.models",
)


@asynccontextmanager
async def importing_for_events() -> AsyncIterator[None]:
    """Import in a thread what handles events while the block runs; an event that is faster imports it itself."""

    async def import_each() -> None:
        for name in NEEDED:
            with suppress(Exception):  # no descriptor may be free: the event that needs it tells that
                await asyncio.to_thread(import_module, name)

    async with run_beside(import_each(), "imports for events"):
        yield
