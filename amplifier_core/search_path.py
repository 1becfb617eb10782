"""Put folders on `sys.path`, each until its last owner releases it.

A module's source may import its neighbours, also long after its mount. Folders are appended: they cannot hide installed
packages.
"""

from __future__ import annotations

import sys
from collections import Counter
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_owners: Counter[str] = Counter()
_ours: set[str] = set()
_lock = Lock()
"""Held while the three agree with each other: sessions run in several threads."""


def acquire(folder: str) -> None:
    """Put `folder` on `sys.path` for one more owner; a folder that was there before stays there."""
    with _lock:
        if _owners[folder] == 0 and folder not in sys.path:
            sys.path.append(folder)
            _ours.add(folder)
        _owners[folder] += 1


def release(folder: str) -> None:
    """Let one owner go; with its last owner the folder leaves `sys.path`."""
    with _lock:
        if _owners[folder] > 1:
            _owners[folder] -= 1
            return
        _owners.pop(folder, None)
        if folder in _ours:
            _ours.discard(folder)
            if folder in sys.path:
                sys.path.remove(folder)


def replace_all(folders: Iterable[str]) -> None:
    """Look for modules in these folders alone: those of another process."""
    with _lock:
        sys.path[:] = folders
