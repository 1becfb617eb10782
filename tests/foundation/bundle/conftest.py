"""Writes bundles into a folder of their own and loads them from there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from amplifier_foundation.bundle import BundleProblemsError, load_bundle_sync

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def write(folder: Path) -> Callable[..., Path]:
    """Writes a bundle whose front matter begins with a name; returns its path."""

    def write_bundle(front: str = "", body: str = "", name: str = "bundle.md", bundle: str = "demo") -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"---\nbundle: {{name: {bundle}}}\n{front}---\n{body}", encoding="utf-8")
        return path

    return write_bundle


@pytest.fixture
def problems(folder: Path) -> Callable[..., list[str]]:
    """Loads the bytes of a bundle that is wrong; returns its problems as lines."""

    def problems_of(content: str | bytes, name: str = "bundle.md") -> list[str]:
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(BundleProblemsError) as caught:
            load_bundle_sync(name)
        assert str(caught.value).splitlines() == [str(problem) for problem in caught.value.problems]
        return str(caught.value).splitlines()

    return problems_of
