"""Remember in the data folder which store is at a place, so that an empty one in its place is noticed.

A file for each place holds the id of the store. Without a data folder nothing is remembered.
"""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING
from uuid import UUID

from amplifier_core.errors import StoreUnavailable

from .faults import RESTORE

if TYPE_CHECKING:
    from pathlib import Path

    from .settings import Settings

FOLDER = "known-stores"
"""The folder within the data folder."""


def require_known(settings: Settings, store: str | None, *, has_tables: bool) -> None:
    """Raise `StoreUnavailable` unless `store`, the id found at the place, may be the store that was used there last.

    Tables of an older version have no id, and may be those of any store.
    """
    path = _path(settings)
    if path is None or (has_tables and store is None):
        return
    known = _read_id(path)
    if known not in (None, store):
        what = "is another store than the one" if has_tables else "its tables are gone, with the store"
        backup = ", or a backup without an id, of an earlier version, was restored" if has_tables else ""
        raise StoreUnavailable(
            settings.place,
            f"{what} that this machine has used there. {RESTORE}. If a new store belongs there{backup}, remove {path}",
        )


def remember(settings: Settings, store: str) -> None:
    """Keep the id of the store at the place."""
    path = _path(settings)
    if path is None:
        return
    with suppress(OSError):  # a full disk stops no work with a database elsewhere
        if _read_id(path) != store:
            path.parent.mkdir(0o700, exist_ok=True)
            new = path.with_name(f"{path.name}.{store}")
            with new.open("w", encoding="utf-8") as file:
                file.write(f"{store} {settings.place}\n")
                file.flush()
                os.fsync(file.fileno())  # else a power cut may leave an empty file
            new.replace(path)


def _read_id(path: Path) -> str | None:
    """Return the id in a file; None without one, and for a damaged file, whose store is as good as unknown."""
    with suppress(OSError, ValueError, IndexError):
        return str(UUID(path.read_text(encoding="utf-8").split()[0]))
    return None


def _path(settings: Settings) -> Path | None:
    if settings.folder is None:
        return None
    return settings.folder / FOLDER / sha256(settings.place.encode()).hexdigest()[:16]
