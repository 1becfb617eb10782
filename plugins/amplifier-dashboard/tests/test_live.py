"""A shown page follows the store, in a real browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_core.events import SessionEvent

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from .conftest import Served


def test_an_event_appears_once_without_a_reload(served: Served, page: Page) -> None:
    for number in range(3):
        served.run(served.store.emit(SessionEvent(f"work:number-{number}", {})))
    page.wait_for_selector("#events li:has-text('work:number-2')")
    assert page.locator("#events li").all_inner_texts()[-3:] == page.locator("#events li").all_inner_texts()
