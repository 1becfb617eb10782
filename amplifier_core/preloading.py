"""Import the packages of providers in a thread: the SDK of a model takes seconds, and nothing else waits for it.

A module may offer a function `preload()` beside `mount`, to import what it imports at its first request otherwise.

An interpreter that ends while a thread imports may crash (CPython up to 3.11 frees the lock of imports before). So the
end of a process waits for the import that runs, for some seconds, and no further one begins; `os._exit` waits for
nothing.
"""

from __future__ import annotations

import atexit
import sys
from concurrent.futures import Future
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

from .entry_points import find_entry_points
from .plugin_guard import guard_module

if TYPE_CHECKING:
    from collections.abc import Iterable

ENDS_WITHIN = 10.0
"""Seconds for an import that runs while the process ends."""

_imports: dict[str, Future[None]] = {}
"""Imports by the name of their module; each is begun once in a process."""
_lock = Lock()
_ending = Event()


def preload(module_ids: Iterable[str], group: str) -> None:
    """Begin to import installed modules, unless that was begun; return at once.

    A name that is not installed, and an import that fails, are nobody's error here: the mount reports them.
    """
    with _lock:
        fresh = {name: Future[None]() for name in dict.fromkeys(module_ids) if name not in _imports}
        _imports.update(fresh)
    if fresh:
        thread = Thread(target=_import_all, args=(fresh, group), name="preload", daemon=True)
        thread.start()
        atexit.register(_end, thread)


def is_importing() -> bool:
    """Return whether imports run that were begun here."""
    return not all(done.done() for done in [*_imports.values()])


async def wait_for_import(module_id: str, group: str) -> None:
    """Return when a module is imported, or cannot be; the event loop goes on meanwhile."""
    preload([module_id], group)
    done = _imports[module_id]
    if not done.done():
        from asyncio import shield, wrap_future

        await shield(wrap_future(done))


def _end(thread: Thread) -> None:
    _ending.set()
    thread.join(ENDS_WITHIN)


def _import_all(imports: dict[str, Future[None]], group: str) -> None:
    for name, done in imports.items():
        try:
            for entry in find_entry_points(group, name):
                if _ending.is_set():
                    break
                with guard_module(f"module '{name}' of {entry.dist}"):
                    more = getattr(sys.modules.get(getattr(entry.load(), "__module__", "")), "preload", None)
                    if callable(more) and not _ending.is_set():
                        more()
        except BaseException:
            pass
        finally:
            done.set_result(None)
