"""People talk to sessions in the page, beside the session that they forked."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING

import pytest

from amplifier_core.storage import SessionRecord
from amplifier_dashboard.talks import Talks
from amplifier_foundation.sessions.lock import session_lock
from amplifier_foundation.sessions.presence import this_process

from .conftest import LIVE, Served, home_of, opened, served_page
from .filled import exchange
from .test_streaming import running

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow

BUNDLE = """---
bundle: {name: talker}
session: {orchestrator: loop-streaming, context: context-simple}
providers:
  - module: provider-playbook
    config:
      delay_ms: DELAY
      rules:
        - when: {user: "^write"}
          call: {tool: write_file, input: {file_path: note.txt, content: "from the page"}}
        - when: {tool: write_file}
          say: "It is written."
      otherwise: {say: "You said: {prompt}"}
tools: [{module: tool-filesystem}]
permissions: {ask: [write_file]}
---
Answer.
"""


@pytest.fixture
def talker(served: Served, tmp_path: Path) -> str:
    """A stored session whose bundle answers at once."""
    return make_talker(served, tmp_path, delay=0)


def make_talker(served: Served, folder: Path, *, delay: int) -> str:
    """Store a session of a bundle that answers after so many milliseconds."""
    project = folder / "talks"
    project.mkdir(exist_ok=True)
    (project / "bundle.md").write_text(BUNDLE.replace("DELAY", str(delay)), encoding="utf-8")
    record = SessionRecord(
        "talker-0001",
        name="talker",
        bundle="talker",
        bundle_source=str(project / "bundle.md"),
        project=str(project),
        status="completed",
        turn_count=1,
    )

    async def store() -> None:
        await served.store.create(record)
        await served.store.append(record.session_id, exchange("First?", "First answer."), at=0)

    served.run(store())
    return record.session_id


def go(page: Page, served: Served, path: str) -> None:
    page.goto(home_of(page) + path)
    page.wait_for_selector(LIVE)


def say(page: Page, text: str) -> None:
    page.get_by_label("Prompt").fill(text)
    page.get_by_label("Prompt").press("Control+Enter")


def wait_for(page: Page, status: str) -> None:
    page.wait_for_selector(f"#state .state:has-text('{status}')")


def fork_at(page: Page, served: Served, session_id: str, number: int) -> str:
    go(page, served, f"/sessions/{session_id}")
    page.locator(f"#m{number}").hover()
    page.get_by_role("button", name=f"Fork here, after message {number}").click()
    page.wait_for_url("**/talk")
    page.wait_for_selector(LIVE)
    return page.url.split("/")[-2]


def test_a_fork_at_a_message_answers_beside_its_source(served: Served, page: Page, talker: str) -> None:
    fork = fork_at(page, served, talker, 3)
    assert page.locator("#source li").count() == 4
    say(page, "And *now*?")
    page.wait_for_selector("#messages li.assistant em:has-text('now')")
    wait_for(page, "completed")
    assert page.locator("#messages li").evaluate_all("items => items.map((each) => each.id)") == ["m4", "m5"]
    assert page.get_by_label("Prompt").input_value() == ""
    assert served.run(served.store.get(talker)).message_count == 4
    assert served.run(served.store.get(fork)).fork_at == 3
    acts = [each.data["act"] for each in served.run(served.store.events()) if each.name == "operator:acted"]
    assert acts == ["session.fork", "session.resume"]


def test_a_call_that_asks_waits_for_an_answer_in_the_page(
    served: Served, page: Page, browser: Browser, talker: str, tmp_path: Path
) -> None:
    go(page, served, f"/sessions/{talker}/talk")
    say(page, "write it")
    page.wait_for_selector(".question")
    assert not (tmp_path / "talks" / "note.txt").exists()
    with opened(browser, served.link) as other:
        go(other, served, f"/sessions/{talker}")
        other.get_by_role("button", name="Allow once").click()
        other.wait_for_selector("#messages li:has-text('It is written.')")
    page.wait_for_selector("#messages li:has-text('It is written.')")
    page.wait_for_selector(".question", state="detached")
    assert (tmp_path / "talks" / "note.txt").read_text() == "from the page"


def test_a_denied_call_is_not_made(served: Served, page: Page, talker: str, tmp_path: Path) -> None:
    go(page, served, f"/sessions/{talker}/talk")
    say(page, "write it")
    page.get_by_role("button", name="Deny").click()
    wait_for(page, "completed")
    assert not (tmp_path / "talks" / "note.txt").exists()


def test_a_turn_goes_on_when_the_page_is_left_and_is_cancelled_from_another(
    served: Served, page: Page, browser: Browser, tmp_path: Path, home: Path
) -> None:
    talker = make_talker(served, tmp_path, delay=60_000)
    go(page, served, f"/sessions/{talker}/talk")
    page.get_by_label("Prompt").fill("Wait")
    page.get_by_role("button", name="Send").press("Enter")
    page.wait_for_selector("#live:has-text('asks the model')")
    page.wait_for_selector("#send button:disabled")
    assert page.evaluate("document.activeElement.name") == "prompt"  # not the disabled button
    go(page, served, "/sessions")
    with opened(browser, served.link) as other:
        go(other, served, f"/sessions/{talker}")
        other.wait_for_selector("#live:has-text('asks the model')")
        other.get_by_role("button", name="Cancel the turn").click()
        other.get_by_role("button", name="Yes").click()
        wait_for(other, "cancelled")
    go(page, served, f"/sessions/{talker}/talk")
    assert page.get_by_role("button", name="Send").is_enabled()


def test_a_session_that_another_process_talks_in_cannot_be_talked_to(
    served: Served, browser: Browser, talker: str
) -> None:
    with opened(browser, served.link, expected="409") as page:
        go(page, served, f"/sessions/{talker}/talk")
        with session_lock(talker):
            say(page, "Hello")
            page.wait_for_selector(".toast.failed:has-text('talks in session')")
            with page.expect_response("**/say"):
                say(page, "Hello")
            page.wait_for_selector(".toast")
            assert page.locator(".toast").count() == 1
        assert page.get_by_label("Prompt").input_value() == "Hello"


def test_a_session_that_runs_elsewhere_says_so(served: Served, page: Page, talker: str) -> None:
    elsewhere = {"process": "1-abc@another-host"}
    served.run(served.store.update(talker, status="running", metadata=elsewhere))
    go(page, served, f"/sessions/{talker}/talk")
    assert "runs session" in page.inner_text("#send")
    assert page.get_by_role("button", name="Send").is_disabled()


def test_a_turn_that_is_stopped_elsewhere_is_not_offered_to_be_cancelled(
    served: Served, page: Page, talker: str
) -> None:
    with session_lock(talker):
        served.run(served.store.update(talker, status="running", metadata={"process": this_process()}))
        go(page, served, f"/sessions/{talker}/talk")
        assert f"Process {os.getpid()} talks in it: the turn is stopped there" in page.inner_text("#state")
        assert page.get_by_role("button", name="Cancel the turn").count() == 0


def test_a_changed_bundle_needs_a_word(served: Served, browser: Browser, talker: str) -> None:
    served.run(served.store.update(talker, bundle_digest="0" * 64))
    with opened(browser, served.link, expected="409") as page:
        go(page, served, f"/sessions/{talker}/talk")
        say(page, "Hello")
        page.wait_for_selector(".toast.failed:has-text('has changed')")
        page.get_by_label("Go on although").check()
        say(page, "Hello")
        page.wait_for_selector("#messages li:has-text('You said: Hello')")


def test_an_untrusted_bundle_is_not_run(
    served: Served, browser: Browser, talker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AMPLIFIER_TRUST")
    with opened(browser, served.link, expected="403") as page:
        go(page, served, f"/sessions/{talker}/talk")
        say(page, "Hello")
        page.wait_for_selector(".toast.failed:has-text('trust')")
    assert served.run(served.store.get(talker)).message_count == 4


def test_the_end_of_the_server_ends_a_turn_and_its_session_can_go_on(
    browser: Browser, tmp_path: Path, home: Path
) -> None:
    with served_page(tmp_path) as served, opened(browser, served.link) as page:
        talker = make_talker(served, tmp_path, delay=60_000)
        go(page, served, f"/sessions/{talker}/talk")
        say(page, "Wait")
        page.wait_for_selector("#live:has-text('asks the model')")
        page.goto("about:blank")
    with served_page(tmp_path) as served, opened(browser, served.link) as page:
        assert served.run(served.store.get(talker)).status == "cancelled"
        (tmp_path / "talks" / "bundle.md").write_text(BUNDLE.replace("DELAY", "0"), encoding="utf-8")
        go(page, served, f"/sessions/{talker}/talk")
        page.get_by_label("Go on although").check()
        say(page, "Again")
        page.wait_for_selector("#messages li:has-text('You said: Again')")


def test_a_page_whose_server_was_killed_says_so_where_it_is_read_and_shows_no_turn_that_is_over(
    browser: Browser, tmp_path: Path, home: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    home.mkdir(mode=0o700)
    with served_page(home) as writer, running(tmp_path, "dashboard", "--port", port) as process:
        talker = make_talker(writer, tmp_path, delay=60_000)
        assert process.stdout is not None
        with opened(browser, process.stdout.readline().strip(), expected="ERR_") as page:
            page.set_viewport_size({"width": 800, "height": 300})
            page.goto(f"{home_of(page)}/sessions/{talker}/talk")
            page.wait_for_selector(LIVE)
            say(page, "Wait")
            page.wait_for_selector("#live:has-text('asks the model')")
            process.kill()
            process.wait()
            page.wait_for_selector("#connection:has-text('lost')")
            page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
            box = page.locator("#connection").bounding_box()
            assert box is not None
            assert 0 <= box["y"] < 300
            assert page.locator("#live .doing").is_hidden()
            with running(tmp_path, "dashboard", "--port", port):
                wait_for(page, "interrupted")
                page.wait_for_selector("#live .doing", state="detached")
                assert page.locator("#send").inner_text() == "Send"
                page.goto("about:blank")


class NeverOpen:
    """Work that never gets ready."""

    def __init__(self) -> None:
        self.begun, self.is_given_back = asyncio.Event(), False

    async def open(self) -> None:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.is_given_back = True

    async def work(self) -> None:
        raise AssertionError

    async def end(self) -> None:
        await asyncio.Event().wait()


def test_the_end_of_the_server_waits_for_no_turn_that_is_being_opened(served: Served) -> None:
    async def end_early() -> bool:
        work, talks = NeverOpen(), Talks()
        async with asyncio.timeout(120):
            async with talks.running():
                asked = asyncio.ensure_future(talks.begin("s-1", work))
                await work.begun.wait()
            return work.is_given_back and asked.done()

    assert served.run(end_early())
