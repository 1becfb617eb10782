"""The benchmark of the page runs, over a small store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_storage_sqlite import open_sqlite
from tests.benchmarks.page import VIEWS, measure_commits, measure_view

from .filled import fill_large

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


async def test_every_view_of_a_store_can_be_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))
    for name in ("ROUNDS", "COMMITS"):
        monkeypatch.setattr(f"tests.benchmarks.page.{name}", 1)
    path = tmp_path / "store.db"
    store = open_sqlite({"path": path})
    await fill_large(store, sessions=60, deliveries=600)
    await store.close()
    files = [(size, path) for size in (1, 2, 4, 8)]
    measured = [row.what for view in VIEWS async for row in measure_view(view, files)]
    measured += [row.what async for row in measure_commits(path, "60 sessions")]
    for view in (
        "/,",
        "/background/{background_id},",
        "/deliveries/{delivery_id},",
        "/dead,",
        "/timers,",
        "/cost again",
        "/log: a commit",
        "/search?q=",
    ):
        assert any(what.startswith(view) for what in measured), view
