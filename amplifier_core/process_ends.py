"""Bring things to their end with this process: calls of modules, and the processes of ended sessions.

A process that runs a single session ends without `atexit`; the calls are made there, too.
"""

from __future__ import annotations

import atexit
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import Task
    from collections.abc import Callable

logger = logging.getLogger(__name__)

_calls: list[Callable[[], object]] = []
_endings: set[Task[None]] = set()
_has_lost_parent = False


def at_process_end(call: Callable[[], object]) -> None:
    """Call `call` when this process ends in order; it should take a few seconds at most."""
    if not _calls:
        atexit.register(run_process_ends)
    _calls.append(call)


def run_process_ends() -> None:
    """Make the calls, the last one first; each of them once."""
    while _calls:
        try:
            _calls.pop()()
        except Exception:
            logger.exception("a call at the end of the process failed")


def note_lost_parent() -> None:
    """Note that the process which keeps what comes of this one's session is gone: the turn counts as killed."""
    global _has_lost_parent
    _has_lost_parent = True


def has_lost_parent() -> bool:
    """Return whether nobody keeps what comes of this process any more; the next attempt tells of its turn."""
    return _has_lost_parent


def add_ending(task: Task[None]) -> None:
    """Have `finish_endings` wait for a task that ends by itself, within seconds."""
    _endings.add(task)
    task.add_done_callback(_endings.discard)


async def finish_endings() -> None:
    """Wait for the added tasks of this loop, before it is closed."""
    if not _endings:
        return
    import asyncio

    loop = asyncio.get_running_loop()
    waits = {each for each in _endings if each.get_loop() is loop}
    if waits:
        await asyncio.wait(waits)
