"""A shown page follows the store: at once, without a gap or a duplicate, however much happens."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from amplifier_core.events import SessionEvent
from amplifier_storage_sqlite import open_sqlite

from .conftest import LIVE, Served, home_of, opened, served_page
from .test_guard import Client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow


@pytest.fixture
def page(page: Page, served: Served) -> Page:
    """The page with the log of events."""
    return go_to_log(page, served)


def go_to_log(page: Page, served: Served) -> Page:
    page.goto(f"{home_of(page)}/log")
    page.wait_for_selector(LIVE)
    return page


def emit(served: Served, *names: str) -> None:
    for name in names:
        served.run(served.store.emit(SessionEvent(name, {})))


def shown(page: Page) -> list[str]:
    """Return the events in the page."""
    return page.locator("#events li b").all_inner_texts()


def wait_for(page: Page, name: str) -> None:
    page.wait_for_selector(f"#events li:has-text('{name}')")


class Stream:
    """The events of a page, as a browser reads them."""

    def __init__(self, client: Client, query: str, **headers: str) -> None:
        self._connection = HTTPConnection(str(client.place.hostname), client.place.port, timeout=120)
        told = {name.replace("_", "-"): value for name, value in headers.items()}
        self._connection.request("GET", f"{client.root}/live?{query}", headers={"Cookie": client.cookie, **told})
        self.answer = self._connection.getresponse()
        self.id = ""

    def entries(self) -> Iterator[str]:
        """Yield the names in the entries of the feed; without end."""
        kind = ""
        while line := self.answer.readline().decode():
            name, _, value = line.rstrip("\n").partition(": ")
            if name == "id":
                self.id = value
            elif name == "event":
                kind = value
            elif name == "data" and kind == "feed":
                yield from (each.partition("</b>")[0] for each in json.loads(value)["html"].split("<b>")[1:])

    def close(self) -> None:
        self.answer.close()
        self._connection.close()


def known(served: Served) -> Client:
    client = Client(served.address)
    client.enter(served.link)
    return client


def test_what_is_committed_here_or_elsewhere_appears_without_a_reload(
    served: Served, page: Page, tmp_path: Path
) -> None:
    emit(served, "work:here")
    wait_for(page, "work:here")

    async def elsewhere() -> None:
        store = open_sqlite({"folder": tmp_path})
        await store.emit(SessionEvent("work:elsewhere", {}))
        await store.close()

    served.run(elsewhere())
    wait_for(page, "work:elsewhere")
    assert shown(page) == ["work:here", "work:elsewhere"]


def test_two_browsers_see_the_same(served: Served, browser: Browser, page: Page) -> None:
    with opened(browser, served.link) as other:
        go_to_log(other, served)
        emit(served, "a:1", "a:2")
        for each in (page, other):
            wait_for(each, "a:2")
            assert shown(each) == ["a:1", "a:2"]


def test_a_server_that_starts_anew_goes_on_with_the_shown_pages(browser: Browser, tmp_path: Path) -> None:
    with served_page(tmp_path) as before:
        port = int(urlsplit(before.address).port or 0)
        context = browser.new_context()
        page = context.new_page()
        page.goto(before.link)
        go_to_log(page, before)
        emit(before, "a:1")
        wait_for(page, "a:1")
    page.wait_for_selector("html[data-live=no]")
    with served_page(tmp_path, port=port) as after:
        emit(after, "a:2")
        wait_for(page, "a:2")
        assert shown(page) == ["a:1", "a:2"]
        context.close()


def test_a_stream_goes_on_after_its_last_event_by_header_or_query(served: Served) -> None:
    client = known(served)
    emit(served, *(f"a:{number}" for number in range(5)))
    first = Stream(client, "page=/log&cursor=events%3D2")
    entries = first.entries()
    assert [next(entries) for _ in range(3)] == ["a:2", "a:3", "a:4"]
    first.close()
    emit(served, "a:5", "a:6")
    second = Stream(client, "page=/log&cursor=events%3D2", Last_Event_ID=first.id)
    entries = second.entries()
    assert [next(entries) for _ in range(2)] == ["a:5", "a:6"]
    second.close()


def test_a_cursor_that_is_none_is_no_cursor(served: Served) -> None:
    client = known(served)
    emit(served, "a:1")
    for cursor in ("x", "events=", "events=-1", "events=99x", "%00", "events=1" * 50):
        stream = Stream(client, f"page=/log&cursor={cursor}")
        assert stream.answer.status == 200
        stream.close()


def test_a_stream_of_no_page_is_not_found(served: Served) -> None:
    client = known(served)
    for page in ("", "/no", "//evil.example/", "http://evil.example/", "/static/live.js", "/live"):
        stream = Stream(client, f"page={page}")
        assert stream.answer.status == 404
        stream.close()


def test_a_burst_shows_its_end_and_says_how_much_is_left_out(served: Served, page: Page) -> None:
    async def burst() -> None:
        for number in range(3000):
            await served.store.emit(SessionEvent(f"burst:{number}", {}))

    served.run(burst())
    wait_for(page, "burst:2999")
    names = shown(page)
    assert len(names) <= 50
    numbers = [int(name.partition(":")[2]) for name in names]
    assert numbers == sorted(set(numbers))


def test_a_page_that_could_not_be_read_is_read_again_without_news(browser: Browser, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.md"
    bundle.write_text("---\nbundle: {name: shop}\n---\n", encoding="utf-8")
    with served_page(tmp_path, project=str(tmp_path)) as served, opened(browser, served.link, expected="404") as page:
        page.goto(f"{home_of(page)}/bundles/edit?path={bundle}")
        page.wait_for_selector(LIVE)
        bundle.rename(tmp_path / "away.md")
        emit(served, "a:1")
        page.wait_for_selector("#connection:has-text('Not up to date: ')")
        (tmp_path / "away.md").rename(bundle)
        page.wait_for_selector("#connection:empty", state="attached")


def test_more_pages_of_a_browser_than_it_has_connections_take_turns(served: Served, page: Page) -> None:
    others = [page.context.new_page() for _ in range(7)]
    for each in others:
        each.goto(page.url)
        each.wait_for_selector(LIVE)
    emit(served, "a:1")
    for each in (page, *others):
        wait_for(each, "a:1")


def test_no_more_than_a_number_of_pages_are_live(served: Served) -> None:
    clients = [known(served) for _ in range(16)]
    streams = [Stream(client, "page=/log") for client in clients for _ in range(4)]
    refused = Stream(known(served), "page=/log")
    assert refused.answer.status == 503
    for each in (refused, *streams):
        each.close()
