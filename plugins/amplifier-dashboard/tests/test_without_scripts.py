"""Without JavaScript the pages are for reading: no button looks usable that is not, and the reason is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from .conftest import home_of
from .filled import Filled, fill

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    from .conftest import Served

pytestmark = pytest.mark.slow


@pytest.fixture
def filled(served: Served, tmp_path: Path) -> Filled:
    """The store with everything."""
    found: Filled = served.run(fill(served.store, tmp_path / "projects"))
    return found


@pytest.fixture
def page(browser: Browser, served: Served) -> Iterator[Page]:
    """The page of a browser that is let in and runs no scripts."""
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(served.link)
    yield page
    context.close()


def test_no_act_looks_usable_and_the_page_says_why(served: Served, filled: Filled, page: Page) -> None:
    paths = [
        "/approvals",
        "/dead",
        f"/deliveries/{filled.deliveries['dead'].delivery_id}",
        f"/sessions/{filled.sessions['reviewed']}",
        f"/sessions/{filled.sessions['reviewed']}/talk",
        f"/flows/{filled.sessions['run']}",
    ]
    for path in paths:
        page.goto(home_of(page) + path)
        assert page.locator("main form[data-act]").count(), path
        expect(page.locator("header")).to_contain_text("Buttons and updates of this page need its scripts")
        shown = page.locator("main").locator("button, summary.button, input:not([type=hidden]), textarea")
        assert [each.inner_text() for each in shown.all() if each.is_visible()] == [], path


def test_a_form_that_is_sent_without_its_scripts_is_told_so(served: Served, filled: Filled, page: Page) -> None:
    page.route("**/style.css", lambda route: route.fulfill(body="", content_type="text/css"))
    page.goto(f"{home_of(page)}/dead")
    page.get_by_role("button", name="Retry all").first.click()
    expect(page.locator("main")).to_contain_text("allow JavaScript")
    expect(page.locator("main")).not_to_contain_text("another browser")


def test_filters_and_the_editor_are_usable(served: Served, filled: Filled, page: Page) -> None:
    page.goto(f"{home_of(page)}/sessions")
    expect(page.get_by_role("button", name="Show")).to_be_visible()
    page.goto(f"{home_of(page)}/bundles/edit?path={filled.shop}/bundle.md")
    expect(page.get_by_role("button", name="Save")).to_be_visible()
