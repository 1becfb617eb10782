"""The benchmark of the page runs, over a small store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.benchmarks.page import measure

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


async def test_every_view_of_a_large_store_can_be_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("tests.benchmarks.page.ROUNDS", 1)
    measured = [row.what async for row in measure(tmp_path / "store", 60, 600)]
    for path in (
        "/,",
        "/background/{background_id},",
        "/deliveries/{delivery_id},",
        "/dead,",
        "/timers,",
        "/cost again",
    ):
        assert any(what.startswith(path) for what in measured), path
