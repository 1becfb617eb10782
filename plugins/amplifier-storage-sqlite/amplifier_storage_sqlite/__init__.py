"""Keep sessions, their messages, events and deliveries in one SQLite file: the embedded store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from amplifier_core.hookspecs import Register, StorageFactory

    from .administration import SqliteAdministration
    from .store import SqliteStore
    from .transfer import SqliteTransfer

__all__ = ["administer_sqlite", "amplifier_register_storage", "open_sqlite", "transfer_sqlite"]

FILE_NAME = "amplifier.db"
"""The file of a folder."""

_KEYS = ("path", "folder", "busy_timeout")


def administer_sqlite(config: Mapping[str, Any]) -> SqliteAdministration:
    """Return the administration of the store that `open_sqlite` would open. Raises `ValueError`."""
    from .administration import SqliteAdministration

    return SqliteAdministration(*_settings(config))


def transfer_sqlite(config: Mapping[str, Any]) -> SqliteTransfer:
    """Return the transfer of the store that `open_sqlite` would open. Raises `ValueError`."""
    from .transfer import SqliteTransfer

    return SqliteTransfer(*_settings(config))


def open_sqlite(config: Mapping[str, Any]) -> SqliteStore:
    """Open the store in the file `config["path"]`, or in `amplifier.db` of `config["folder"]`; make a missing one.

    `busy_timeout` is the longest wait for another writing process, in seconds (10). Raises `ValueError` for a bad
    configuration, `StoreUnavailable`, `StoreDamaged`.
    """
    from .store import SqliteStore  # not at import: whoever lists plugins needs neither sqlite3 nor asyncio

    return SqliteStore(*_settings(config))


open_sqlite.administer = administer_sqlite  # type: ignore[attr-defined]  # as amplifier_core.store_administration says
open_sqlite.transfer = transfer_sqlite  # type: ignore[attr-defined]  # as amplifier_core.store_transfer says


@hookimpl
def amplifier_register_storage(register: Register[StorageFactory]) -> None:
    """Offer the store as `storage-sqlite`."""
    register("storage-sqlite", open_sqlite)


def _settings(config: Mapping[str, Any]) -> tuple[Path, float]:
    for key in config:
        if key not in _KEYS:
            raise ValueError(f"storage-sqlite: unknown key '{key}'. Known: {', '.join(_KEYS)}")
    busy_timeout = config.get("busy_timeout", 10.0)
    if isinstance(busy_timeout, bool) or not isinstance(busy_timeout, (int, float)) or not 0 <= busy_timeout <= 3600:
        raise ValueError(f"storage-sqlite: busy_timeout: {busy_timeout!r} is not within 0 and 3600 seconds")
    return _file(config), float(busy_timeout)


def _file(config: Mapping[str, Any]) -> Path:
    from pathlib import Path

    given = [key for key in ("path", "folder") if key in config]
    if len(given) != 1:
        both = "both path and folder are" if given else "neither path nor folder is"
        raise ValueError(f"storage-sqlite: {both} set. Set path to a file, or folder to where {FILE_NAME} is kept")
    [key] = given
    place = config[key]
    if not isinstance(place, (str, Path)) or not str(place) or "\0" in str(place):
        what = "a file" if key == "path" else "a folder"
        raise ValueError(
            f"storage-sqlite: {key}: {place!r} is not the path of {what}. Set it to where the store is kept"
        )
    found = Path(place).expanduser().absolute()
    return found if key == "path" else found / FILE_NAME
