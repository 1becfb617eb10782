import itertools
from pathlib import Path

from amplifier_core import Plugins
from amplifier_core.testing import check_storage, check_storage_kills

import amplifier_storage_example
from amplifier_storage_example import ExampleStorage


def test_it_keeps_the_contract_of_a_storage(tmp_path: Path) -> None:
    numbers = itertools.count()
    check_storage(lambda: ExampleStorage(tmp_path / str(next(numbers))))


def test_a_kill_leaves_no_session_half_written(tmp_path: Path) -> None:
    check_storage_kills(lambda: ExampleStorage(tmp_path))


def test_the_settings_find_it_by_its_name(tmp_path: Path) -> None:
    plugins = Plugins()
    plugins.register(amplifier_storage_example)
    storage = plugins.storages.get("storage-example")({"folder": tmp_path})
    assert isinstance(storage, ExampleStorage)
