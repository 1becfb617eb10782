"""A page follows the session of another process while it writes, and goes on after its server was killed."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from amplifier_core.storage import SessionRecord
from amplifier_dashboard.written import Written
from tests.foundation.background.stages import GATED, PIECES

from .conftest import LIVE, Served, home_of, opened, served_page

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow

PROGRAM = [sys.executable, "-m", "amplifier_foundation"]


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command until the block ends, which kills it."""
    with subprocess.Popen(
        [*PROGRAM, *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def stage(tmp_path: Path, home: Path) -> Iterator[Path]:
    """The folder of an `up` that runs; its model says a piece of its answer when there is a file for it."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "gated.py").write_text(GATED, encoding="utf-8")
    config = {"folder": str(folder), "pieces": PIECES, "waits": False}
    front = {
        "bundle": {"name": "shop"},
        "session": {"orchestrator": "loop-streaming", "context": "context-simple"},
        "providers": [{"module": "provider-gated", "source": "./gated.py", "config": config}],
        "background_sessions": [{"name": "queue", "instruction": "Begin.", "triggers": [{"module": "trigger-manual"}]}],
    }
    (folder / "bundle.md").write_text(f"---\n{json.dumps(front)}\n---\nYou tell.\n", encoding="utf-8")
    with running(folder, "up", "bundle.md") as process:
        yield folder
        assert process.poll() is None


@pytest.fixture
def served(home: Path, stage: Path) -> Iterator[Served]:
    """The page over the store of that `up`."""
    with served_page(home) as served:
        yield served


@pytest.fixture
def session(served: Served, stage: Path, page: Page) -> str:
    """A session of `up` that waits for its model, shown by the page."""
    page.goto(f"{home_of(page)}/sessions")
    page.wait_for_selector(LIVE)
    fired = [*PROGRAM, "trigger", "fire", "queue", "-b", "bundle.md"]
    subprocess.run(fired, cwd=stage, check=True, capture_output=True)
    page.wait_for_selector("#rows tr:has-text('running') a:has-text('queue')")
    page.locator("#rows tr:has-text('running') a:has-text('queue')").click()
    page.wait_for_selector("#live:has-text('asks the model')")
    return page.url.rpartition("/")[2]


def let(folder: Path, number: int) -> None:
    (folder / f"go-{number}").touch()


def test_the_text_of_another_process_comes_while_it_is_written_in_two_browsers(
    served: Served, page: Page, browser: Browser, stage: Path, session: str
) -> None:
    with opened(browser, served.link) as other:
        other.goto(f"{home_of(other)}/sessions/{session}")
        other.wait_for_selector("#live:has-text('asks the model')")
        for number, text in enumerate(("Hello", "Hello wor")):
            let(stage, number)
            for each in (page, other):
                each.wait_for_selector(f"#live .written:has-text('{text}')")
        let(stage, 2)
        for each in (page, other):
            each.wait_for_selector("#messages li.assistant:has-text('Hello world.')")
            each.wait_for_selector("#live .written", state="detached")
            each.wait_for_selector("#state .state:has-text('completed')")
            assert each.locator("text=Hello world.").count() == 1


def test_a_turn_of_another_process_is_cancelled(served: Served, page: Page, stage: Path, session: str) -> None:
    page.get_by_role("button", name="Cancel the turn").click()
    page.get_by_role("button", name="Yes").click()
    page.wait_for_selector("#state .state:has-text('cancelled')")


def test_a_killed_server_leaves_no_gap_and_no_duplicate(browser: Browser, tmp_path: Path, home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    home.mkdir(mode=0o700)
    with served_page(home) as writer, running(tmp_path, "dashboard", "--port", port) as process:
        writer.run(writer.store.create(SessionRecord("told-0001", status="completed")))

        def add(first: int, last: int) -> None:
            messages = [{"role": "user", "content": f"text {number}"} for number in range(first, last + 1)]
            writer.run(writer.store.append("told-0001", messages, at=first - 1))

        add(1, 3)
        assert process.stdout is not None
        with opened(browser, process.stdout.readline().strip(), expected="ERR_") as page:
            page.goto(f"{home_of(page)}/sessions/told-0001")
            page.wait_for_selector("#m3")
            page.wait_for_selector(LIVE)
            process.kill()
            process.wait()
            page.wait_for_selector("#connection:has-text('lost')")
            add(4, 6)
            with running(tmp_path, "dashboard", "--port", port):
                page.wait_for_selector("#m6")
                add(7, 7)
                page.wait_for_selector("#m7")
                shown = page.locator("#messages li").evaluate_all("items => items.map((each) => each.id)")
                assert shown == [f"m{number}" for number in range(1, 8)]
                assert page.locator("#connection").inner_text() == ""
                page.goto("about:blank")


def test_of_a_text_that_grows_without_end_the_end_is_shown() -> None:
    written = Written()
    for _ in range(100):
        written.take({"type": "text", "partial": True, "text": "many words " * 1_000})
    written.take({"type": "text", "partial": True, "text": "the last"})
    shown = written.render()
    assert "the last" in shown
    assert len(shown) < 12_000
