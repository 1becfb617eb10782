"""Tell a lack of threads and processes from other errors: their classes do not."""

from __future__ import annotations

import errno
import os

REMEDY = "End other processes, or raise the limits: ulimit -u, ulimit -v, or those of the container"
NO_PROCESS = f"no thread or process can be started. {REMEDY}"
"""What people are told of it."""
_WORDS = ("can't start new thread", f"cannot be started: {os.strerror(errno.EAGAIN)}")
_STARTING = ("multiprocessing", "subprocess")


def lacks_processes(error: BaseException) -> bool:
    """Return whether an error tells of a system without room for another thread or process.

    A process that failed so tells it in words alone. `EAGAIN` says it where a process is started; elsewhere it is that
    of a lock or a socket.
    """
    if any(words in str(error) for words in _WORDS):
        return True
    if not isinstance(error, OSError) or error.errno != errno.EAGAIN or (trace := error.__traceback__) is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    return str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0] in _STARTING
