"""Bring a file of an older version to this one, while nobody else has it open.

A process of the older version would go on writing rows of its own shape: they would be in no list. So the migration
holds the file alone. In WAL mode each connection holds a shared lock on its file from its first read to its end, and a
connection in exclusive locking mode gets its lock when there is no other (https://sqlite.org/pragma.html#pragma_locking_mode).
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from time import monotonic, sleep
from typing import TYPE_CHECKING

from amplifier_core.errors import StoreUnavailable

from .copying import backups_of, copy_file, new_backup
from .faults import is_locked
from .opening import raw_connection
from .schema import MIGRATIONS, checked_version, migrate
from .users import name_users

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE = 2.0
"""Seconds at most until a command says who has the file open: a process of the older version may run for weeks."""
KEPT = 3
"""Backups made before migrations."""
_PAUSE = 0.02


def migrate_alone(path: Path, busy_timeout: float) -> None:
    """Back an older file up, and bring it to this version.

    Raises `StoreUnavailable` if another process has it open, or without room for the backup; `StoreConflict`.
    """
    end = monotonic() + min(busy_timeout, PATIENCE)
    while not _try_to_migrate(path):
        with closing(raw_connection(path, busy_timeout)) as db:
            version = checked_version(db, path)
        if version == len(MIGRATIONS):  # another process was faster
            return
        if monotonic() >= end:
            raise StoreUnavailable(
                path,
                f"is of an older version (schema {version}, this one makes it {len(MIGRATIONS)}), and is open in "
                f"{name_users(path) or 'another process'}. Stop what uses it, background sessions with: "
                "amplifier stop --everything; then try again",
            )
        sleep(_PAUSE)


def _try_to_migrate(path: Path) -> bool:
    """Return whether the file is of this version; False while another connection has it open."""
    with closing(raw_connection(path, 0)) as db:
        try:
            db.execute("PRAGMA locking_mode = EXCLUSIVE").fetchone()
            version = checked_version(db, path)  # the first read takes the lock
        except sqlite3.OperationalError as error:
            if not is_locked(error):
                raise
            return False
        if version < len(MIGRATIONS):
            _back_up(db, path, version)
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA fullfsync = ON")
            migrate(db, path)
    return True


def _back_up(db: sqlite3.Connection, path: Path, version: int) -> None:
    """Copy the file into its folder of backups. Raises `StoreUnavailable`."""
    label = f"schema-{version}"
    copy = new_backup(path, label)
    needed = 2 * path.stat().st_size
    if (free := shutil.disk_usage(path.parent).free) < needed:
        raise StoreUnavailable(
            path,
            f"is not migrated from schema {version} to {len(MIGRATIONS)}: the disk has no room for the backup that is "
            f"made before. Free {(needed - free) // 1_000_000 + 1:,} MB and try again",
        )
    copy_file(db, path, copy)
    for old in backups_of(path, "schema-*")[KEPT:]:
        old.unlink(missing_ok=True)
