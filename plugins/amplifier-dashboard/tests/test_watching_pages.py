"""Views of what runs, in a real browser: they follow the store, and do what a person clicks."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from amplifier_dashboard.links import background_key

from .conftest import LIVE, Served, home_of, opened, served_page
from .filled import Filled, deliver, file_change, fill
from .test_beside_up import make_link, running
from .test_guard import Client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow

PHONE = {"width": 390, "height": 844}
BUNDLE = """---
bundle: {name: shop}
providers: [{module: provider-playbook, config: {otherwise: {say: done}}}]
background_sessions:
  - name: worker
    triggers: [{module: trigger-manual}]
---
"""


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """Serve a store of its own; nothing runs."""
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AMPLIFIER_TRUST", "1")
    with served_page(tmp_path / "store") as served:
        yield served


@pytest.fixture
def filled(served: Served, tmp_path: Path) -> Filled:
    filled: Filled = served.run(fill(served.store, tmp_path / "projects"))
    return filled


def go(page: Page, served: Served, path: str) -> None:
    page.goto(home_of(page) + path)
    page.wait_for_selector(LIVE)


def test_the_overview_follows_the_store(served: Served, filled: Filled, page: Page) -> None:
    go(page, served, "/")
    queue = page.locator("#queues tr", has_text="garden/watcher")
    expect(queue.locator("[data-label=Waiting]")).to_have_text("0")
    page.evaluate("window.stays = true")
    at = datetime.now(UTC)
    served.run(deliver(served.store, filled.garden, "garden/watcher", "t", file_change("rose.txt", at), at))
    expect(queue.locator("[data-label=Waiting]")).to_have_text("1")
    line = page.locator("#events li", has_text="file rose.txt modified")
    expect(line).to_have_count(1)
    assert page.evaluate("window.stays")
    line.get_by_role("link", name="file rose.txt modified").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Delivery")


def test_text_of_strangers_is_never_run(served: Served, filled: Filled, page: Page) -> None:
    for path in ("/", f"/deliveries/{filled.deliveries['hostile'].delivery_id}"):
        go(page, served, path)
        expect(page.locator("body")).to_contain_text("<script>window.hacked")
        assert page.evaluate("window.hacked === undefined")


def test_ticked_boxes_stay_ticked_while_the_page_changes(served: Served, filled: Filled, page: Page) -> None:
    go(page, served, "/dead")
    dead, other = (filled.deliveries[name].delivery_id for name in ("dead", "dead-too"))
    page.locator(f"#box-{dead}").check()
    page.locator("summary", has_text="Drop the chosen").click()
    served.run(served.store.drop(other, reason="by somebody else"))
    expect(page.locator(f"#letter-{other}")).to_have_count(0)
    expect(page.locator(f"#box-{dead}")).to_be_checked()
    page.get_by_role("button", name="Retry the chosen").click()
    expect(page.locator("#toasts")).to_contain_text("1 event is handled again")
    expect(page.locator(f"#letter-{dead}")).to_have_count(0)


def test_one_box_ticks_all(served: Served, filled: Filled, page: Page) -> None:
    go(page, served, "/dead")
    page.get_by_label("Choose all on this page").check()
    page.locator("summary", has_text="Drop the chosen").click()
    page.locator(".below input[name=reason]").fill("the model is gone")
    page.locator(".below").get_by_role("button", name="Drop for good").click()
    expect(page.locator("#causes")).to_contain_text("No event has failed every attempt")
    reasons = {each.reason for each in served.run(served.store.deliveries(state="skipped"))}
    assert reasons == {"dropped by hand", "the model is gone"}


def test_a_person_decides_on_an_interrupted_call(served: Served, filled: Filled, page: Page) -> None:
    uncertain = filled.deliveries["uncertain"].delivery_id
    go(page, served, f"/deliveries/{uncertain}")
    page.get_by_role("button", name="It is done: go on").click()
    expect(page.locator("#delivery")).to_contain_text("waiting")
    expect(page.locator("#chain")).to_contain_text("ada")


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_no_view_is_wider_than_a_phone(served: Served, filled: Filled, browser: Browser, colours: str) -> None:
    paths = [
        "/",
        f"/background/{background_key(filled.shop, 'shop/reviewer')}",
        f"/deliveries/{filled.deliveries['hostile'].delivery_id}",
        "/dead",
        "/timers?days=31",
        "/cost",
        "/hosts",
    ]
    with opened(browser, served.link, viewport=PHONE, color_scheme=colours) as page:
        for path in paths:
            go(page, served, path)
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path


def test_a_running_background_session_is_paused_and_resumed(tmp_path: Path, browser: Browser) -> None:
    (tmp_path / "bundle.md").write_text(BUNDLE, encoding="utf-8")
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "home" / "settings.yaml").write_text("servers: {dashboard: {port: 0}}\n", encoding="utf-8")
    with (
        running(tmp_path, "up", "--serve", "dashboard", "bundle.md", "--trust") as address,
        opened(browser, make_link(tmp_path, Client(address))) as page,
    ):
        page.get_by_role("link", name="shop/worker").first.click()
        page.wait_for_selector(LIVE)
        state = page.locator("#facts dd").first
        expect(state).to_contain_text("running")
        page.get_by_role("button", name="Pause").click()
        expect(page.locator("#toasts")).to_contain_text("shop/worker is paused.")
        expect(state).to_contain_text("paused")
        page.get_by_role("button", name="Resume").click()
        expect(state).to_contain_text("running")
        page.locator("summary", has_text="Stop").click()
        page.get_by_role("button", name="Stop it").click()
        expect(state).to_contain_text("stopped")
