"""Name the side effects of an import: what it changed in the process, opened, started, wrote and printed.

Made for a process of its own: the audit hook of Python, by which calls are seen, stays for good.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_PROGRAMS = ("subprocess.Popen", "os.system", "os.posix_spawn", "os.exec", "os.fork", "os.forkpty")
_SIGNALS = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})


class Effects:
    """The state of the process at its making, and the calls since; `find` names the differences."""

    def __init__(self) -> None:
        with suppress(OSError):
            tempfile.gettempdir()  # its first call in a process writes a file, to see whether it can
        self._calls: list[str] = []
        self._is_on = True
        self._before = {name: read() for name, (read, _) in _STATES.items()}
        self._threads = set(threading.enumerate())
        self._environment = dict(os.environ)
        self._path, self._handlers = list(sys.path), list(logging.getLogger().handlers)
        sys.addaudithook(self._audit)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._is_on:
            return
        if event == "socket.__new__":
            self._calls.append("opened a socket: open it when the plugin is used")
        elif event in _PROGRAMS:
            self._calls.append(f"started a program ({event}): start it when the plugin is used")
        elif event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITING and _is_file(arguments[0]):
            self._calls.append(f"wrote the file {os.fsdecode(arguments[0])}: write it when the plugin is used")

    def find(self) -> list[str]:
        """Return each effect in a sentence without a subject, and its remedy; the calls are seen no more."""
        self._is_on = False
        return list(dict.fromkeys([*self._calls, *self._changes()]))

    def _changes(self) -> Iterator[str]:
        for name, (read, remedy) in _STATES.items():
            if read() != self._before[name]:
                yield f"changed {name}: {remedy}"
        before, after = self._environment, os.environ
        changed = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
        if changed:
            yield f"changed the environment ({', '.join(changed)}): read variables, and set none"
        if sys.path != self._path:
            yield "changed sys.path: import from the package itself"
        if logging.getLogger().handlers != self._handlers:
            yield "added a handler to the root of the log: logging.getLogger(__name__) is enough"
        for thread in set(threading.enumerate()) - self._threads:
            yield f"left the thread {thread.name} running: start it when the plugin is used, and end it"


def _is_file(path: object) -> bool:
    return isinstance(path, (str, bytes)) and not os.fsdecode(path).startswith(("/dev/", "/proc/"))


def read_signals() -> list[Any]:
    return [signal.getsignal(number) for number in _SIGNALS]


def read_folder() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - `Path.cwd` is the same call
    except OSError:
        return ""


def read_mask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


_STATES: dict[str, tuple[Callable[[], Any], str]] = {
    "the working folder": (read_folder, "pass paths as arguments; the folder is that of the session"),
    "a signal handler": (read_signals, "the program handles signals"),
    "the mode mask of new files": (read_mask, "set the mode of each file"),
    "sys.stdout": (lambda: id(sys.stdout), "print nothing; log with logging.getLogger(__name__)"),
    "sys.excepthook": (lambda: id(sys.excepthook), "the program reports errors"),
    "the trace function": (sys.gettrace, "leave tracing to debuggers"),
}
