"""The benchmark of the page runs, over a small store."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from amplifier_storage_sqlite import open_sqlite
from tests.benchmarks.page import VIEWS, measure_commits, measure_view

from .filled import fill_large

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a small store."""
    path = tmp_path_factory.mktemp("store") / "store.db"

    async def fill() -> None:
        store = open_sqlite({"path": path})
        await fill_large(store, sessions=60, deliveries=600)
        await store.close()

    asyncio.run(fill())
    return path


@pytest.fixture(autouse=True)
def once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure once, apart from the data of a person."""
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))
    for name in ("ROUNDS", "COMMITS"):
        monkeypatch.setattr(f"tests.benchmarks.page.{name}", 1)


@pytest.mark.parametrize("view", VIEWS)
async def test_a_view_can_be_measured(path: Path, view: str) -> None:
    measured = [row.what async for row in measure_view(view, [(1, path), (2, path)])]
    assert all(what.startswith(view) for what in measured)
    if view in ("/", "/background/{background_id}", "/deliveries/{delivery_id}", "/dead", "/timers"):
        assert measured
    assert any(what.startswith("/cost again") for what in measured) == (view == "/cost")


async def test_a_commit_until_it_is_shown_can_be_measured(path: Path) -> None:
    measured = [row.what async for row in measure_commits(path, "60 sessions")]
    assert any(what.startswith("/log: a commit") for what in measured)
