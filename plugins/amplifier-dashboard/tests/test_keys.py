"""Everything is reached by keys, and none of them fires while a person types."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from .conftest import LIVE, Served, home_of
from .filled import Filled, fill

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

pytestmark = pytest.mark.slow


@pytest.fixture
def filled(served: Served, tmp_path: Path) -> Filled:
    """The store with everything."""
    found: Filled = served.run(fill(served.store, tmp_path / "projects"))
    return found


def press(page: Page, *keys: str) -> None:
    """Press one key after another."""
    for each in keys:
        page.keyboard.press(each)


def focused(page: Page) -> str:
    """Return the text of what has the focus."""
    text: str = page.evaluate("document.activeElement.textContent.trim()")
    return text


def test_the_keys_are_shown_with_those_of_the_page(page: Page) -> None:
    page.goto(page.url + "approvals")
    page.wait_for_selector(LIVE)
    press(page, "?")
    dialog = page.get_by_role("dialog", name="Keys")
    expect(dialog).to_be_visible()
    expect(dialog).to_contain_text("next row")
    expect(dialog.locator("dd", has_text="Approvals")).to_be_visible()
    press(page, "g", "o")
    expect(dialog).to_be_visible()
    press(page, "Escape")
    expect(dialog).to_be_hidden()
    page.get_by_role("button", name="Keys").click()
    expect(dialog).to_be_visible()


def test_g_and_a_letter_go_to_a_view(page: Page) -> None:
    press(page, "g", "a")
    page.wait_for_url("**/approvals")
    page.wait_for_selector(LIVE)
    press(page, "g", "o")
    page.wait_for_url(lambda url: url.endswith("/"))


def test_rows_are_chosen_with_j_and_k_and_opened_with_enter(served: Served, page: Page, filled: Filled) -> None:
    page.goto(f"{home_of(page)}/dead")
    page.wait_for_selector(LIVE)
    rows = page.locator("main table").first.locator("tbody tr")
    names = [each.locator("a, button").first.inner_text() for each in rows.all()]
    press(page, "j")
    assert focused(page) == names[0]
    press(page, "j")
    assert focused(page) == names[1]
    press(page, "k", "k")
    assert focused(page) == names[0]
    before = page.url
    press(page, "Enter")
    page.wait_for_url(lambda url: url != before)


def test_no_key_fires_while_a_person_types(page: Page) -> None:
    press(page, "/")
    expect(page.locator("#search")).to_be_focused()
    page.keyboard.type("ga?jd/")
    expect(page.locator("#search")).to_have_value("ga?jd/")
    expect(page.locator("#keys")).to_be_hidden()
    press(page, "Escape")
    expect(page.locator("#search")).not_to_be_focused()
    press(page, "?")
    expect(page.locator("#keys")).to_be_visible()


def test_the_chosen_row_keeps_the_focus_over_an_update(served: Served, page: Page, filled: Filled) -> None:
    page.goto(f"{home_of(page)}/dead")
    page.wait_for_selector(LIVE)
    press(page, "j")
    chosen = focused(page)
    assert chosen
    served.run(served.store.drop(filled.deliveries["uncertain"].delivery_id, reason="seen"))
    expect(page.get_by_role("link", name="Dead letters")).to_contain_text("2 given up")
    assert focused(page) == chosen


def test_a_session_is_forked_at_the_chosen_message(served: Served, page: Page, filled: Filled) -> None:
    page.goto(f"{home_of(page)}/sessions/{filled.sessions['reviewed']}")
    page.wait_for_selector(LIVE)
    before = {each.session_id for each in served.run(served.store.sessions())}
    press(page, "j", "j", "j", "j")
    expect(page.locator("#m4")).to_be_focused()
    press(page, "f")
    page.wait_for_url("**/talk")
    [fork] = [each for each in served.run(served.store.sessions()) if each.session_id not in before]
    assert (fork.fork_of, fork.fork_at) == (filled.sessions["reviewed"], 4)


def test_keys_of_one_character_can_be_turned_off(served: Served, page: Page, filled: Filled) -> None:
    page.get_by_role("button", name="Keys").click()
    page.get_by_label("Turn the keys of one character off in this browser").check()
    press(page, "Escape")
    other = page.context.new_page()  # it is kept by the browser
    home = home_of(page)
    for each in (page, other):
        each.goto(f"{home}/dead")
        each.wait_for_selector(LIVE)
        press(each, "j", "/", "?", "g", "o")
        expect(each.locator("#keys")).to_be_hidden()
        expect(each.locator("body")).to_be_focused()
        assert each.url.endswith("/dead")
    page.get_by_role("button", name="Keys").click()
    expect(page.get_by_label("Turn the keys of one character off in this browser")).to_be_checked()
    page.get_by_label("Turn the keys of one character off in this browser").uncheck()
    press(page, "Escape", "j")
    expect(page.locator("#causes a").first).to_be_focused()
