"""Copy the whole file while it is in use, and name the copies in its folder of backups."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from time import time

from amplifier_core.errors import StoreUnavailable

from .faults import translate_errors
from .opening import check

BACKUPS = "backups"
"""The folder of backups beside the store."""
_PREFIX = ".new-copy-"


def back_up(source: Path, path: Path) -> None:
    """Copy a store to `path`; the copy gets its name once it is complete, checked and on the disk.

    Raises `StoreUnavailable`, `StoreDamaged`.
    """
    with translate_errors(source), closing(sqlite3.connect(f"{source.as_uri()}?mode=rw", uri=True)) as original:
        copy_file(original, source, path)


def copy_file(original: sqlite3.Connection, source: Path, path: Path) -> None:
    """Do as `back_up` does, with a connection to `source` outside of a transaction."""
    with translate_errors(path):
        with TemporaryDirectory(prefix=_PREFIX, dir=path.parent) as folder:
            copy = Path(folder) / "store"
            copy.touch(0o600)
            with translate_errors(source), closing(sqlite3.connect(copy, isolation_level=None)) as written:
                written.execute("PRAGMA synchronous = FULL")
                original.backup(written)
                check(written)
            try:
                path.hardlink_to(copy)
            except FileExistsError:
                raise StoreUnavailable(path, "is there already. Choose another path for the copy") from None
        flush(path.parent)


def new_backup(path: Path, label: str = "") -> Path:
    """Return the file for a new backup of a store, in its folder of backups, which is made."""
    folder = path.parent / BACKUPS
    with translate_errors(folder):
        if not folder.exists():
            folder.mkdir()
            folder.chmod(0o700)
        forget_unfinished(folder)
    return folder / f"{path.stem}-{stamp()}{label and f'-{label}'}.db"


def backups_of(path: Path, label: str | None = None) -> list[Path]:
    """Return the backups of a store with this label, '' for none, or all; the newest first, those ahead of now last.

    A label may be a pattern. What is ahead was made while the clock was wrong.
    """
    now = f"{path.stem}-{stamp()}.db"
    end = "*" if label is None else label and f"-{label}"
    found = (path.parent / BACKUPS).glob(f"{path.stem}-*Z{end}.db")
    return sorted(found, key=lambda each: (each.name <= now, each.name), reverse=True)


def stamp() -> str:
    """Return the present time for the name of a file."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"


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
