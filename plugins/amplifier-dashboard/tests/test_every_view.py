"""Rules for all views: for screen readers, phones and the dark; nothing moves, and nothing of strangers is run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from amplifier_core.events import SessionEvent
from amplifier_dashboard.pages import View, find_views

from .conftest import LIVE, Served, home_of, opened, served_page
from .filled import Filled, fill

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow

MOVES = """
() => new Promise((done) => {
  let moved = 0;
  new PerformanceObserver((list) => {
    for (const each of list.getEntries()) moved += each.value;
  }).observe({ type: "layout-shift", buffered: true });
  requestAnimationFrame(() => requestAnimationFrame(() => done(moved)));
})
"""
"""How much of the page has moved by itself: 1 is all of it, over its whole height."""
OUT_OF_REACH = """
all => all
  .filter(each => each.checkVisibility() && each.tabIndex < 0 && !each.closest("[role=tree]"))
  .map(each => each.outerHTML)
"""
"""Keys move in a tree, which is reached as a whole."""
NAMELESS = """
all => all.filter(each => !each.role && /^(PRE|DIV|SPAN|P|CODE)$/.test(each.tagName)).map(each => each.outerHTML)
"""
"""Elements with a name and without a role: a screen reader leaves their names out."""
UNDERLINED = """
all => all.filter(each => parseFloat(getComputedStyle(each).borderBottomWidth)).map(each => each.ariaCurrent)
"""
"""Whether they are the current ones; forced colors show transparent lines, too."""
UNROOTED = """
() => [...document.querySelectorAll("[href], [action], [formaction]")]
  .flatMap(each => ["href", "action", "formaction"].map(name => each.getAttribute(name)))
  .filter(each => each !== null)
  .map(each => new URL(each, location))
  .filter(each => each.origin === location.origin && !/^[/](static[/]|~)/.test(each.pathname))
  .map(String)
"""
"""Links and forms outside of the path of the browser's login."""
CONTROLS = "main :is(a[href], button, input:not([type=hidden]), select, textarea, summary)"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Filled]]:
    """A page of a store with everything."""
    folder = tmp_path_factory.mktemp("store")
    with served_page(folder) as served:
        yield served, served.run(fill(served.store, folder / "work"))


@pytest.fixture(scope="module")
def page(browser: Browser, place: tuple[Served, Filled]) -> Iterator[Page]:
    """One browser for all views: an error of a script or a refused resource fails them."""
    with opened(browser, place[0].link) as page:
        yield page


def open_view(page: Page, view: View, served: Served, filled: Filled) -> None:
    """Open a view of what the store holds."""
    background = page.goto(f"{home_of(page)}/") and page.locator("a[href*='/background/']").first.get_attribute("href")
    names = {
        "session_id": filled.sessions["reviewed"],
        "delivery_id": filled.deliveries["dead"].delivery_id,
        "background_id": str(background).rpartition("/")[2],
        "number": "1",
        "run_id": filled.sessions["run"],
    }
    query = f"?path={filled.shop}/bundle.md" if view.path == "/bundles/edit" else ""
    page.goto(home_of(page) + view.path.format(**names) + query)
    page.wait_for_selector(LIVE)


def find_faults(page: Page, **options: Any) -> list[tuple[str, str]]:
    """Return the rules of axe that a page breaks, each with the first element."""
    found: list[dict[str, Any]] = Axe().run(page, options=options).response["violations"]
    serious = [each for each in found if each["impact"] in ("moderate", "serious", "critical")]
    return [(each["id"], each["nodes"][0]["html"][:200]) for each in serious]


@pytest.mark.parametrize("view", find_views(), ids=lambda view: view.path)
def test_a_view_is_for_everybody(view: View, page: Page, place: tuple[Served, Filled]) -> None:
    served, filled = place
    open_view(page, view, served, filled)
    assert page.title().endswith("amplifier")
    assert page.locator("h1").count() == 1
    assert page.evaluate(UNROOTED) == []
    assert find_faults(page) == []
    assert find_faults(page, runOnly=["label-content-name-mismatch"]) == []
    assert page.locator("[aria-label]").evaluate_all(NAMELESS) == []
    searches = [each.get_attribute("aria-label") for each in page.get_by_role("search").all()]
    assert all(searches)
    assert len(set(searches)) == len(searches)
    assert set(page.locator("nav a").evaluate_all(UNDERLINED)) <= {"page", "true"}
    page.emulate_media(color_scheme="dark")
    assert find_faults(page, runOnly=["color-contrast"]) == []
    page.emulate_media(color_scheme="light")
    assert page.locator(CONTROLS).evaluate_all(OUT_OF_REACH) == []
    served.run(served.store.emit(SessionEvent("work:done", {})))
    page.wait_for_function("event => document.documentElement.dataset.live === 'yes'")
    assert page.evaluate(MOVES) <= 0.1  # the most that counts as good: https://web.dev/articles/cls
    assert page.evaluate("window.hacked") is None
    assert page.locator("img[src*='example.org'], script:not([src])").count() == 0
    page.set_viewport_size({"width": 390, "height": 800})
    wide = page.evaluate("document.documentElement.scrollWidth")
    page.set_viewport_size({"width": 1280, "height": 800})
    assert wide <= 390
