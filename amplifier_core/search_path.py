"""Folders on `sys.path`, each for as long as somebody needs it.

A module's source may import what lies beside it, also long after it was mounted. Folders are appended, never put in
front: they cannot hide what is installed. Each is counted by owner, and leaves with its last one.
"""

from __future__ import annotations

import sys
from collections import Counter

_owners: Counter[str] = Counter()
_ours: set[str] = set()


def acquire(folder: str) -> None:
    """Put `folder` on `sys.path` for one more owner; one that others put there stays theirs."""
    if _owners[folder] == 0 and folder not in sys.path:
        sys.path.append(folder)
        _ours.add(folder)
    _owners[folder] += 1


def release(folder: str) -> None:
    """Let one owner go; with the last one the folder leaves `sys.path`."""
    if _owners[folder] > 1:
        _owners[folder] -= 1
        return
    _owners.pop(folder, None)
    if folder in _ours:
        _ours.discard(folder)
        if folder in sys.path:
            sys.path.remove(folder)
