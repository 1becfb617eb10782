"""Read the lines of a caller at stdin, in a thread that holds up no end of the program."""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MOST_WAITING = 16
"""Lines that are read before the first of them is handled."""


async def read_stdin() -> AsyncIterator[str]:
    """Yield the lines of stdin; whatever else reads it from here on finds its end.

    Bytes that are no UTF-8 are replaced.
    """
    stream = open(os.dup(0), encoding="utf-8", errors="replace")  # noqa: ASYNC230, PTH123, SIM115 - it has no path
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    loop, room = asyncio.get_running_loop(), threading.Semaphore(MOST_WAITING)
    lines: asyncio.Queue[str | None] = asyncio.Queue()

    def read() -> None:
        with suppress(RuntimeError):  # the loop is closed
            with suppress(OSError):  # its terminal is gone
                for line in stream:
                    room.acquire()
                    loop.call_soon_threadsafe(lines.put_nowait, line)
            loop.call_soon_threadsafe(lines.put_nowait, None)

    threading.Thread(target=read, name="stdin", daemon=True).start()
    while (line := await lines.get()) is not None:
        room.release()
        yield line
