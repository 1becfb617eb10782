"""End this process when no Python code of it can run: C code of a tool keeps the lock of the interpreter for too long.

No time limit, no signal handler and no thread can act then, as all of them are Python. A timer of the system ends the
process as a kill does, after the stacks of its threads are written to stderr; the next start goes on from the store.

The timer counts the processor time of this process: one that is stopped or suspended, or whose machine is, uses none.
C code that keeps the lock and waits is not noticed; the watchdog of a service manager ends that.
"""

from __future__ import annotations

import faulthandler
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = 60.0
"""Seconds of processor time without a turn of Python code."""
TURN_EVERY = 1.0
"""Seconds."""
STDERR = 2
"""Its descriptor, which a rotated log keeps."""


@contextmanager
def ending_when_frozen() -> Iterator[None]:
    """Watch this process while the block runs."""
    ended = threading.Event()

    def rearm() -> None:
        while not ended.is_set():
            signal.setitimer(signal.ITIMER_PROF, LIMIT)
            ended.wait(TURN_EVERY)

    watch = threading.Thread(target=rearm, name="freeze watch", daemon=True)
    faulthandler.register(signal.SIGPROF, file=STDERR, chain=True)  # then the signal ends the process
    watch.start()
    try:
        yield
    finally:
        ended.set()
        watch.join()
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        faulthandler.unregister(signal.SIGPROF)
