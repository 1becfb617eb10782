"""Be the first process of a container: run the program as a child, hand signals to it, and reap what ends.

The kernel drops a signal to process 1 that no handler takes, and makes it the parent of each process without one.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress

_FAULTS = {signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGTRAP}
_OF_JOBS = {signal.SIGSTOP, signal.SIGCONT, signal.SIGTTIN, signal.SIGTTOU}
"""What stops and continues a process group, so the child as well."""
_HEARD = signal.valid_signals() - _FAULTS - _OF_JOBS - {signal.SIGKILL}
_FROM_TERMINAL = {signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGWINCH}
"""What a terminal sends to the child as well."""


def run_as_child() -> None:
    """Return in a child; this process watches it, and ends with its exit code.

    Where no process can be started, it returns in this one.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)  # a signal of before the fork waits for the child
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # else, where it is ignored, nothing is left to reap
    child = 0
    with suppress(OSError):
        child = os.fork()
    if child:
        os._exit(_watch(child))
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _watch(child: int) -> int:
    """Hand signals to a child and reap processes; return the child's exit code, as a shell tells it."""
    while True:
        pid = -1
        while pid:  # at first, too: one of before has ended, perhaps, and no signal comes again
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == child:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
        heard = signal.sigwaitinfo(_HEARD)
        is_ours = heard.si_code <= 0 or heard.si_signo not in _FROM_TERMINAL  # a process has sent it, or it is for one
        if is_ours and heard.si_signo != signal.SIGCHLD:
            os.kill(child, heard.si_signo)
