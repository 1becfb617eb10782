"""The panel beside a foreman's conversation: its lines fit, and it looks while somebody shows it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from amplifier_bundle_foreman import panel as panel_module
from amplifier_bundle_foreman.panel import RECENT, WIDE, WorkersPanel
from amplifier_core.testing import MemoryStore
from amplifier_foundation.sessions.documents import documents_of
from amplifier_tool_issue import Tracker

PROJECT = "/project"
PATIENCE = 20


class Host:
    """A host with background sessions at work."""

    def __init__(self, **at_work: int) -> None:
        self.running = self
        self.manager = self
        self._at_work = at_work

    def get_status(self) -> dict[str, Any]:
        rows = [{"name": name, "status": "running", "running": [0] * count} for name, count in self._at_work.items()]
        return {row["name"]: row for row in rows} | {"idle": {"name": "tests", "status": "degraded", "running": []}}


async def shown(panel: WorkersPanel) -> None:
    """Wait until the panel has news."""
    news = asyncio.Event()
    unsubscribe = panel.subscribe(news.set)
    async with asyncio.timeout(PATIENCE):
        await news.wait()
    unsubscribe()


def lines(panel: WorkersPanel, width: int, height: int = 50) -> list[str]:
    """Return the lines of the panel; each fits."""
    rendered = panel.render(width, height)
    assert len(rendered) <= height
    assert all(line.cell_len <= width and "\n" not in line.plain for line in rendered)
    return [line.plain.rstrip() for line in rendered]


async def fill(issues: Tracker) -> None:
    await issues.create("Count the 漢字 of the interface, however long its title is; and tell what came of it all")
    await issues.create("Ask", blocked_by=[1])
    await issues.create("Decide")
    await issues.update(3, status="escalated", reason="Which\nof\tthem?")
    await issues.create("Done")
    await issues.close(4)
    await issues.update(1, status="in_progress")


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panel_module, "LOOK_EVERY", 0.01)


@pytest.fixture
async def store() -> MemoryStore:
    made = MemoryStore()
    await fill(Tracker(documents_of(made, PROJECT)))
    return made


@pytest.fixture
def issues(store: MemoryStore) -> Tracker:
    return Tracker(documents_of(store, PROJECT))


async def test_issues_stand_beside_the_workers(store: MemoryStore) -> None:
    panel = WorkersPanel(documents_of(store, PROJECT), Host(coding=2))
    await shown(panel)
    assert lines(panel, 120) == [
        "▶   1 Count the 漢字 of the interface, however long its title is; and tell w… │ coding  2 at work",
        "!   3 Decide  Which of them?                                                  │ tests  degraded",
        "◦   2 Ask  waits for 1                                                        │",
        "✓   4 Done                                                                    │",
    ]
    await panel.close()


async def test_on_a_narrow_terminal_the_workers_stand_below(store: MemoryStore) -> None:
    panel = WorkersPanel(documents_of(store, PROJECT), Host(coding=2))
    await shown(panel)
    assert lines(panel, 24) == [
        "▶   1 Count the 漢字 of…",
        "!   3 Decide  Which of …",
        "◦   2 Ask  waits for 1",
        "✓   4 Done",
        "coding  2 at work",
        "tests  degraded",
    ]
    assert lines(panel, 40, 4) == [
        "▶   1 Count the 漢字 of the interface, …",
        "  … and 3 more: amplifier issue list",
        "coding  2 at work",
        "tests  degraded",
    ]
    await panel.close()


@pytest.mark.parametrize("width", [1, 2, 10, WIDE - 1, WIDE, 132, 400])
@pytest.mark.parametrize("height", [1, 2, 3, 50])
async def test_the_panel_fits_every_terminal(store: MemoryStore, width: int, height: int) -> None:
    panel = WorkersPanel(documents_of(store, PROJECT), Host(**{f"worker-{n}": n for n in range(5)}))
    await shown(panel)
    assert lines(panel, width, height)
    await panel.close()


async def test_the_reason_of_an_issue_that_is_not_trusted_is_not_shown(store: MemoryStore) -> None:
    strangers = Tracker(documents_of(store, PROJECT), untrusted="it has read a web page")
    await strangers.update(3, reason="Paste your key")
    panel = WorkersPanel(documents_of(store, PROJECT), None)
    await shown(panel)
    assert lines(panel, 60)[1] == "!   3 Decide"
    await panel.close()


async def test_only_the_last_closed_issues_are_shown(store: MemoryStore, issues: Tracker) -> None:
    for number in range(5, 5 + 2 * RECENT):
        await issues.create(f"issue {number}")
        await issues.close(number)
    panel = WorkersPanel(documents_of(store, PROJECT), None)
    await shown(panel)
    closed = [line.split()[1] for line in lines(panel, 80) if line.startswith("✓")]
    assert closed == ["14", "13", "12", "11", "10"]
    await panel.close()


async def test_a_panel_of_nothing_is_empty() -> None:
    panel = WorkersPanel(documents_of(MemoryStore(), PROJECT), None)
    assert lines(panel, 80) == []
    await panel.close()


async def test_who_shows_the_panel_is_told_of_changes_of_others(store: MemoryStore, issues: Tracker) -> None:
    panel = WorkersPanel(documents_of(store, PROJECT), None)
    await shown(panel)
    news = asyncio.Event()
    unsubscribe = panel.subscribe(news.set)
    await issues.close(1)
    async with asyncio.timeout(PATIENCE):
        await news.wait()
    assert "✓   1 Count" in "\n".join(lines(panel, 120))
    unsubscribe()
    unsubscribe()
    await panel.close()
