"""Copy the whole file while it is in use."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from time import time

from amplifier_core.errors import StoreUnavailable

from .faults import translate_errors
from .opening import check

_PREFIX = ".new-copy-"


def back_up(source: Path, path: Path) -> None:
    """Copy a store to `path`; the copy gets its name once it is complete, checked and on the disk.

    Raises `StoreUnavailable`, `StoreDamaged`.
    """
    with translate_errors(path):
        with TemporaryDirectory(prefix=_PREFIX, dir=path.parent) as folder:
            copy = Path(folder) / "store"
            copy.touch(0o600)
            with (
                translate_errors(source),
                closing(sqlite3.connect(f"{source.as_uri()}?mode=rw", uri=True)) as original,
                closing(sqlite3.connect(copy, isolation_level=None)) as written,
            ):
                written.execute("PRAGMA synchronous = FULL")
                original.backup(written)
                check(written)
            try:
                path.hardlink_to(copy)
            except FileExistsError:
                raise StoreUnavailable(path, "is there already. Choose another path for the copy") from None
        flush(path.parent)


def forget_unfinished(folder: Path) -> None:
    """Remove copies whose writer was killed: unchanged for a day."""
    for unfinished in folder.glob(f"{_PREFIX}*"):
        if unfinished.stat().st_mtime < time() - 86_400:
            rmtree(unfinished, ignore_errors=True)


def flush(folder: Path) -> None:
    """Bring the names in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
