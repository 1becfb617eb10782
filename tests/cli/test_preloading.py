"""The providers named in a bundle's file are imported before the bundle is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from amplifier_core import preloading
from amplifier_foundation.cli.app import preload_providers

BUNDLE = """---
bundle: {name: two}
providers:
  - module: provider-one
  - {module: "provider-two", config: {a: 1}}
tools:
  - module: tool-filesystem
---
"""


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    monkeypatch.setattr(preloading, "preload", lambda module_ids, group: names.extend(module_ids))
    return names


@pytest.mark.parametrize("place", ["bundle.md", ""])
def test_the_providers_of_a_file_or_folder_are_imported(begun: list[str], tmp_path: Path, place: str) -> None:
    (tmp_path / "bundle.md").write_text(BUNDLE, encoding="utf-8")
    preload_providers(str(tmp_path / place))
    assert begun == ["provider-one", "provider-two"]


@pytest.mark.parametrize("place", ["absent.md", "https://host/bundle.md", "a-name"])
def test_what_is_no_file_is_left_to_the_mount(begun: list[Any], tmp_path: Path, place: str) -> None:
    preload_providers(place)
    assert begun == []
