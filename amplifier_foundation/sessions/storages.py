"""Open the store of an installed plugin, chosen and configured by the settings.

The settings say `storage: NAME`, or `storage: {name: NAME, config: {…}}`. The storage's factory is called with that
config and with `folder`, the data folder, unless the config itself says a `folder` or a `path`. A value `secret://NAME`
of the config stands for a kept key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from amplifier_core.errors import AmplifierError, StoreError, StoreUnavailable
from amplifier_core.processes import NO_PROCESS, lacks_processes
from amplifier_core.storage import Inbox, SessionStore

from ..paths import data_home, make_private

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import DurableStore, StoreAdministration
    from amplifier_core.store_transfer import StoreTransfer

DEFAULT_STORAGE = "storage-sqlite"


class StorageConfigError(AmplifierError, ValueError):
    """A storage refuses its configuration in the settings; `storage` is its name."""

    def __init__(self, storage: str, message: str) -> None:
        self.storage = storage
        super().__init__(f"{storage} refuses its configuration: {message}. See: amplifier config show")


class StorageUnsuitable(StoreError, ValueError):
    """A storage cannot do what is asked by its nature: another attempt changes nothing."""


class Choice(NamedTuple):
    """A storage, and its configuration in the settings."""

    name: str
    config: Mapping[str, Any] = {}


def open_store(
    plugins: Plugins, storage: str | Mapping[str, Any] | None = None, path: Path | None = None
) -> SessionStore:
    """Open `storage` (a name, or `{name, config}`), else the storage of the settings, else `storage-sqlite`.

    It keeps its files in the data folder, or at `path`. A small `SessionStorage` is adapted. Raises
    `UnknownName` for a storage that is not installed, `StorageConfigError`, `StoreUnavailable`, `StorageUnsuitable` for
    one whose factory is faulty, `SettingsError`, and `TypeError` for a `storage` without a name.
    """
    choice = _choose(storage)
    factory = plugins.storages.get(choice.name)
    config = _config_of(choice, path)
    place = config.get("path") or config["folder"]
    try:
        store = factory(config)
    except AmplifierError:
        raise
    except Exception as error:
        if choice.config and isinstance(error, (TypeError, ValueError)):
            raise StorageConfigError(choice.name, str(error)) from error
        if lacks_processes(error):
            raise StoreUnavailable(place, f"{choice.name} cannot be opened: {NO_PROCESS}") from error
        kind = StoreUnavailable if isinstance(error, OSError) else StorageUnsuitable
        raise kind(place, f"{choice.name} failed: {type(error).__name__}: {error}") from error
    if isinstance(store, SessionStore):
        return store
    from .session_storage import as_session_store  # the adapter needs asyncio

    try:
        return as_session_store(store)
    except TypeError as error:
        raise StorageUnsuitable(place, f"{choice.name} opened no storage: {error}") from error


def open_administration(plugins: Plugins, storage: str | Mapping[str, Any] | None = None) -> StoreAdministration:
    """Return the administration of the store that `open_store` would open, without opening it.

    Raises `StorageUnsuitable` for a storage without an administration, `UnknownName`, `SettingsError`.
    """
    from amplifier_core.storage import administration_of

    choice = _choose(storage)
    config = _config_of(choice, None)
    administration = administration_of(plugins.storages.get(choice.name), config)
    if administration is None:
        raise StorageUnsuitable(
            config.get("path") or config["folder"],
            f"{choice.name} offers no administration: look after its files with the tools of the system, or of the "
            f"service that keeps them",
        )
    return administration


def open_transfer(plugins: Plugins, storage: str | Mapping[str, Any] | None = None) -> StoreTransfer:
    """Return the transfer of the store that `open_store` would open, without opening it.

    Raises `StorageUnsuitable` for a storage without a transfer, `UnknownName`, `StorageConfigError`, `SettingsError`.
    """
    from amplifier_core.store_transfer import transfer_of

    choice = _choose(storage)
    factory, config = plugins.storages.get(choice.name), _config_of(choice, None)
    try:
        transfer = transfer_of(factory, config)
    except (TypeError, ValueError) as error:
        raise StorageConfigError(choice.name, str(error)) from error
    if transfer is None:
        raise StorageUnsuitable(
            config.get("path") or config["folder"],
            f"{choice.name} cannot be copied: its package offers no transfer. Use {DEFAULT_STORAGE}, or a storage that "
            f"offers one",
        )
    return transfer


def open_inbox(
    plugins: Plugins, storage: str | Mapping[str, Any] | None = None, path: Path | None = None
) -> DurableStore:
    """Open a store for background sessions, as `open_store` does.

    Raises `StorageUnsuitable` for a storage without an inbox.
    """
    return require_inbox(open_store(plugins, storage, path), storage, path)


def require_inbox(
    store: SessionStore, storage: str | Mapping[str, Any] | None = None, path: Path | None = None
) -> DurableStore:
    """Return `store`. Raises `StorageUnsuitable` when it has no inbox; `storage` and `path` are for the message."""
    if isinstance(store, Inbox):
        return cast("DurableStore", store)
    raise StorageUnsuitable(
        path or data_home(),
        f"{_choose(storage).name} keeps no inbox, which background sessions need. Use {DEFAULT_STORAGE} for them: "
        f"AMPLIFIER_STORAGE={DEFAULT_STORAGE}, or amplifier config set storage {DEFAULT_STORAGE}",
    )


def _config_of(choice: Choice, path: Path | None) -> dict[str, Any]:
    """Return the configuration of a storage with the place of its files, and keys in place of `secret://NAME`."""
    config = dict(choice.config)
    if "secret://" in str(config):
        from ..bundle.credentials import expand_references_now

        config = expand_references_now(config)
    if path is not None:
        return {**{key: value for key, value in config.items() if key != "folder"}, "path": str(path)}
    if not {"folder", "path"} & config.keys():
        config["folder"] = str(make_private(data_home()))
    return config


def _choose(storage: str | Mapping[str, Any] | None) -> Choice:
    if storage is None:
        from ..settings import read_settings

        storage = cast("str | Mapping[str, Any]", read_settings().get("storage"))
    if isinstance(storage, str):
        return Choice(storage)
    if not isinstance(storage, Mapping) or not isinstance(storage.get("name"), str):
        raise TypeError(f"storage: give a name, or a mapping with a name and a config, not {storage!r}")
    return Choice(storage["name"], storage.get("config") or {})
