"""The storage that the settings choose, and the configuration that they give it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import hookimpl
from amplifier_core.errors import StoreUnavailable
from amplifier_core.plugins import Plugins
from amplifier_core.testing import MemoryStore
from amplifier_foundation import open_inbox, open_store
from amplifier_foundation.sessions.storages import StorageConfigError, StorageUnsuitable
from amplifier_foundation.settings import InvalidSettings

if TYPE_CHECKING:
    from amplifier_core.hookspecs import Register, StorageFactory


class Remote:
    """Offers a storage that needs an address."""

    def __init__(self) -> None:
        self.configs: list[dict[str, Any]] = []

    def open(self, config: Any) -> MemoryStore:
        self.configs.append(dict(config))
        if not config.get("address"):
            raise ValueError("address: say where the database is")
        return MemoryStore()

    @hookimpl
    def amplifier_register_storage(self, register: Register[StorageFactory]) -> None:
        register("storage-remote", self.open)


@pytest.fixture
def remote(plugins: Plugins) -> Remote:
    offered = Remote()
    plugins.register(offered, "remote")
    return offered


def write_settings(home: Path, text: str) -> None:
    home.mkdir(exist_ok=True)
    (home / "settings.yaml").write_text(text, encoding="utf-8")


def test_settings_name_a_storage_and_configure_it(plugins: Plugins, remote: Remote, home: Path, project: Path) -> None:
    write_settings(home, "storage: {name: storage-remote, config: {address: 127.0.0.1}}\n")
    assert isinstance(open_store(plugins), MemoryStore)
    assert isinstance(open_inbox(plugins, {"name": "storage-remote", "config": {"address": "::1"}}), MemoryStore)
    assert remote.configs == [{"address": "127.0.0.1", "folder": str(home)}, {"address": "::1", "folder": str(home)}]


def test_a_configuration_may_say_where_the_files_are(
    plugins: Plugins, remote: Remote, home: Path, tmp_path: Path
) -> None:
    open_store(plugins, {"name": "storage-remote", "config": {"address": "a", "path": "elsewhere"}})
    open_store(plugins, {"name": "storage-remote", "config": {"address": "a", "folder": "f"}}, tmp_path)
    assert remote.configs == [{"address": "a", "path": "elsewhere"}, {"address": "a", "path": str(tmp_path)}]


def test_a_configuration_that_the_storage_refuses_is_told_with_the_storage(plugins: Plugins, home: Path) -> None:
    with pytest.raises(StorageConfigError, match="storage-sqlite refuses its configuration: .*'adress'") as caught:
        open_store(plugins, {"name": "storage-sqlite", "config": {"adress": "a"}})
    assert caught.value.storage == "storage-sqlite"


@pytest.mark.parametrize(
    ("opened", "kind", "text"),
    [
        (KeyError("pool"), StorageUnsuitable, "storage-own failed: KeyError: 'pool'"),
        (ConnectionError("refused"), StoreUnavailable, "storage-own failed: ConnectionError: refused"),
        (None, StorageUnsuitable, "storage-own opened no storage: NoneType is no storage: it needs the methods save,"),
    ],
)
def test_a_storage_that_does_not_open_is_named(opened: Any, kind: type, text: str, plugins: Plugins) -> None:
    def open_it(config: Any) -> Any:
        if opened is not None:
            raise opened

    class Own:
        @hookimpl
        def amplifier_register_storage(self, register: Register[StorageFactory]) -> None:
            register("storage-own", open_it)

    plugins.register(Own(), "own")
    with pytest.raises(kind, match=text):
        open_store(plugins, "storage-own")


@pytest.mark.parametrize("storage", [{}, {"name": None}, 5])
def test_a_storage_without_a_name_is_refused(storage: Any, plugins: Plugins) -> None:
    with pytest.raises(TypeError, match="storage: give a name, or a mapping with a name and a config, not "):
        open_store(plugins, storage)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("storage: {config: {}}", "storage.name: this key is required"),
        ("storage: {name: s, confg: {}}", "storage.confg: unknown key; did you mean 'config'?"),
        ("storage: [s]", "storage: must be text, not a list"),
        ("storage: a b", "storage: must match"),
        ("storage: {name: s, config: 1}", "storage.config: must be a mapping, not a whole number"),
    ],
)
def test_a_storage_that_cannot_be_is_told_by_its_line(
    text: str, problem: str, plugins: Plugins, home: Path, project: Path
) -> None:
    write_settings(home, text + "\n")
    with pytest.raises(InvalidSettings) as caught:
        open_store(plugins)
    assert problem in str(caught.value)
