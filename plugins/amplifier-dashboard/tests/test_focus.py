"""The keyboard keeps its place: what an act or an update takes away hands the focus to the next row or the heading."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from amplifier_core.events import SessionEvent
from amplifier_foundation.background.approvals import decide

from .conftest import Served
from .filled import fill
from .test_approvals import ask, visit

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("by", ["key", "button"])
def test_the_next_call_has_the_focus_once_one_is_approved(served: Served, page: Page, by: str) -> None:
    names = [ask(served, name, minutes).id for name, minutes in (("first", 9), ("second", 8), ("third", 7))]
    first, second, third = (page.locator(f"#approval-{name}") for name in names)
    visit(page, served, "/approvals")
    page.keyboard.press("j")
    page.keyboard.press("j")

    def approve() -> None:
        if by == "button":
            page.locator(":focus").get_by_role("button", name="Approve once").focus()
        else:
            page.keyboard.press("a")
        page.keyboard.press("Enter")

    approve()
    expect(second).to_have_count(0)
    expect(third).to_be_focused()
    approve()
    expect(third).to_have_count(0)
    expect(first).to_be_focused()  # the one before: it was the last one
    approve()
    expect(first).to_have_count(0)
    expect(page.get_by_role("heading", name="Approvals")).to_be_focused()


def test_the_next_call_has_the_focus_once_one_is_denied(served: Served, page: Page) -> None:
    ask(served, "first", minutes=9)
    second = ask(served, "second")
    visit(page, served, "/approvals")
    page.keyboard.press("j")
    page.keyboard.press("d")
    page.keyboard.type("no")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(page.locator(f"#approval-{second.id}")).to_be_focused()


def test_an_open_dialog_keeps_the_focus_when_what_is_behind_it_is_gone(served: Served, page: Page) -> None:
    first, second = ask(served, "first", minutes=9), ask(served, "second")
    visit(page, served, "/approvals")
    page.keyboard.press("j")
    page.keyboard.press("d")
    page.keyboard.press("Tab")
    expect(page.locator("#deny").get_by_role("button", name="Deny")).to_be_focused()
    served.run(decide(served.store, first, "approved"))
    expect(page.locator(f"#approval-{first.id}")).to_have_count(0)
    expect(page.locator("#deny").get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator(f"#approval-{second.id}")).to_be_focused()


def test_a_page_stays_where_it_is_read_when_what_has_the_focus_is_gone(served: Served, page: Page) -> None:
    asked = [ask(served, f"call-{number}", minutes=30 - number) for number in range(10, 22)]
    visit(page, served, "/approvals")
    page.keyboard.press("j")
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    served.run(decide(served.store, asked[0], "approved"))
    expect(page.locator(f"#approval-{asked[0].id}")).to_have_count(0)
    expect(page.locator(f"#approval-{asked[1].id}")).to_be_focused()
    expect(page.locator(f"#approval-{asked[-1].id}")).to_be_in_viewport()


def test_a_cause_that_is_retried_hands_the_focus_to_the_next(served: Served, page: Page, tmp_path: Path) -> None:
    filled = served.run(fill(served.store, tmp_path / "projects"))
    visit(page, served, "/dead")
    causes = page.locator("#causes tbody tr")
    expect(causes).to_have_count(2)
    next_one = causes.nth(1).get_by_role("link").inner_text()
    causes.first.get_by_role("button", name="Retry all").focus()
    page.keyboard.press("Enter")
    expect(causes).to_have_count(1)
    expect(page.locator(":focus")).to_have_text(next_one)
    causes.first.get_by_role("button", name="Retry all").focus()
    served.run(served.store.drop(filled.deliveries["uncertain"].delivery_id, reason="seen"))
    expect(page.get_by_role("heading", name="None")).to_be_focused()


def test_what_has_the_focus_is_updated_and_stays_focusable(served: Served, page: Page, tmp_path: Path) -> None:
    filled = served.run(fill(served.store, tmp_path / "projects"))
    visit(page, served, f"/sessions/{filled.sessions['reviewed']}")
    page.evaluate("document.querySelector('h1').tabIndex = -1")
    page.locator("h1").focus()
    page.locator(".line-form").evaluate("form => { form.elements.name.value = 'renamed'; form.requestSubmit(); }")
    expect(page.locator("h1")).to_contain_text("renamed")
    expect(page.locator("h1")).to_be_focused()


def test_an_act_that_leaves_its_button_leaves_the_focus_on_it(served: Served, page: Page, tmp_path: Path) -> None:
    filled = served.run(fill(served.store, tmp_path / "projects"))
    visit(page, served, f"/sessions/{filled.sessions['reviewed']}")
    page.get_by_label("Name").fill("another name")
    rename = page.get_by_role("button", name="Rename")
    rename.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".toast")).to_be_visible()
    expect(page.locator("h1")).to_contain_text("another name")
    expect(rename).to_be_focused()
    expect(rename).to_be_enabled()


def test_the_next_entry_has_the_focus_once_a_list_has_let_go_of_one(served: Served, page: Page) -> None:
    served.run(served.store.emit(SessionEvent("log:first", {})))
    visit(page, served, "/log")
    first = page.locator("#events li").first
    first.evaluate("entry => { entry.tabIndex = -1; entry.focus(); }")
    expect(first).to_be_focused()

    async def push_it_out() -> None:
        for number in range(250):
            await served.store.emit(SessionEvent(f"log:{number}", {}))

    served.run(push_it_out())
    expect(page.locator("#events")).to_contain_text("log:249")
    expect(page.locator("#events")).not_to_contain_text("log:first")
    expect(page.locator("#events li:focus")).to_have_count(1)
