"""Keep locks, listening sockets and event loops to this process: a fork of it has none of them.

A tool may fork, as `multiprocessing` does. The fork may outlive this process, and inherits every open file.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import WeakSet

from .errors import StoreUnavailable

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from pathlib import Path


class _Closable(Protocol):
    def close(self) -> object: ...


Owned = TypeVar("Owned", bound=_Closable)

FORKED = 70
"""The exit code of a fork that returns into our code: EX_SOFTWARE of sysexits.h."""

_owned: WeakSet[Any] = WeakSet()
_loops: WeakSet[Any] = WeakSet()


def close_in_forks(owned: Owned) -> Owned:
    """Close a file or a socket in each later fork; return it. Its buffers must be empty."""
    _owned.add(owned)
    return owned


def end_forks_of(loop: AbstractEventLoop) -> None:
    """End each later fork that returns into this loop: a tool forked, and returned in both processes.

    Signals of such forks are their own: asyncio would pass them on to this process.
    """
    _loops.add(loop)


def require_process(process: int, path: Path, remedy: str = "Open it in this one too") -> None:
    """Raise `StoreUnavailable` in a fork of the process that opened the store at `path`.

    It has neither the thread that writes nor the locks of the open files.
    """
    if os.getpid() != process:
        raise StoreUnavailable(path, f"was opened by the process that this one is a fork of. {remedy}")


def _leave_to_parent() -> None:
    """Give up what belongs to the parent, in its fork; here no other thread runs."""
    for owned in list(_owned):
        owned.close()
    if not _loops:
        return
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    for loop in list(_loops):
        with suppress(RuntimeError):  # it is closed
            loop.call_soon(partial(os._exit, FORKED))


os.register_at_fork(after_in_child=_leave_to_parent)
