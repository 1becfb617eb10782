"""Import the modules of a folder from their source alone.

Python runs the bytecode in `__pycache__` when it names the size and time of its source, and whoever may write there may
make it another program than the one that a person has read and trusted.
"""
# Paths are text here: they are looked at in each import of a new folder.
# ruff: noqa: PTH112

from __future__ import annotations

import os
import sys
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from threading import Lock
from typing import TYPE_CHECKING

from .imported_folders import may_hold_code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType

_lock = Lock()
_folders: tuple[str, ...] = ()
"""Replaced as a whole: another thread may import meanwhile."""
_checks: dict[str, Callable[[str, bytes], None]] = {}
"""By file or folder."""


class SourceLoader(SourceFileLoader):
    """Compiles a file each time that it is imported; it neither reads nor writes `__pycache__`."""

    def get_code(self, fullname: str) -> CodeType:
        """Return the compiled source of the module. Raises what a check of `check_sources` raises."""
        path = self.get_filename(fullname)
        source = self.get_data(path)
        for folder, check in list(_checks.items()):
            if _is_below(path, folder):
                check(path, source)
        return self.source_to_code(source, path)


def check_sources(path: str, check: Callable[[str, bytes], None]) -> None:
    """Have `check` called with the path and the bytes of each source at or below `path`, when they are to be compiled.

    It replaces an earlier check of that path. What was looked at before an import may be another file by then.
    """
    _checks[path] = _checks[os.path.realpath(path)] = check


def import_from_source(folder: str) -> None:
    """Have everything below a folder imported from its source from now on, and what its links to folders lead to."""
    global _folders
    if folder in _folders:
        return
    with _lock:
        _folders = (*_folders, folder, *_find_real(folder))
        if _find_in not in sys.path_hooks:
            sys.path_hooks.insert(0, _find_in)
    for known in list(sys.path_importer_cache):
        if _is_ours(known):
            sys.path_importer_cache.pop(known, None)


def _find_real(folder: str) -> Iterator[str]:
    """Yield where a folder is, and where its links to folders lead."""
    top, seen = os.path.realpath(folder), set[str]()
    yield top
    for inner, names, _ in os.walk(folder, followlinks=True):
        real = os.path.realpath(inner)
        names[:] = filter(may_hold_code, names)
        if real in seen:
            names.clear()
        elif not _is_below(real, top):
            yield real
        seen.add(real)


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + os.sep)


def _is_ours(path: str) -> bool:
    """Return whether a path is below such a folder, and not of the environment that lies in there: it is installed."""
    environments = [each for each in (sys.prefix, sys.base_prefix) if _is_below(path, each)]
    above = [folder for folder in _folders if _is_below(path, folder)]
    return any(not any(_is_below(each, folder) for each in environments) for folder in above)


def _find_in(path: str) -> FileFinder:
    """Return the finder of a folder; raises `ImportError` for what others look into, such as an archive."""
    if not _is_ours(path) or not os.path.isdir(path):
        raise ImportError(path=path)
    return FileFinder(
        path,
        (ExtensionFileLoader, EXTENSION_SUFFIXES),
        (SourceLoader, SOURCE_SUFFIXES),
        (SourcelessFileLoader, BYTECODE_SUFFIXES),
    )
