"""Copies of the whole file, taken while it is used."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from amplifier_core.errors import StoreUnavailable

from .faults import translated
from .opening import check


def back_up(source: Path, path: Path) -> None:
    """Copy a store to `path`, which gets its name when the copy is whole, checked and on the disk.

    Raises `StoreUnavailable`, `StoreDamaged`.
    """
    with translated(path):
        with TemporaryDirectory(prefix=".new-copy-", dir=path.parent) as folder:
            copy = Path(folder) / "store"
            copy.touch(0o600)
            with translated(source):
                _copy(source, copy)
            try:
                path.hardlink_to(copy)
            except FileExistsError:
                raise StoreUnavailable(path, "is there already. Choose another path for the copy") from None
        _flush(path.parent)


def _copy(source: Path, copy: Path) -> None:
    with (
        closing(sqlite3.connect(f"{source.as_uri()}?mode=rw", uri=True)) as original,
        closing(sqlite3.connect(copy, isolation_level=None)) as written,
    ):
        written.execute("PRAGMA synchronous = FULL")
        original.backup(written)
        check(written)


def _flush(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
