"""The page of a lineage in a headless browser: filter, keys, links, small screens, many sessions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import SessionRecord
from amplifier_core.triggers import TriggerEvent, TriggerType
from amplifier_foundation import forest
from amplifier_foundation.sessions.lineage import Node
from amplifier_foundation.sessions.lineage_html import lineage_page
from tests.browser import Page, chromium

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

DAY = datetime(2026, 1, 1, tzinfo=UTC)
PRICED = {"duration": 1.5, "usage": {"cost_usd": "0.25", "input_tokens": 10, "requests": 1}}


def record(session_id: str, minute: int, **facts: Any) -> SessionRecord:
    moment = DAY + timedelta(minutes=minute)
    return SessionRecord(session_id, created=moment, updated=moment, **facts)


def said(text: str, answer: str, **about: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}, {"role": "assistant", "content": answer, "metadata": about}]


def family() -> tuple[list[Node], dict[str, Any]]:
    """Return an empty root with a finished child, its fork, a failed child that it woke, and its own child."""
    records = [
        record("root", 9, status="idle", name="demo"),
        record(
            "review-1",
            1,
            parent_id="root",
            name="review",
            status="completed",
            message_count=2,
            turn_count=1,
            metadata=PRICED,
        ),
        record("fork-1", 2, parent_id="root", fork_of="review-1", fork_at=1, status="completed", message_count=2),
        record(
            "sum-1",
            3,
            parent_id="root",
            name="sum",
            status="failed",
            error="it broke\nbadly",
            message_count=2,
            turn_count=1,
        ),
        record("agent-1", 4, parent_id="sum-1", status="completed", metadata={"agent": "helper"}),
    ]
    roots = forest(records)
    [node] = [each for each in roots[0].children if each.record.session_id == "sum-1"]
    event = TriggerEvent(TriggerType.SESSION_EVENT, "x", event_name="done", source_session_id="review-1", timestamp=DAY)
    from amplifier_core.storage import Delivery

    node.woken_by = Delivery("d", "/p", "sum", "t", event, state="dead")
    stamp = (DAY + timedelta(seconds=9)).isoformat()
    call = {"timestamp": stamp, "model": "maker/large", **PRICED}
    histories = {
        "review-1": said("look at a.py", "All good.\nReally.", **call),
        "fork-1": said("", "Or not.")[1:],
        "sum-1": said("sum it up", "no"),
        "root": [],
        "agent-1": [],
    }
    return roots, histories


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with chromium(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture
def page(browser: Page, tmp_path: Path) -> Iterator[Page]:
    roots, histories = family()
    (tmp_path / "tree.html").write_text(lineage_page(roots, histories, "/p"), encoding="utf-8")
    browser.problems.clear()
    browser.show(1280, 800)
    browser.open(tmp_path / "tree.html")
    yield browser
    assert browser.problems == []


def rows(page: Page, more: str = "") -> list[str]:
    found: list[str] = page.ask(f"[...document.querySelectorAll('.row{more}')].map((row) => row.dataset.session)")
    return found


def title(page: Page) -> str:
    return page.text("#reader-title")


def active(page: Page) -> str:
    name = "document.getElementById(document.getElementById('lineage').getAttribute('aria-activedescendant'))"
    return str(page.ask(f"{name}.dataset.session"))


def fragment(page: Page) -> str:
    return str(page.ask("location.hash"))


def test_it_opens_on_the_newest_session_with_something_in_it(page: Page) -> None:
    assert title(page) == "sum-1"
    assert rows(page) == ["root", "review-1", "fork-1", "sum-1", "agent-1"]


def test_each_row_says_its_status_seconds_cost_and_outcome(page: Page) -> None:
    shown = page.text(".row[data-session='review-1']").split("\n")
    assert {"review-1", "completed", "1 turn · 1.5 s · $0.2500", "All good."} <= set(shown)
    failed = page.text(".row[data-session='sum-1']")
    assert "failed" in failed
    assert "it broke" in failed
    assert "badly" not in failed


def test_the_filter_counts_matches_and_failures_and_stands_in_the_address(page: Page) -> None:
    assert page.text("#count") == "5 sessions · 1 failed"
    page.press("/", *"look")
    assert rows(page, ":not(.context)") == ["review-1"]
    assert rows(page, ".context") == ["root"]
    assert page.text("#count") == "1 of 5 sessions match · 0 failed"
    assert fragment(page) == "#text=look"


def test_a_pasted_address_has_filter_session_and_view(page: Page, tmp_path: Path) -> None:
    page.open(tmp_path / "tree.html", "#session=review-1&view=trace&status=failed&name=SUM")
    assert title(page) == "review-1"
    assert rows(page, ":not(.context)") == ["sum-1"]
    assert page.ask("document.getElementById('filter-status').value") == "failed"
    assert "Where the time and the money went" in page.text("#reader")


def test_an_address_with_an_id_alone_still_opens_that_session(page: Page) -> None:
    page.go("#fork-1")
    assert title(page) == "fork-1"


def test_every_mention_of_a_session_is_a_link_and_back_and_forward_follow(page: Page) -> None:
    links = page.ask("[...document.querySelectorAll('#reader dl a')].map((each) => each.textContent)")
    assert links == ["root", "review-1", "agent-1"]  # made by, woken by, children
    page.click("#reader dl a[href*='review-1']")
    assert title(page) == "review-1"
    links = page.ask("[...document.querySelectorAll('#reader dl a')].map((each) => each.textContent)")
    assert links == ["root", "fork-1", "sum-1"]  # made by, forks, woke
    page.click("#reader dl a[href*='fork-1']")
    page.back()
    assert title(page) == "review-1"
    page.back(1)
    assert title(page) == "fork-1"


def test_keys_move_in_the_tree_open_a_session_and_lead_back(page: Page) -> None:
    page.ask("document.getElementById('lineage').focus()")
    page.press("Home", "ArrowDown", "ArrowRight", "ArrowDown")
    assert active(page) == "sum-1"
    page.press("ArrowLeft")
    assert rows(page) == ["root", "review-1", "fork-1", "sum-1"]
    assert page.ask("document.querySelector('[data-session=\"sum-1\"]').getAttribute('aria-expanded')") == "false"
    page.press("ArrowRight", "ArrowUp", "Enter")
    assert (title(page), page.ask("document.activeElement.id")) == ("fork-1", "reader")
    page.press("Escape")
    assert page.ask("document.activeElement.id") == "lineage"
    page.press("?")
    assert page.ask("document.getElementById('keys').open")
    page.press("Escape")
    assert not page.ask("document.getElementById('keys').open")


def test_a_screen_reader_finds_a_tree_with_names_levels_and_places(page: Page) -> None:
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    named = {each["role"]["value"]: each["name"]["value"] for each in nodes if "role" in each and "name" in each}
    assert named["tree"].lower() == "lineage"
    assert named["article"] == "sum-1"
    items = [each["name"]["value"] for each in nodes if each.get("role", {}).get("value") == "treeitem"]
    assert "review, completed, 1 turn, 1.5 s, $0.2500, All good." in items
    assert {"Text", "Name"} <= {
        each["name"]["value"] for each in nodes if each.get("role", {}).get("value") == "searchbox"
    }
    row = "document.querySelector('[data-session=\"sum-1\"]')"
    places = f"['aria-level', 'aria-posinset', 'aria-setsize'].map((name) => {row}.getAttribute(name))"
    assert page.ask(places) == ["2", "2", "2"]


def test_on_a_phone_a_session_lies_over_the_list_and_back_leads_to_it(page: Page, tmp_path: Path) -> None:
    page.show(390, 844)
    page.open(tmp_path / "tree.html", "#status=")
    visible = "document.getElementById('reader').checkVisibility()"
    assert not page.ask(visible)
    page.click(".row[data-session='review-1']")
    assert page.ask(visible)
    assert page.ask("document.getElementById('reader').getBoundingClientRect().top") == 0
    assert page.ask("document.documentElement.scrollWidth") == 390
    page.back()
    assert not page.ask(visible)
    page.click(".row[data-session='review-1']")
    page.click(".back")
    assert not page.ask(visible)
    assert page.ask("document.documentElement.scrollWidth") == 390


def test_the_colours_follow_the_system(page: Page) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    light = page.ask(colour)
    page.show(1280, 800, prefers_color_scheme="dark")
    assert page.ask(colour) != light


def test_the_trace_has_sums_the_slowest_calls_and_bars(page: Page) -> None:
    page.go("#session=review-1&view=trace")
    shown = page.text("#reader")
    assert "model maker/large\t1\t1.5 s\t10\t0\t$0.2500" in shown
    assert page.ask("document.querySelectorAll('.span.model').length") == 1
    page.go("#session=sum-1&view=trace")
    assert "have no time: it was not recorded" in page.text("#reader")


def test_of_ten_thousand_sessions_only_the_rows_in_view_are_made(browser: Page, tmp_path: Path) -> None:
    records = [record(f"s-{each:05}", each, status="completed", message_count=1) for each in range(10_000)]
    page = lineage_page([Node(each) for each in records], {each.session_id: [] for each in records}, "/p")
    assert len(page) < 4_000_000
    (tmp_path / "many.html").write_text(page, encoding="utf-8")
    browser.show(1280, 800)
    browser.open(tmp_path / "many.html")
    assert title(browser) == "s-09999"
    assert browser.ask("document.querySelectorAll('*').length") < 3_000
    browser.ask("document.getElementById('lineage').focus()")
    browser.press("Home")
    assert active(browser) == "s-00000"
    assert len(rows(browser)) < 40
    browser.press("/", *"s-04321")
    assert rows(browser) == ["s-04321"]
