"""Use a lock if it is free, and give it back whenever Ctrl-C comes.

`if lock.acquire(blocking=False):` and the `try:` after it are two steps: a signal that comes during the first raises
`KeyboardInterrupt` between them, and the lock is held for good. One of 200 interrupts of a writing event loop did that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Lock

T = TypeVar("T")


def call_if_free(lock: Lock, function: Callable[[], T]) -> T | None:
    """Return the result of a function that is called while the lock is held; None if it is held already."""
    held: list[bool] = []
    try:
        held.extend(map(lock.acquire, (False,)))  # one call: signals are handled after it, and it has noted the result
        return function() if True in held else None
    finally:
        if True in held:  # no call: none comes before the release
            lock.release()
