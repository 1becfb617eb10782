"""Kill code at each of its steps on disk, one process for each step, as `kill -9` does.

    for step in crash_points(lambda: MyStore(folder).save("one", [], {})):
        assert MyStore(folder).load("one") in (old, new)

A step is a call that opens a file for writing, renames, links, truncates or deletes one, or makes a folder. Work of C
libraries, such as SQLite, is not seen.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_STEPS = ("os.rename", "os.remove", "os.link", "os.symlink", "os.truncate", "os.mkdir", "os.rmdir", "shutil.move")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
DONE, FAILED = 0, 70
LIMIT = 30
"""Seconds for one run of the work."""


def crash_points(work: Callable[[], object], *, most: int = 1000) -> Iterator[int]:
    """Run `work` in a fork of this process, killed before its first step on disk; yield 1; then before the second; …

    The last run is a whole one, and is yielded, too. Raises `AssertionError` when the work raises, and when it takes
    more than `most` steps. `work` makes its own connections and threads: those of this process are not for the fork.
    """
    for step in range(1, most + 1):
        code = _run_fork(work, step)
        if code == FAILED:
            raise AssertionError(f"the work fails before its step {step} on disk: see stderr")
        yield step
        if code == DONE:
            return
    raise AssertionError(f"the work takes more than {most} steps on disk")


def _run_fork(work: Callable[[], object], step: int) -> int:
    """Return the exit code of the work in a fork; minus the signal that killed it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads: this one starts none
        process = os.fork()
    if process == 0:
        code = FAILED
        try:
            signal.alarm(LIMIT)
            _kill_before(step)
            work()
            code = DONE
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def _kill_before(step: int) -> None:
    """Have this process killed before its step number `step` on disk."""
    left = [step]

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        is_write = event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITING
        if is_write or event in _STEPS:
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(audit)
