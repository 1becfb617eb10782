"""Take up what a person changes in a bundle while its background sessions run."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from amplifier_core.errors import AmplifierError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ..bundles.model import Bundle
    from ..up import Up

    Stamps = dict[str, tuple[int, int, int] | None]

logger = logging.getLogger(__name__)

LOOK_EVERY = 1.0
"""Seconds between two looks at a bundle's files."""


class Reloading:
    """Loads bundles anew when a file of theirs has changed, or when `ask` is called.

    One that cannot be loaded changes nothing: the error is told to `tell`, once, and what ran runs on.
    """

    def __init__(
        self, running: Sequence[Up], load: Callable[[Path], Awaitable[Bundle]], tell: Callable[[str], None]
    ) -> None:
        self._running = running
        self._load = load
        self._tell = tell
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Have the bundles looked at now, whatever their files' times say."""
        self._asked.set()

    async def run(self) -> None:
        """Look at the bundles' files until cancelled."""
        seen: dict[int, Stamps] = {}  # none: a bundle may have changed since it was loaded
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY):
                    await self._asked.wait()
            asked = self._asked.is_set()
            self._asked.clear()
            for up in self._running:
                now = await asyncio.to_thread(_stamps, up.bundle)
                if asked or now != seen.get(id(up)):
                    await self._reload(up)
                    after = await asyncio.to_thread(_stamps, up.bundle)
                    seen[id(up)] = {name: now.get(name, stamp) for name, stamp in after.items()}

    async def _reload(self, up: Up) -> None:
        assert up.bundle.source_path is not None  # what is watched was read from a file
        try:
            bundle = await self._load(up.bundle.source_path)
            if bundle.digest == up.bundle.digest:
                return
            changed = await up.reconcile(bundle)
        except AmplifierError as error:
            self._tell(f"{up.bundle.source_path} has changed and is not taken up: {error}")
        else:
            self._tell(f"{up.bundle.source_path} has changed: {', '.join(changed) or 'nothing that runs'}")


def _stamps(bundle: Bundle) -> Stamps:
    return {name: _stamp(name) for name in bundle.origins}


def _stamp(name: str) -> tuple[int, int, int] | None:
    try:
        found = Path(name).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
