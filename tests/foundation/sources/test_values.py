"""Values kept by key."""

from __future__ import annotations

from pathlib import Path

import pytest

from amplifier_core.errors import StoreUnavailable
from amplifier_foundation.sources import DiskCache, SimpleCache


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "values"


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_a_value_is_what_was_set_last_until_all_is_cleared(kind: str, folder: Path) -> None:
    values: SimpleCache | DiskCache = SimpleCache() if kind == "memory" else DiskCache(folder)
    assert values.get("a") is None
    values.clear()
    values.set("a", 1)
    values.set("a", {"b": [None, "ü\ud800"]})
    values.set("a/b", 2)
    assert (values.get("a"), values.get("a/b"), values.get("a-b")) == ({"b": [None, "ü\ud800"]}, 2, None)
    values.clear()
    assert (values.get("a"), values.get("a/b")) == (None, None)


def test_values_on_disk_outlive_their_cache_and_no_key_leads_out_of_its_folder(folder: Path) -> None:
    keys = ["../../up", "/abs", "", "a" * 1000, "ü\ud800", "a\0b"]
    for key in keys:
        DiskCache(folder).set(key, key)
    assert [DiskCache(folder).get(key) for key in keys] == keys
    assert len(list(folder.glob("*.json"))) == len(keys) == len(list(folder.parent.rglob("*"))) - 1
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"\xff", b'{"key": "other", "value": 1}', b"[" * 100_000])
def test_a_damaged_value_is_as_missing(folder: Path, damage: bytes) -> None:
    values = DiskCache(folder)
    values.set("a", 1)
    [path] = folder.iterdir()
    path.write_bytes(damage)
    assert values.get("a") is None
    values.set("a", 2)
    assert values.get("a") == 2


def test_what_is_not_json_is_refused_and_changes_nothing(folder: Path) -> None:
    values = DiskCache(folder)
    values.set("a", 1)
    with pytest.raises(TypeError, match=r"value\.value\.b: object is not JSON"):
        values.set("a", {"b": object()})
    assert values.get("a") == 1
    assert len(list(folder.iterdir())) == 1


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable, match=r"file/values: cannot be used \(Not a directory\)"):
        DiskCache(tmp_path / "file" / "values").set("a", 1)
    assert DiskCache(tmp_path / "file" / "values").get("a") is None
