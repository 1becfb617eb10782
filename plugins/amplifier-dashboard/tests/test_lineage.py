"""People see who made, forked and woke whom, and walk the tree by keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from amplifier_core.storage import SessionRecord

from .conftest import LIVE, Served, home_of
from .filled import fill

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

pytestmark = pytest.mark.slow


def go(page: Page, served: Served, path: str) -> None:
    page.goto(home_of(page) + path)
    page.wait_for_selector(LIVE)


def test_sessions_stand_below_those_that_made_forked_and_woke_them(served: Served, page: Page, tmp_path: Path) -> None:
    filled = served.run(fill(served.store, tmp_path / "projects"))
    go(page, served, "/lineage")
    reviewed = page.locator(f"#row-{filled.sessions['reviewed']}")
    assert reviewed.get_attribute("aria-level") == "2"
    assert "woken by file done.py" in reviewed.inner_text()
    helper, fork = (page.locator(f"#row-{filled.sessions[name]}") for name in ("helper", "fork"))
    assert [each.get_attribute("aria-level") for each in (helper, fork)] == ["3", "3"]
    assert "made" in helper.inner_text()
    assert "fork, shares m1\N{EN DASH}m2" in fork.inner_text()
    shapes = [each.locator("svg path").last.get_attribute("class") for each in (reviewed, helper, fork)]
    assert shapes == ["woken", "made", "fork"]


def test_branches_open_and_close_by_keys_and_stay_so_after_an_update(
    served: Served, page: Page, tmp_path: Path
) -> None:
    filled = served.run(fill(served.store, tmp_path / "projects"))
    go(page, served, f"/lineage?session={filled.sessions['reviewed']}")
    reviewed, helper = (page.locator(f"#row-{filled.sessions[name]}") for name in ("reviewed", "helper"))
    reviewed.focus()
    page.keyboard.press("ArrowLeft")
    helper.wait_for(state="hidden")
    made = SessionRecord("new-0001", parent_id=filled.sessions["reviewed"], name="new", status="completed")
    served.run(served.store.create(made))
    page.wait_for_selector("#row-new-0001", state="attached")
    assert helper.is_hidden()
    assert page.locator("#row-new-0001").is_hidden()
    assert reviewed.evaluate("row => document.activeElement === row")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.id") == "row-new-0001"
    page.keyboard.press("Enter")
    page.wait_for_url("**/sessions/new-0001")


def test_only_the_newest_of_many_sessions_are_shown_with_those_above_them(served: Served, page: Page) -> None:
    async def store() -> None:
        await served.store.create(SessionRecord("top-0001", status="completed"))
        for number in range(520):
            await served.store.create(SessionRecord(f"below-{number:04}", parent_id="top-0001", status="completed"))

    served.run(store())
    go(page, served, "/lineage")
    assert page.locator("#rows li").count() == 501
    assert page.locator("#rows li").nth(1).get_attribute("id") == "row-below-0519"
    go(page, served, "/lineage?session=below-0000")
    assert page.locator("#rows li[aria-current]").get_attribute("id") == "row-below-0000"
    assert "51 shown below" in str(page.text_content("#row-top-0001"))
    assert "Beside the chosen one, the last 50 sessions are shown." in str(page.text_content("#tree"))
