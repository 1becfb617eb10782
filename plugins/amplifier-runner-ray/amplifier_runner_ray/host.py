"""Be a Ray actor on a node: fork one session after the other, and carry what its sockets say to the bridge.

The bridge asks by numbers, so that a call may be repeated when the network ate its answer: `read(7)` returns the same
pieces as before, and `write(7)` does nothing a second time. A host that nobody reads from for `CUT` seconds kills its
session: whoever asked for it has lost it, and may have begun it elsewhere.
"""

from __future__ import annotations

import asyncio
import os
import platform
from time import monotonic
from typing import TYPE_CHECKING

from amplifier_foundation.isolation.zygotes import Ends, Zygotes

from .pieces import Pieces

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .pieces import Piece

BEAT = 5.0
"""Most seconds of a `read`: an empty answer is a sign of life."""
CUT = 15.0
"""Seconds without a `read` until a session is killed."""
WATCH = Ends._fields.index("watch")
_HIDDEN = ("RAY_", "_RAY_")
"""Variables of Ray begin so: its addresses and its token are nothing for sessions."""


class Host:
    """One place for a session on a node."""

    def __init__(self) -> None:
        environ = {name: value for name, value in os.environ.items() if not name.startswith(_HIDDEN)}
        self._zygotes = Zygotes(environ=environ)
        self._zygotes.prepare()
        self._pieces: Pieces | None = None
        self._guarding: asyncio.Task[None] | None = None
        self._reading = asyncio.Lock()
        self._read_at = 0.0
        self._last: tuple[int, list[Piece]] = 0, []
        self._written = 0

    async def begin(self, version: str, preload: Iterable[str]) -> str:
        """Fork a child for the next session; return the name of the node. Raises `ValueError` for another version."""
        from amplifier_core import __version__ as own

        if version != own:
            raise ValueError(f"the node {platform.node()} has amplifier {own}, and not {version}: install the same one")
        if self._guarding is not None:
            await self._guarding
        modules = list(preload)
        self._zygotes.learn(modules, {each.partition(".")[0] for each in modules})
        self._last, self._written, self._read_at = (0, []), 0, monotonic()
        ends = await asyncio.to_thread(self._zygotes.fork, "")
        self._pieces = await Pieces(ends).__aenter__()
        self._guarding = asyncio.create_task(self._guard(self._pieces))
        self._zygotes.prepare()
        return platform.node()

    async def read(self, number: int) -> list[Piece]:
        """Return the pieces with this number: what the child has said since the last number; after a while, none."""
        assert self._pieces is not None  # `begin` made them
        async with self._reading:
            if number != self._last[0]:
                pieces: list[Piece] = []
                try:
                    async with asyncio.timeout(BEAT):
                        pieces = await self._pieces.take()
                except TimeoutError:
                    pass
                self._last = number, pieces
            self._read_at = monotonic()
            return self._last[1]

    async def write(self, number: int, pieces: list[Piece]) -> None:
        """Hand the pieces with this number over to the child."""
        assert self._pieces is not None  # `begin` made them
        if number > self._written:
            self._written = number
            self._pieces.give(pieces)

    async def _guard(self, pieces: Pieces) -> None:
        """Close the sockets when the child has closed all of them, or when nobody reads any more."""
        try:
            while not await pieces.wait_ended(1):
                if not self._reading.locked() and monotonic() - self._read_at > CUT:
                    break
        finally:
            await pieces.__aexit__()
