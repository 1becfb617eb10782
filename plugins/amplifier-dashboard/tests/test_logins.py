"""Keep logins from other users and other servers of this machine, and end them."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import time
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from .conftest import LIVE, Served, home_of, opened
from .test_beside_up import PROGRAM, make_link, running
from .test_guard import FORM, Client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow

REFUSED = "main:has-text('This page is for the person who runs it')"


@contextmanager
def other_server(cookie: str = "") -> Iterator[tuple[str, list[str]]]:
    """Run a server of somebody else, with a cookie; give its address and the requests to it."""
    told: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told.append(f"{self.path}\n{self.headers}")
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            if cookie:
                self.send_header("Set-Cookie", cookie)
            self.end_headers()
            self.wfile.write(b"<img src='/x'><img src='/~0123456789abcdef/x'><p>other</p>")

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", told
        finally:
            server.shutdown()
            thread.join()


@asynccontextmanager
async def tunnel(port: int) -> AsyncIterator[int]:
    """Pass the connections of a free port on to another one, as `ssh -L` does."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_read, to_write = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(copy(reader, to_write), copy(to_read, writer), return_exceptions=True)

    server = await asyncio.start_server(pass_on, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def test_no_other_server_of_this_machine_gets_what_lets_a_browser_in(browser: Browser, served: Served) -> None:
    with other_server() as (address, told), opened(browser, served.link, expected="401") as page:
        root = home_of(page).rpartition("/")[2]
        page.goto(address)
        page.wait_for_function("[...document.images].every((each) => each.complete)")
        page.goto(f"{served.address}/sessions")  # back to it, from there
        page.wait_for_selector(LIVE)
        page.goto(address)
        assert len(told) >= 3
        assert not [each for each in told if "ookie" in each or root in each]


def test_a_cookie_and_its_path_let_in_together_alone(served: Served) -> None:
    client, other = Client(served.address), Client(served.address)
    assert client.enter(served.link).status == 303
    assert other.enter(served.link).status == 303
    assert client.root != other.root
    for root in ("", "/~0123456789abcdef", other.root):
        for path in ("/", "/live?page=/"):
            assert Client(served.address, client.cookie, root).ask("GET", path).status == 401
        assert Client(served.address, client.cookie, root).ask("POST", "/logout", "form_token=x", **FORM).status == 401
    assert Client(served.address, "", client.root).ask("GET", "/").status == 401
    assert client.ask("GET", "/").status == 200


def test_a_cookie_that_another_server_has_set_locks_nobody_out(browser: Browser, served: Served) -> None:
    name = f"amplifier-{urlsplit(served.address).port}"
    with other_server(f"{name}=mine; Path=/") as (address, _), opened(browser, served.link) as page:
        home = home_of(page)
        page.goto(address)
        page.goto(f"{home}/sessions")
        page.wait_for_selector(LIVE)


def test_a_known_browser_is_led_to_its_pages_from_any_address(browser: Browser, served: Served) -> None:
    with opened(browser, served.link, expected="401") as page:
        home = home_of(page)
        for tab in (page, page.context.new_page()):
            for path in ("/", "/log?x=1#y", "/~0123456789abcdef/log?x=1#y"):
                tab.goto(f"{served.address}{path}")
                tab.wait_for_url(home + path.replace("/~0123456789abcdef", ""))
                tab.wait_for_selector(LIVE)
        tab.goto(served.link)  # another login of this browser
        tab.wait_for_selector(LIVE)
        assert home_of(tab) != home
        for each in (page, tab):
            each.reload()
            each.wait_for_selector(LIVE)


def test_a_page_works_at_the_other_end_of_a_tunnel(browser: Browser, served: Served) -> None:
    inner = urlsplit(served.address).port or 0
    passing = tunnel(inner)
    port = served.run(passing.__aenter__())
    try:
        for host in ("127.0.0.1", "localhost"):
            link = served.link.replace(f"127.0.0.1:{inner}", f"{host}:{port}")
            with opened(browser, link, expected="401") as page:
                assert urlsplit(page.url).netloc == f"{host}:{port}"
                page.get_by_role("button", name="Log out").click()
                expect(page.locator("h1")).to_have_text("Logged out")
    finally:
        served.run(passing.__aexit__(None, None, None))


@pytest.mark.parametrize("scripts", [True, False])
def test_a_browser_logs_out(browser: Browser, served: Served, scripts: bool) -> None:
    context = browser.new_context(java_script_enabled=scripts)
    page = context.new_page()
    page.goto(served.link)
    home = home_of(page)
    [kept] = context.cookies(home)
    copy = Client(served.address, f"{kept['name']}={kept['value']}", urlsplit(home).path)
    assert copy.ask("GET", "/").status == 200
    page.get_by_role("button", name="Log out").click()
    expect(page.locator("h1")).to_have_text("Logged out")
    assert context.cookies(home) == []
    assert copy.ask("GET", "/").status == 401  # whoever has a copy of the cookie is out, too
    for address in (home, f"{home}/log", served.address):
        page.goto(address)
        page.wait_for_selector(REFUSED)
    context.close()


def test_a_shown_page_hears_nothing_more_once_its_browser_is_logged_out(browser: Browser, served: Served) -> None:
    from amplifier_core.events import SessionEvent

    with opened(browser, served.link, expected="401") as page:
        page.goto(f"{home_of(page)}/log")
        page.wait_for_selector(LIVE)
        other = page.context.new_page()
        other.goto(page.url)
        other.get_by_role("button", name="Log out").click()
        expect(other.locator("h1")).to_have_text("Logged out")
        served.run(served.store.emit(SessionEvent("told:later", {})))
        page.wait_for_selector("#connection:has-text('lost')")
        assert page.locator("text=told:later").count() == 0


OPENER = """#!/bin/sh
printf '%s\\n' "$@" > "$SEEN/arguments"
ls -ld "$1" "$(dirname "$1")" | cut -c 1-10 > "$SEEN/modes"
cat "$1" > "$SEEN/new"
mv "$SEEN/new" "$SEEN/file.html"
"""
"""A program in the place of the system's own for opening files."""


def test_a_link_that_is_opened_is_no_argument_that_others_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, browser: Browser
) -> None:
    for name in ("xdg-open", "open"):
        (tmp_path / "bin" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text(OPENER, encoding="utf-8")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "me").mkdir()
    for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.setenv("SEEN", str(tmp_path))
    with running(tmp_path, "dashboard", "--port", "0", "--open") as link:
        ends = time.monotonic() + 60
        while not (tmp_path / "file.html").exists():
            assert time.monotonic() < ends
            time.sleep(0.02)
        [given] = (tmp_path / "arguments").read_text(encoding="utf-8").splitlines()
        place = (tmp_path / given).relative_to(tmp_path / "me")
        assert not place.parts[0].startswith(".")  # browsers of snaps read no hidden folders of a home
        assert (tmp_path / "modes").read_text(encoding="utf-8").split() == ["drwx------", "-rw-------"]
        context = browser.new_context()
        page = context.new_page()
        page.goto((tmp_path / "file.html").as_uri())
        page.wait_for_selector(LIVE)
        context.close()
        assert Client(link).enter(link).status == 401  # it was this one
    assert [*(tmp_path / "me").iterdir()] == []


