"""The embedded store: sessions, their messages, events and deliveries in one SQLite file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amplifier_core.hookspecs import Register, StorageFactory

    from .store import SqliteStore

__all__ = ["amplifier_register_storage", "open_sqlite"]


def open_sqlite(config: Mapping[str, Any]) -> SqliteStore:
    """Open the store at `config["path"]`, which is made, with its folders, when it is not there.

    `busy_timeout` is how many seconds to wait for another process that writes (10). Raises `ValueError` for a bad
    configuration, `StoreUnavailable`, `StoreDamaged`.
    """
    from .store import SqliteStore  # not at import: whoever lists plugins needs neither sqlite3 nor asyncio

    return SqliteStore(**_settings(config))


@hookimpl
def amplifier_register_storage(register: Register[StorageFactory]) -> None:
    """Offer the store as `storage-sqlite`."""
    register("storage-sqlite", open_sqlite)


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    from pathlib import Path

    for key in config:
        if key not in ("path", "busy_timeout"):
            raise ValueError(f"storage-sqlite: unknown key '{key}'. Known: path, busy_timeout")
    path, busy_timeout = config.get("path"), config.get("busy_timeout", 10.0)
    if not isinstance(path, (str, Path)) or not str(path) or "\0" in str(path):
        raise ValueError(f"storage-sqlite: path: {path!r} is not the path of a file. Set it to where the store is kept")
    if isinstance(busy_timeout, bool) or not isinstance(busy_timeout, (int, float)) or not 0 <= busy_timeout <= 3600:
        raise ValueError(f"storage-sqlite: busy_timeout: {busy_timeout!r} is not within 0 and 3600 seconds")
    return {"path": Path(path).expanduser().absolute(), "busy_timeout": float(busy_timeout)}
