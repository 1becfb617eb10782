"""Serve the page from a thread, and drive it in a headless Chromium."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from amplifier_core import load_plugins
from amplifier_dashboard.config import read_config
from amplifier_dashboard.desk import Desk
from amplifier_dashboard.server import make_link, serving
from amplifier_storage_sqlite import open_sqlite
from tests.programs import require

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from amplifier_core.storage import DurableStore

LIVE = "html[data-live=yes]"
"""Found once the page gets its updates."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests in a browser as long: each file takes seconds for it. The smallest share keeps those of views."""
    for item in items:
        is_view = item.path.name == "test_every_view.py"
        if item.path.parent == Path(__file__).parent and "browser" in getattr(item, "fixturenames", ()) and not is_view:
            item.add_marker(pytest.mark.long)


@dataclass
class Served:
    """A page that is served; `run` runs a coroutine in the loop of its server."""

    address: str
    store: DurableStore
    desk: Desk
    loop: asyncio.AbstractEventLoop

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Return what `work` returns."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout=60)

    @property
    def link(self) -> str:
        """An address that lets one browser in."""
        return make_link(self.address)


def home_of(page: Page) -> str:
    """Return the address below which a shown page's browser is known."""
    found = re.match(r"https?://[^/]+/~[0-9a-f]+", page.url)
    assert found, page.url
    return found[0]


@contextmanager
def served_page(folder: Path, *, project: str = "/work", read_only: bool = False, **config: Any) -> Iterator[Served]:
    """Serve the store of a folder while the block runs."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, name="server")
    thread.start()
    stack = AsyncExitStack()

    async def start() -> Served:
        store = open_sqlite({"folder": folder})
        stack.push_async_callback(store.close)
        own = Desk(store, load_plugins(), "ada", project, read_only)
        address = await stack.enter_async_context(serving(own, read_config({"port": 0, **config})))
        return Served(address, store, own, loop)

    try:
        yield asyncio.run_coroutine_threadsafe(start(), loop).result(timeout=60)
    finally:
        asyncio.run_coroutine_threadsafe(stack.aclose(), loop).result(timeout=60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder of the test's own."""
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def served(home: Path, tmp_path: Path) -> Iterator[Served]:
    """Serve an empty store."""
    with served_page(tmp_path) as served:
        yield served


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The browser of the system, for a module whose tests are no coroutines: Playwright has a loop of its own."""
    with sync_playwright() as playwright:
        found = require("chromium")
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, served: Served) -> Iterator[Page]:
    """A browser's page that is let in; an error of a script or a refused resource fails the test."""
    with opened(browser, served.link) as page:
        yield page


@contextmanager
def opened(browser: Browser, link: str, *, expected: str = "", **how: Any) -> Iterator[Page]:
    """Open a link in a browser of its own; errors on it fail the block, but for those that contain `expected`."""
    context = browser.new_context(**how)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda told: problems.append(told.text) if told.type == "error" else None)
    page.goto(link)
    page.wait_for_selector(LIVE)
    try:
        yield page
    finally:
        problems = [each for each in problems if not expected or expected not in each]
        shown = page.inner_text("body") if problems else ""
        context.close()
    assert not problems, shown
