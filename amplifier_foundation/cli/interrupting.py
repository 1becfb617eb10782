"""Answer Ctrl-C while no event loop does."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from . import exits

if TYPE_CHECKING:
    from collections.abc import Iterator


def interrupt(number: int, frame: object) -> None:
    """Raise `KeyboardInterrupt`; within an import, end the process at once.

    An import that is interrupted may keep its lock, and another thread that imports would hold up the end for ever.
    """
    while isinstance(frame, FrameType):
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os.write(2, b"amplifier: interrupted\n")
            os._exit(exits.INTERRUPTED)
        frame = frame.f_back
    raise KeyboardInterrupt


@contextmanager
def interrupts_to_loop() -> Iterator[None]:
    """Leave Ctrl-C to `asyncio.run` while the block runs: that looks for the handler of Python."""
    is_ours = signal.getsignal(signal.SIGINT) is interrupt
    if is_ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, interrupt)
