"""One field searches everything; what is found stays text, with its words marked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from amplifier_core.documents import DocumentChange
from amplifier_core.text_search import read_query
from amplifier_core.triggers import TriggerEvent, TriggerType
from amplifier_dashboard.links import background_path
from amplifier_dashboard.views.search import find_deliveries, mark_words

from .conftest import LIVE, Served, home_of
from .filled import HOSTILE, Filled, fill

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

pytestmark = pytest.mark.slow


@pytest.fixture
def filled(served: Served, tmp_path: Path) -> Filled:
    """The store with everything."""
    found: Filled = served.run(fill(served.store, tmp_path / "projects"))
    return found


def search(page: Page, text: str) -> None:
    """Search by keys."""
    page.keyboard.press("/")
    page.keyboard.type(text)
    page.keyboard.press("Enter")
    page.wait_for_url("**/search?q=**")
    page.wait_for_selector(LIVE)


def test_a_message_is_found_with_a_link_to_it(served: Served, page: Page, filled: Filled) -> None:
    search(page, "divides zero")
    hit = page.locator("section", has_text="Messages").locator("li").first
    expect(hit.locator("mark").first).to_have_text("divides")
    link = hit.get_by_role("link").get_attribute("href")
    root = home_of(page).rpartition("/")[2]
    assert link == f"/{root}/sessions/{filled.sessions['reviewed']}?to=m4#m4"
    expect(page.locator("#search")).to_have_value("divides zero")


def test_sessions_background_sessions_and_events_are_found(served: Served, page: Page, filled: Filled) -> None:
    search(page, "reviewer")
    queues = page.locator("section", has_text="Background sessions")
    path = background_path(filled.shop, "shop/reviewer")
    expect(queues.locator(f"a[href$='{path}']")).to_have_text("shop/reviewer")
    expect(page.locator("section", has_text="Sessions").first.locator("li").first).to_contain_text("reviewer")
    page.goto(f"{home_of(page)}/search?q=done.py")
    delivery = filled.deliveries["done"].delivery_id
    expect(page.locator("section", has_text="Events").locator(f"a[href$='/deliveries/{delivery}']")).to_be_visible()


def test_issues_and_notes_of_all_projects_are_found(served: Served, page: Page, filled: Filled) -> None:
    issue = {"title": "Broken gate", "description": "The gate of the garden squeaks."}
    note = {"title": "Oil", "text": "The oil for the gate is in the shed."}
    changes = [
        DocumentChange(filled.garden, "issues", "7", issue),
        DocumentChange(filled.garden, "memory.notes", "1", note, searched=("title", "text")),
    ]
    served.run(served.store.write_documents(changes))
    search(page, "gate")
    expect(page.get_by_role("region", name="Issues").locator("li")).to_contain_text("The gate of the garden squeaks.")
    expect(page.get_by_role("region", name="Notes").locator("li")).to_contain_text("in the shed")


def test_the_text_of_strangers_stays_text(served: Served, page: Page, filled: Filled) -> None:
    search(page, "hacked script")
    expect(page.locator("#found")).to_contain_text("window.hacked = true")
    assert page.evaluate("window.hacked") is None
    assert page.locator("#found script, #found img").count() == 0


def test_an_event_is_found_by_what_is_shown_of_it(served: Served) -> None:
    key = "sk-ant-api03-" + "aB3" * 30
    paths = (f"src/{key}/main.py", "src/Größe.py", "src/other.py")
    for path in paths:
        event = TriggerEvent(TriggerType.FILE_CHANGE, "watcher", file_path=path, change_type="modified")
        served.run(served.store.enqueue("/p", "bundle/queue", "trigger-file-watcher", event))
    found = {
        text: [each.title for each in served.run(find_deliveries(served.desk, read_query(text))).hits]
        for text in ("redacted main", "REDACT", "main", "grosse", "GRÖSSE modif", "aB3aB3", "other main", "py src")
    }
    hidden, accented, plain = "file src/[REDACTED]/main.py modified", "file src/Größe.py modified", "file src/other.py"
    assert found == {
        "redacted main": [hidden],
        "REDACT": [hidden],
        "main": [hidden],
        "grosse": [accented],
        "GRÖSSE modif": [accented],
        "aB3aB3": [],
        "other main": [],
        "py src": [f"{plain} modified", accented, hidden],
    }


def test_words_are_marked_as_elements_and_all_else_is_escaped() -> None:
    assert mark_words("Über <b>Uber</b>", ["uber"]) == "<mark>Über</mark> &lt;b&gt;<mark>Uber</mark>&lt;/b&gt;"
    assert "<script" not in mark_words(HOSTILE, ["script"])


def test_what_is_not_found_says_how_words_are_looked_for(served: Served, page: Page) -> None:
    search(page, "nowhere")
    expect(page.locator("#found")).to_contain_text("Nothing was found for “nowhere”.")
