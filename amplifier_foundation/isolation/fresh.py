"""Start the process of a session by a fresh interpreter, where a fork is unsafe: with threads, and not on Linux.

The zygote watches such a process as it watches its forks. A *bare* system has neither `/proc` nor `prctl`: there, a
process and what it starts are one process group, and a thread of the process waits for the end of its zygote.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from pathlib import Path

from amplifier_core.utils.interpreters import PYTHON

BEGIN = Path(__file__).with_name("begin.py")
TASKS = Path("/proc/self/task")


def explain_fresh() -> str:
    """Return the reason not to fork this process; '' where a fork is safe."""
    if not TASKS.is_dir():
        return f"a fork is unsafe on {sys.platform}" if sys.platform != "linux" else "/proc is not mounted"
    threads = count_threads() - 1
    plural = "s" if threads > 1 else ""
    return f"an installed package starts {threads} thread{plural} with Python" if threads else ""


def count_threads() -> int:
    """Return the number of threads of this process."""
    return sum(1 for _ in TASKS.iterdir())


def start_interpreter(own: socket.socket, blocking: socket.socket, output: socket.socket, life: int) -> int:
    """Start the process of one session, in a process group of its own; return its id. Raises `OSError`.

    It ends when the other end of the pipe `life` is closed; -1: when this process ends.
    """
    numbers = [own.fileno(), blocking.fileno(), life]
    for number in numbers:
        if number >= 0:
            os.set_inheritable(number, True)
    try:
        command = [*PYTHON, "-I", str(BEGIN), "session", json.dumps(sys.path), *map(str, numbers)]
        prints = [(os.POSIX_SPAWN_DUP2, output.fileno(), number) for number in (1, 2)]
        return os.posix_spawn(
            sys.executable, [*command, str(os.getpid())], os.environ, file_actions=prints, setpgroup=0
        )
    finally:
        if life >= 0:
            os.set_inheritable(life, False)


def begin_session(own: str, blocking: str, life: str, zygote: str) -> None:
    """Be the process of a session, to the end of the process."""
    from .child import run_process
    from .zygote import end_with_parent

    def end_with_zygote() -> None:
        if int(life) >= 0:
            os.set_inheritable(int(life), False)
            threading.Thread(target=_wait_for_end, args=[int(life)], daemon=True).start()
        else:
            end_with_parent()
            if os.getppid() != int(zygote):
                raise SystemExit

    first, second = (socket.socket(fileno=int(number)) for number in (own, blocking))
    for each in (first, second):
        each.set_inheritable(False)
    run_process(first, second, end_with_zygote, is_forked=False)


def _wait_for_end(life: int) -> None:
    os.read(life, 1)
    os.killpg(0, signal.SIGKILL)
