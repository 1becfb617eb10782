"""Import the modules of a folder from their source alone.

Python runs the bytecode in `__pycache__` when it names the size and time of its source, and whoever may write there may
make it another program than the one that a person has read and trusted.
"""

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
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import CodeType

_folders: set[str] = set()


class SourceLoader(SourceFileLoader):
    """Compiles a file each time that it is imported; it neither reads nor writes `__pycache__`."""

    def get_code(self, fullname: str) -> CodeType:
        """Return the compiled source of the module."""
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def import_from_source(folder: str) -> None:
    """Have everything below a folder imported from its source from now on."""
    if folder in _folders:
        return
    _folders.add(folder)
    if _find_in not in sys.path_hooks:
        sys.path_hooks.insert(0, _find_in)
    for known in [each for each in sys.path_importer_cache if _is_below(each, folder)]:
        sys.path_importer_cache.pop(known, None)


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + os.sep)


def _find_in(path: str) -> FileFinder:
    """Return the finder of a folder; raises `ImportError` for one that others look into."""
    if not any(_is_below(path, folder) for folder in _folders):
        raise ImportError(path=path)
    return FileFinder(
        path,
        (ExtensionFileLoader, EXTENSION_SUFFIXES),
        (SourceLoader, SOURCE_SUFFIXES),
        (SourcelessFileLoader, BYTECODE_SUFFIXES),
    )
