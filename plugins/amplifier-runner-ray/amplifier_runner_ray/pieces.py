"""Carry what several sockets say as one stream of numbered pieces, in both directions."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable, Sequence

    Piece = tuple[int, bytes]
    """The number of a socket and some of its bytes; none: it is closed."""

SIZE = 2**16
"""Bytes of a piece at the most."""
MOST = 32
"""Pieces that wait to be taken; the sockets are not read meanwhile."""


class Pieces:
    """Some stream sockets of this process in an event loop; `async with` closes them in the end."""

    def __init__(self, sockets: Sequence[socket.socket], killing: Piece = (-1, b"")) -> None:
        self.killed = asyncio.Event()
        """Set as soon as the other end sends the bytes of `killing` over its socket, or closes that."""
        self._killing = killing
        self._sockets = sockets
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._waiting: asyncio.Queue[Piece] = asyncio.Queue(MOST)

    async def __aenter__(self) -> Self:
        for number, each in enumerate(self._sockets):
            each.setblocking(False)
            reader, writer = await asyncio.open_connection(sock=each, limit=SIZE)
            self._writers.append(writer)
            self._tasks.append(asyncio.create_task(self._read(number, reader)))
        return self

    async def __aexit__(self, *exc: object) -> None:
        for task in self._tasks:
            task.cancel()
        for writer in self._writers:
            writer.close()
        await asyncio.wait(self._tasks)

    async def wait_ended(self, seconds: float) -> bool:
        """Return whether all sockets are closed, and their last pieces wait to be taken; wait so long for it."""
        _, left = await asyncio.wait(self._tasks, timeout=seconds)
        return not left

    async def take(self) -> list[Piece]:
        """Return what has come; wait for the first piece."""
        pieces = [await self._waiting.get()]
        while not self._waiting.empty():
            pieces.append(self._waiting.get_nowait())
        return pieces

    def give(self, pieces: Iterable[Piece]) -> None:
        """Write pieces to the sockets, soon, and close those with an empty piece."""
        for number, data in pieces:
            writer = self._writers[number]
            if not data:
                writer.close()
            elif not writer.is_closing():
                writer.write(data)

    async def drain(self) -> None:
        """Wait until the other ends have read most of it."""
        for writer in self._writers:
            with suppress(OSError):  # the other end is closed
                await writer.drain()

    async def _read(self, number: int, reader: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while data := await reader.read(SIZE):
                if number == self._killing[0] and self._killing[1] in data:
                    self.killed.set()
                await self._waiting.put((number, data))
        if number == self._killing[0]:
            self.killed.set()
        await self._waiting.put((number, b""))
