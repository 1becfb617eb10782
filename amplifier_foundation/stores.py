"""Open the store that an installed plugin offers."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from amplifier_core.errors import StoreUnavailable
from amplifier_core.storage import Inbox

from .paths import data_home, make_private
from .session_storage import as_session_store

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import DurableStore, SessionStore

DEFAULT_STORAGE = "storage-sqlite"


def open_store(plugins: Plugins, name: str | None = None, path: Path | None = None) -> SessionStore:
    """Open the storage `name`, else the one that the settings name (`AMPLIFIER_STORAGE` too), else `storage-sqlite`.

    It keeps its files in the data folder, or at `path` where one is given. A small `SessionStorage` is adapted. Raises
    `UnknownName` when nothing installed offers it, `StoreUnavailable` when it cannot be opened, `SettingsError`.
    """
    factory = plugins.storages.get(_chosen(name))
    where = {"folder": make_private(data_home())} if path is None else {"path": path}
    return as_session_store(factory({key: str(value) for key, value in where.items()}))


def open_inbox(plugins: Plugins, name: str | None = None, path: Path | None = None) -> DurableStore:
    """Open a store as `open_store` does, and one that background sessions can run on.

    Raises `StoreUnavailable` for a storage without an inbox.
    """
    store = open_store(plugins, name, path)
    if isinstance(store, Inbox):
        return cast("DurableStore", store)
    raise StoreUnavailable(
        path or data_home(),
        f"{_chosen(name)} keeps no inbox, which background sessions need. Use {DEFAULT_STORAGE} for them: "
        f"AMPLIFIER_STORAGE={DEFAULT_STORAGE}, or amplifier config set storage {DEFAULT_STORAGE}",
    )


def _chosen(name: str | None) -> str:
    if name is not None:
        return name
    from .settings import read_settings

    return str(read_settings().get("storage"))
