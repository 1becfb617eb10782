"""The page of a lineage: whole in itself, and nothing in it runs that a message says."""

from __future__ import annotations

import json
import re
import subprocess
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import SessionRecord
from amplifier_core.storage import DurableStore
from amplifier_foundation import forest, fork_stored
from amplifier_foundation.sessions.lineage import Node
from amplifier_foundation.sessions.lineage_html import lineage_page, own_messages
from tests.programs import require

pytestmark = pytest.mark.slow

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"><!-- {{data}}"


class Tags(HTMLParser):
    """Collects the tags of a page, and what its scripts and styles hold."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside = ""
        self.texts: dict[str, list[str]] = {"script": [], "style": [], "title": []}
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.inside = tag
        if tag in self.texts:
            self.texts[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside in self.texts:
            self.texts[self.inside][-1] += data

    @property
    def data(self) -> Any:
        return json.loads(self.texts["script"][0])

    @property
    def messages(self) -> Any:
        return json.loads(self.texts["script"][1])


def browse(page: Path, session_id: str, folder: Path) -> Tags:
    """Return what a browser makes of a page, opened at a session."""
    chromium, profile = require("chromium"), f"--user-data-dir={folder / 'profile'}"
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", profile]
    done = subprocess.run(
        [*command, "--dump-dom", f"{page.as_uri()}#{session_id}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return Tags(done.stdout)


@pytest.fixture
async def roots(store: DurableStore) -> list[Node]:
    await store.create(SessionRecord("source", name=HOSTILE, error=HOSTILE))
    await store.append("source", [{"role": "user", "content": HOSTILE}, {"role": "tool", "content": HOSTILE}], at=0)
    fork = await fork_stored(store, await store.get("source"), session_id="fork", message=1)
    calls = [{"id": "1", "tool": HOSTILE, "arguments": {HOSTILE: HOSTILE}}]
    await store.append(fork.session_id, [{"role": "assistant", "content": "", "tool_calls": calls}], at=1)
    return forest(await store.sessions())


async def test_a_forks_messages_are_in_the_page_once(store: DurableStore, roots: list[Node]) -> None:
    histories = await own_messages(store, roots)
    assert {name: len(messages) for name, messages in histories.items()} == {"source": 2, "fork": 1}
    [fork] = roots[0].children
    assert [len(messages) for messages in (await own_messages(store, [fork])).values()] == [2]
    sessions = Tags(lineage_page(roots, histories, "/p")).data["sessions"]
    assert [(each["id"], each.get("depth", 0), each.get("start", 0)) for each in sessions] == [
        ("source", 0, 0),
        ("fork", 1, 1),
    ]
    assert Tags(lineage_page(roots, histories, "/p")).messages["source"][0]["text"] == HOSTILE


async def test_what_is_said_is_data_and_never_markup(store: DurableStore, roots: list[Node]) -> None:
    hostile = Tags(lineage_page(roots, await own_messages(store, roots), HOSTILE))
    plain = Tags(lineage_page([], {}, "/p"))
    assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in plain.tags]
    assert hostile.texts["title"] == [f"Sessions of {HOSTILE}"]
    assert hostile.data["title"] == HOSTILE


def test_the_page_loads_nothing_and_runs_its_own_script_alone() -> None:
    page = Tags(lineage_page([], {}, "/p"))
    assert [attributes for _, attributes in page.tags if {"src", "href", "action", "style"} & set(attributes)] == []
    assert "@import" not in page.texts["style"][0]
    assert "url(" not in page.texts["style"][0]
    [policy] = [each["content"] or "" for _, each in page.tags if each.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    for kind, text in (("script", page.texts["script"][2]), ("style", page.texts["style"][0])):
        assert f"{kind}-src 'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" in policy
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b", page.texts["script"][2])


def test_what_a_session_took_is_told_where_it_is_known() -> None:
    spent = {"agent": "reviewer", "duration": 1.5, "usage": {"cost_usd": "0.25", "cost_is_partial": True}}
    nodes = [Node(SessionRecord("known", metadata=spent)), Node(SessionRecord("unknown"))]
    sessions = Tags(lineage_page(nodes, {}, "/p")).data["sessions"]
    told = [(each.get("agent"), each.get("lasted"), each.get("cost")) for each in sessions]
    assert told == [("reviewer", 1.5, "≥ $0.2500"), (None, None, None)]


def test_a_long_message_is_cut_and_says_so() -> None:
    node = Node(SessionRecord("long", message_count=1))
    page = Tags(lineage_page([node], {"long": [{"role": "user", "content": "x" * 20_005}]}, "/p"))
    assert page.messages["long"][0]["text"].endswith("x\n… (5 more characters)")


def test_sessions_whose_messages_were_too_many_are_shown_without() -> None:
    assert Tags(lineage_page([Node(SessionRecord("big"))], {}, "/p")).messages == {}


async def test_a_browser_shows_the_picture_of_the_run_that_a_session_belongs_to(tmp_path: Path) -> None:
    records = [SessionRecord(name, parent_id=above) for name, above in (("a", None), ("b", None), ("b-1", "b"))]
    svg = '<svg class="flow"><g class="task" data-session="b-1"></g><g class="task" data-session="gone"></g></svg>'
    page = tmp_path / "tree.html"
    page.write_text(lineage_page(forest(records), {}, "/p", {"a": svg, "b": svg}), encoding="utf-8")
    shown = browse(page, "b-1", tmp_path)
    pictures = [each for _, each in shown.tags if each.get("class") == "workflow"]
    assert [(each["data-run"], "hidden" in each) for each in pictures] == [("a", True), ("b", False)]
    tasks = [(each.get("role"), each.get("aria-current")) for _, each in shown.tags if each.get("class") == "task"]
    assert tasks == [("button", "true"), (None, "false")] * 2


async def test_a_browser_shows_hostile_text_as_text(store: DurableStore, roots: list[Node], tmp_path: Path) -> None:
    page = tmp_path / "tree.html"
    page.write_text(lineage_page(roots, await own_messages(store, roots), "/p"), encoding="utf-8")
    shown = browse(page, "fork", tmp_path)
    assert shown.texts["title"][0] == "Sessions of /p"
    assert [tag for tag, _ in shown.tags].count("script") == 3
    assert "img" not in [tag for tag, _ in shown.tags]
    messages = [each for _, each in shown.tags if (each.get("class") or "").startswith("message ")]
    assert [each["class"] for each in messages] == ["message user shared", "message assistant"]
