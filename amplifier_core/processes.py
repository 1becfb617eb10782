"""Tell a lack of threads and processes from other errors: their classes do not."""

from __future__ import annotations

import errno
import os

from .errors import SessionProcessEnded

REMEDY = "End other processes, or raise the limits: ulimit -u, ulimit -v, or those of the container"
NO_PROCESS = f"no thread or process can be started. {REMEDY}"
"""What people are told of it."""
_NO_THREAD = "can't start new thread"
_NOT_STARTED = f"cannot be started: {os.strerror(errno.EAGAIN)}"
_STARTING = ("multiprocessing", "subprocess")


def lacks_processes(error: BaseException) -> bool:
    """Return whether an error tells of a system without room for another thread or process.

    Python has no class for it, and the end of a session's process has words alone; the same words in the text of a
    service say nothing. `EAGAIN` says it where a process is started; elsewhere it is that of a lock or a socket.
    """
    if type(error) is RuntimeError:
        return str(error) == _NO_THREAD
    if isinstance(error, SessionProcessEnded):
        return error.cause.endswith((_NO_THREAD, _NOT_STARTED))
    if not isinstance(error, OSError) or error.errno != errno.EAGAIN or (trace := error.__traceback__) is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    return str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0] in _STARTING
