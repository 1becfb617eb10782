"""A working folder, a home and a bundle's folder beside each other, and what lies outside of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from amplifier_foundation.mentions import BaseMentionResolver

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a file below the folder that holds everything; `work` in it is the current folder, `home` the home."""
    for name in ("work", "home", "kit"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    def write_file(name: str, content: str | bytes = "text") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    write_file("outside.md", "a secret")
    return write_file


@pytest.fixture
def resolver(write: Write, tmp_path: Path) -> BaseMentionResolver:
    """Knows the working folder and, as `kit`, a bundle's folder."""
    return BaseMentionResolver({"kit": tmp_path / "kit"}, tmp_path / "work")
