"""People find sessions, and read their transcripts as they grow."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.storage import SessionRecord
from amplifier_core.utils.secrets import redact_text
from amplifier_dashboard import messages
from amplifier_foundation.sessions.file_changes import record as keep_change

from .conftest import LIVE, Served, home_of, opened, served_page
from .filled import HOSTILE, Filled, exchange, fill

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all tests here: each has sessions of its own."""
    with served_page(tmp_path_factory.mktemp("store")) as served:
        yield served


@pytest.fixture(scope="module")
def filled(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Filled:
    found: Filled = served.run(fill(served.store, tmp_path_factory.mktemp("projects") / "work"))
    return found


@pytest.fixture(scope="module")
def page(browser: Browser, served: Served) -> Iterator[Page]:
    with opened(browser, served.link) as page:
        yield page


def go(page: Page, served: Served, path: str) -> None:
    page.goto(home_of(page) + path)
    page.wait_for_selector(LIVE)


def store_session(served: Served, session_id: str, messages: list[dict[str, Any]], **facts: Any) -> None:
    async def store() -> None:
        await served.store.create(SessionRecord(session_id, status="completed", **facts))
        await served.store.append(session_id, messages, at=0)

    served.run(store())


def append(served: Served, session_id: str, *messages: dict[str, Any]) -> None:
    async def store() -> None:
        await served.store.append(session_id, messages, at=(await served.store.get(session_id)).message_count)

    served.run(store())


def test_sessions_are_found_by_status_folder_and_words(served: Served, page: Page, filled: Filled) -> None:
    go(page, served, "/sessions")
    assert page.locator("#rows tbody tr").count() > 8
    page.get_by_label("Status").select_option("failed")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**/sessions?**status=failed**")
    page.wait_for_selector(LIVE)
    assert {each.strip() for each in page.locator("#rows .state").all_inner_texts()} == {"✗ failed"}
    go(page, served, f"/sessions?q=helper&project={filled.shop}")
    assert page.locator("#rows tbody th a").all_inner_texts() == ["helper"]
    page.locator("#rows tbody th a").click()
    page.wait_for_selector("#messages li")
    go(page, served, "/sessions?q=nothing-like-it")
    assert "No session fits" in page.inner_text("#rows")


def test_a_long_list_is_read_page_by_page(served: Served, page: Page) -> None:
    for number in range(60):
        store_session(served, f"session-{number:04}", [], name=f"number {number}")
    go(page, served, "/sessions?q=session-0")
    assert page.locator("#rows tbody tr").count() == 50
    page.get_by_role("link", name="Older").click()
    page.wait_for_selector("text=number 0")
    assert page.locator("#rows tbody tr").count() == 10
    page.get_by_role("link", name="Newest").click()
    page.wait_for_selector("text=number 59")


def test_a_long_name_leaves_what_was_spent_in_one_line(served: Served, page: Page) -> None:
    spent = {"duration": 0.76, "usage": {"requests": 1, "cost_usd": "0.0125"}}
    for number, name in enumerate(("short", "a name of many words " * 6)):
        store_session(served, f"spent-{number}", [], name=name.strip(), bundle="many-words-" * 6, metadata=spent)
    page.set_viewport_size({"width": 1280, "height": 800})
    go(page, served, "/sessions?q=spent-")
    cells = page.locator("#rows td.spent")
    count_lines = """cell => { const all = document.createRange(); all.selectNodeContents(cell);
        return new Set([...all.getClientRects()].map((each) => each.top)).size; }"""
    assert [cell.evaluate(count_lines) for cell in cells.all()] == [1, 1]


def test_a_transcript_shows_messages_calls_and_results_and_grows(served: Served, page: Page, filled: Filled) -> None:
    go(page, served, f"/sessions/{filled.sessions['reviewed']}")
    assert page.locator("#messages li").count() == 4
    assert page.locator("#m2 summary").inner_text().startswith("→ read_file app.py")
    page.locator("#m3 summary").click()
    assert page.locator("#m3 pre").inner_text() == "print('hello')"
    assert "Woken by" in page.inner_text("#facts")
    assert page.locator("#below a").all_inner_texts() == ["helper"]
    append(served, filled.sessions["reviewed"], {"role": "user", "content": "And *more*"})
    page.wait_for_selector("#m5 em:has-text('more')")
    assert page.locator("#m3 details").get_attribute("open") is not None


def test_the_text_of_a_stranger_stays_text(served: Served, page: Page, filled: Filled) -> None:
    links = "[a](javascript:alert(1)) ![b](http://127.0.0.1:1/b.png) <b>c</b>\n\n|d|\n|-:|\n|e|"
    append(served, filled.sessions["hostile"], {"role": "assistant", "content": links})
    go(page, served, f"/sessions/{filled.sessions['hostile']}")
    assert HOSTILE in page.inner_text("#m1")
    assert page.locator("#messages script, #messages img, #messages [style], #messages .text b").count() == 0
    assert page.locator("#m5 .text a").evaluate_all("links => links.map((each) => each.href)") == [
        "http://127.0.0.1:1/b.png"
    ]
    assert page.evaluate("window.hacked") is None


def test_a_secret_in_a_message_is_hidden(served: Served, page: Page) -> None:
    secret = "sk-ant-api03-" + "a1B2" * 12
    store_session(served, "secret-0001", [{"role": "user", "content": f"use {secret}"}, *exchange(secret, secret)[1:]])
    go(page, served, "/sessions/secret-0001")
    assert secret not in page.content()


def test_ten_thousand_messages_open_at_their_end_and_every_message_has_a_link(served: Served, page: Page) -> None:
    messages = [{"role": "user" if at % 2 == 0 else "assistant", "content": f"text {at + 1}"} for at in range(10_000)]
    store_session(served, "long-0001", messages)
    go(page, served, "/sessions/long-0001")
    assert page.locator("#messages li").count() == 200
    assert page.locator("#messages li").last.get_attribute("id") == "m10000"
    page.wait_for_function("document.getElementById('m10000').getBoundingClientRect().top < innerHeight")
    page.get_by_role("link", name="Earlier: m9601 to m9800").click()
    page.wait_for_selector("#m9800")  # the last one: the browser shows the first ones before it has all
    assert page.locator("#messages li").last.get_attribute("id") == "m9800"
    go(page, served, "/sessions/long-0001#m4321")
    page.wait_for_function("document.querySelector(':target')?.id === 'm4321'")


def test_a_link_within_the_same_page_reads_messages_that_are_not_there(served: Served, page: Page) -> None:
    messages = [{"role": "user", "content": f"text {at + 1}"} for at in range(1_000)]
    store_session(served, "long-0002", messages)
    go(page, served, "/sessions/long-0002?to=m500#m500")
    page.evaluate("location.hash = '#m12'")
    page.wait_for_selector("#m12:target")


def test_edits_of_files_are_shown_as_diffs(served: Served, page: Page, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("one\ntwo\n")
    given = {"file_path": str(path), "old_string": "two", "new_string": "three"}
    call = {"id": "c1", "tool": "edit_file", "arguments": given}
    store_session(
        served, "edits-0001", [{"role": "user", "content": "edit"}, {"role": "assistant", "tool_calls": [call]}]
    )
    after = b"one\nthree\n"
    keep_change("edits-0001", str(path), sha256(after).hexdigest(), at=2)
    path.write_bytes(after)
    go(page, served, "/sessions/edits-0001")
    assert page.locator("#m2 .gone").inner_text().strip() == "-two"
    page.get_by_role("link", name="Files").click()
    page.wait_for_selector("#files .come")
    assert page.locator("#files .come").inner_text().strip() == "+three"


def test_a_long_result_is_cut_with_a_link_to_the_whole(served: Served, page: Page) -> None:
    text = "x" * 5_000 + "the end"
    store_session(
        served, "cut-0001", [*exchange("q", "a")[:2], {"role": "tool", "tool_call_id": "call-1", "content": text}]
    )
    go(page, served, "/sessions/cut-0001")
    page.locator("#m3 summary").click()
    page.get_by_role("link", name="1,007 more characters").click()
    page.wait_for_selector("pre:has-text('the end')")


def test_the_trace_has_a_chart_and_a_table(served: Served, page: Page) -> None:
    def at(second: int, **more: Any) -> dict[str, Any]:
        return {"metadata": {"timestamp": f"2026-01-01T00:00:{second:02}+00:00", **more}}

    question, asked, told, answer = exchange("q", "a")
    usage = {"input_tokens": 10, "output_tokens": 5, "cost_usd": "0.5"}
    messages = [
        question | at(0),
        asked | at(2, duration=2.0, model="one/large", usage=usage),
        told | at(6, duration=4.0),
        answer | at(7, duration=1.0, model="one/large", usage=usage),
    ]
    store_session(served, "trace-0001", messages, turn_count=1)
    go(page, served, "/sessions/trace-0001/trace")
    assert "4.0 s" in page.inner_text("#trace tr:has-text('tool read_file')")
    assert "$1" in page.inner_text("#trace tr:has-text('model one/large')")
    assert page.locator("#trace svg rect").count() == 4


def test_a_session_gets_another_name(served: Served, page: Page) -> None:
    store_session(served, "named-0001", [])
    go(page, served, "/sessions/named-0001")
    page.get_by_label("Name").fill("a better name")
    page.get_by_role("button", name="Rename").click()
    page.wait_for_selector("h1:has-text('a better name')")
    assert served.run(served.store.get("named-0001")).name == "a better name"


def test_only_settled_messages_can_be_forked_at(served: Served, page: Page) -> None:
    store_session(served, "settled-0001", exchange("q", "a"))
    go(page, served, "/sessions/settled-0001")
    forks = page.locator("#messages li:has(form)")
    assert forks.evaluate_all("items => items.map((each) => each.id)") == ["m1", "m3", "m4"]


def test_a_page_for_reading_offers_no_acts(browser: Browser, tmp_path: Path, home: Path) -> None:
    with served_page(tmp_path, read_only=True) as served, opened(browser, served.link) as page:
        store_session(served, "read-0001", exchange("q", "a"))
        for path in ("/sessions/read-0001", "/sessions/read-0001/talk"):
            go(page, served, path)
            page.wait_for_selector("#messages li")
            assert page.locator("main form").count() == 0


def test_of_a_huge_result_only_the_begin_is_searched_for_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []

    def redact(text: str) -> str:
        searched.append(len(text))
        return redact_text(text)

    monkeypatch.setattr(messages, "redact_text", redact)
    huge = "line of a log\n" * 100_000
    calls = [{"id": "a", "tool": "bash", "arguments": {"command": huge}}]
    for message in ({"role": "tool", "content": huge}, {"role": "assistant", "content": "", "tool_calls": calls}):
        assert "more characters" in messages.render_message(SessionRecord("s-1"), 1, message, prefix="m", forks=False)
    assert max(searched) == messages.READ