def test_a_link_is_opened_in_the_browser_where_another_program_opens_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, does in (
        ("xdg-settings", "echo firefox.desktop"),
        ("xdg-open", 'touch "$SEEN/editor"'),
        ("firefox", 'printf %s "$1" > "$SEEN/new"; mv "$SEEN/new" "$SEEN/browser"'),
    ):
        (tmp_path / "bin" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{does}\n", encoding="utf-8")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    monkeypatch.setenv("DISPLAY", ":9")
    monkeypatch.setenv("SEEN", str(tmp_path))
    monkeypatch.delenv("BROWSER", raising=False)
    with running(tmp_path, "dashboard", "--port", "0", "--open"):
        ends = time.monotonic() + 60
        while not (tmp_path / "browser").exists():
            assert time.monotonic() < ends
            time.sleep(0.02)
        assert re.fullmatch(r"file:///.*/open\.html", (tmp_path / "browser").read_text(encoding="utf-8"))
    assert not (tmp_path / "editor").exists()


def test_the_page_ends_while_the_program_of_its_browser_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "browser"
    lasts = f'exec > /dev/null 2>&1; touch "{tmp_path}/begun"; while [ ! -e "{tmp_path}/ended" ]; do sleep 0.02; done'
    program.write_text(f"#!/bin/sh\ntrap '' INT TERM\n{lasts}\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("BROWSER", str(program))
    try:
        with running(tmp_path, "dashboard", "--port", "0", "--open"):  # a signal ends it
            ends = time.monotonic() + 60
            while not (tmp_path / "begun").exists():
                assert time.monotonic() < ends
                time.sleep(0.02)
    finally:
        (tmp_path / "ended").touch()


def test_all_logins_and_links_are_ended_while_pages_run(tmp_path: Path) -> None:
    with running(tmp_path, "dashboard", "--port", "0") as link:
        client = Client(link)
        unused = make_link(tmp_path, client)
        assert client.enter(link).status == 303
        environment = {**os.environ, "AMPLIFIER_HOME": str(tmp_path / "home")}
        ended = [*PROGRAM, "dashboard", "--log-out"]
        subprocess.run(ended, env=environment, capture_output=True, check=True)
        assert client.ask("GET", "/").status == 401
        assert Client(link).enter(unused).status == 401
        assert Client(link).enter(make_link(tmp_path, client)).status == 303
