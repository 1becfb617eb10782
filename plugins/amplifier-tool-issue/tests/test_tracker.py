"""Issues that wait for each other, their events in a real log, and many who change them at once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import load_plugins
from amplifier_core.errors import StoreUnavailable
from amplifier_foundation import open_inbox
from amplifier_foundation.sessions.documents import documents_of
from amplifier_tool_issue import IssueError, IssueNotFound, Tracker
from amplifier_tool_issue.issues import ISSUES, TOLD, WAITS, Issue

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from amplifier_core.storage import DurableStore
    from amplifier_foundation.sessions.documents import SessionDocuments

    Of = Callable[..., SessionDocuments]
    Told = Callable[[], Awaitable[list[tuple[str, int, list[str]]]]]

pytestmark = pytest.mark.slow


async def states(tracker: Tracker) -> dict[int, str]:
    return {each.id: each.state for each in await tracker.find()}


async def test_an_issue_is_blocked_until_the_last_one_it_waits_for_is_closed(tracker: Tracker, told: Told) -> None:
    for title in ("one", "two"):
        await tracker.create(title)
    await tracker.create("three", blocked_by=[1, 2, 1])
    assert (await tracker.get(3)).blocked_by == [1, 2]
    assert (await tracker.get(1)).blocks == [3]
    await told()
    await tracker.close(1)
    assert await states(tracker) == {1: "closed", 2: "open", 3: "blocked"}
    await tracker.close(2)
    assert await states(tracker) == {1: "closed", 2: "closed", 3: "open"}
    assert await told() == [("closed", 1, ["status"]), ("closed", 2, ["status"]), ("unblocked", 3, ["blocked"])]


async def test_an_issue_that_waits_for_closed_ones_alone_is_open_from_the_beginning(tracker: Tracker) -> None:
    await tracker.create("one")
    await tracker.close(1)
    assert (await tracker.create("two", blocked_by=[1])).state == "open"


async def test_an_issue_that_is_opened_again_blocks_again(tracker: Tracker, told: Told) -> None:
    await tracker.create("one")
    await tracker.create("two", blocked_by=[1])
    await tracker.create("three", blocked_by=[1])
    await tracker.close(1, resolution="wontfix", result="no")
    await tracker.close(3)
    await told()
    opened = await tracker.update(1, status="open", reason="it came back")
    assert (opened.state, opened.resolution, opened.reason) == ("open", "", "it came back")
    assert await states(tracker) == {1: "open", 2: "blocked", 3: "closed"}
    assert await told() == [("updated", 2, ["blocked"]), ("updated", 1, ["status", "reason"])]
    await tracker.update(3, status="open")
    assert (await tracker.get(3)).state == "blocked"


async def test_an_issue_waits_for_another_one_and_no_longer(tracker: Tracker, told: Told) -> None:
    for title in ("one", "two", "three"):
        await tracker.create(title)
    await told()
    await tracker.depend(3, 1)
    await tracker.depend(3, 1)
    await tracker.depend(3, 2)
    await tracker.depend(3, 1, remove=True)
    assert (await tracker.get(3)).state == "blocked"
    await tracker.depend(3, 2, remove=True)
    await tracker.depend(3, 2, remove=True)
    assert (await tracker.get(3)).state == "open"
    assert [(await tracker.get(number)).blocks for number in (1, 2)] == [[], []]
    waits = ("updated", 3, ["blocked_by"])
    assert await told() == [waits, waits, waits, ("unblocked", 3, ["blocked"])]


async def test_every_change_has_one_event_and_no_change_has_none(tracker: Tracker, told: Told) -> None:
    await tracker.create("one")
    await tracker.update(1, title="uno", priority=2)
    await tracker.update(1, title="uno")
    await tracker.comment(1, "hm")
    await tracker.update(1, status="escalated")
    await tracker.update(1, status="closed", title="eins")
    await tracker.close(1)
    await tracker.update(1, status="closed")
    assert await told() == [
        ("created", 1, []),
        ("updated", 1, ["title"]),
        ("updated", 1, ["comments"]),
        ("updated", 1, ["status"]),
        ("closed", 1, ["status", "title"]),
    ]


async def test_an_event_tells_the_issue_as_it_is_stored_with_its_session(documents: Of, store: DurableStore) -> None:
    tracker = Tracker(documents("s", cause="e0", depth=2))
    made = await tracker.create("one", description="x" * 9_000, labels=["a"])
    [event] = await store.events()
    assert (event.name, event.source_session_id, event.cause, event.depth) == ("issue:created", "s", "e0", 2)
    assert event.project == "/p"
    told = dict(event.data)
    assert (told.pop("issue_id"), told.pop("changed"), told.pop("state")) == ("1", [], "open")
    assert told.pop("description") == f"{'x' * TOLD}\n(cut; the issue has 9,000 characters)"
    stored = made.data()
    assert stored.pop("description") == "x" * 9_000
    assert told == stored
    assert (made.created_by, made.depth) == ("s", 2)


async def test_a_change_that_is_refused_leaves_neither_document_nor_event(tracker: Tracker, told: Told) -> None:
    await tracker.create("one")
    await told()
    with pytest.raises(IssueNotFound, match="there is no issue 9 here"):
        await tracker.create("two", blocked_by=[1, 9])
    with pytest.raises(IssueError, match="id: cannot be changed; title, description, type"):
        await tracker.update(1, id=4)
    assert ((await tracker.get(1)).blocks, await told()) == ([], [])
    assert (await tracker.create("two")).id == 2


async def test_a_person_opens_an_open_issue_anew_and_a_session_does_not(documents: Of, told: Told) -> None:
    session, person = Tracker(documents("s", depth=8)), Tracker(documents())
    await session.create("one")
    await told()
    await session.update(1, status="open")
    assert (await told(), (await session.get(1)).depth) == ([], 8)
    await person.update(1, status="open")
    assert (await told(), (await session.get(1)).depth) == ([("updated", 1, ["status"])], 0)


async def test_sessions_that_open_an_issue_again_lengthen_its_chain(documents: Of) -> None:
    session = Tracker(documents("s"))
    await session.create("one")
    for depth in (1, 2):
        await session.close(1)
        assert (await session.update(1, status="open")).depth == depth


async def test_issues_of_another_project_are_out_of_reach(store: DurableStore, tracker: Tracker) -> None:
    await tracker.create("one")
    other = Tracker(documents_of(store, "/q"))
    assert await other.find() == []
    with pytest.raises(IssueNotFound):
        await other.get(1)
    assert (await other.create("uno")).id == 1
    assert (await tracker.get(1)).title == "one"


async def test_a_document_of_another_version_is_read(documents: Of, tracker: Tracker) -> None:
    mine = documents()
    await mine.write([mine.change(ISSUES, "0000000001", {"id": 1, "title": "old", "colour": "blue"})])
    assert await tracker.get(1) == Issue(1, "old")


async def test_a_result_of_one_hyphen_is_kept(tracker: Tracker) -> None:
    await tracker.create("one")
    assert (await tracker.close(1, result="-")).result == "-"


async def test_an_issue_blocks_a_bounded_number_of_others(tracker: Tracker) -> None:
    await tracker.create("one")
    for number in range(WAITS):
        await tracker.create(f"{number}", blocked_by=[1])
    with pytest.raises(IssueError, match=f"issue 1 blocks {WAITS} others already; let one issue stand for several"):
        await tracker.create("one more", blocked_by=[1])
    await tracker.close(1)
    assert len(await tracker.find(ready=True)) == WAITS


async def test_eight_tasks_make_issues_with_numbers_of_their_own(documents: Of, told: Told) -> None:
    async def work(name: str) -> list[int]:
        tracker, numbers = Tracker(documents(name)), []
        for turn in range(5):
            made = await tracker.create(f"{name} {turn}")
            await tracker.comment(made.id, "hm")
            await tracker.close(made.id, result=name)
            numbers.append(made.id)
        return numbers

    numbers = [each for found in await asyncio.gather(*(work(f"s{n}") for n in range(8))) for each in found]
    assert sorted(numbers) == list(range(1, 41))
    assert Counter(name for name, _, _ in await told()) == {"created": 40, "updated": 40, "closed": 40}


async def test_nobody_loses_a_change_of_the_same_issue(documents: Of, told: Told) -> None:
    await Tracker(documents()).create("one")

    async def work(name: str) -> None:
        tracker = Tracker(documents(name))
        for turn in range(5):
            await tracker.comment(1, f"{name} {turn}")
            await tracker.create(f"{name} {turn}", blocked_by=[1])

    await asyncio.gather(*(work(f"s{n}") for n in range(8)))
    tracker = Tracker(documents())
    issue, comments = await tracker.get(1), await tracker.comments(1)
    assert (issue.comments, sorted(issue.blocks)) == (40, list(range(2, 42)))
    assert {each["text"] for each in comments} == {f"s{n} {turn}" for n in range(8) for turn in range(5)}
    await tracker.close(1)
    assert Counter(name for name, _, _ in await told()) == {
        "created": 41,
        "updated": 40,
        "closed": 1,
        "unblocked": 40,
    }


async def test_of_eight_who_close_the_last_blockers_at_once_one_unblocks(documents: Of, told: Told) -> None:
    tracker = Tracker(documents())
    for number in range(8):
        await tracker.create(f"{number}")
    await tracker.create("last", blocked_by=range(1, 9))
    await asyncio.gather(*(Tracker(documents(f"s{number}")).close(number) for number in range(1, 9)))
    assert ((await tracker.get(9)).state, (await told()).count(("unblocked", 9, ["blocked"]))) == ("open", 1)


async def test_sessions_that_wait_for_each_other_in_a_circle_at_once_are_refused_but_one(documents: Of) -> None:
    tracker = Tracker(documents())
    for number in range(1, 9):
        await tracker.create(f"{number}")
    for number in range(1, 9, 2):  # 1 waits for 2, 3 for 4: the others close the circle together
        await tracker.depend(number, number + 1)
    links = [(2, 3), (4, 5), (6, 7), (8, 1)]
    ends = await asyncio.gather(*(Tracker(documents()).depend(*each) for each in links), return_exceptions=True)
    assert [isinstance(each, IssueError) for each in ends].count(True) == 1


async def test_a_blocker_opened_again_while_another_one_closes_blocks(documents: Of) -> None:
    tracker = Tracker(documents())
    for title in ("one", "two"):
        await tracker.create(title)
    await tracker.create("three", blocked_by=[1, 2])
    await tracker.close(2)
    await asyncio.gather(Tracker(documents("a")).close(1), Tracker(documents("b")).update(2, status="open"))
    assert (await tracker.get(3)).state == "blocked"


PROCESS = """
import asyncio, sys
from amplifier_core import load_plugins
from amplifier_foundation import open_inbox
from amplifier_foundation.sessions.documents import documents_of
from amplifier_tool_issue import Tracker

async def work(tracker, task):
    for turn in range(10):
        made = await tracker.create(f"{task} {turn}", blocked_by=[1])
        await tracker.comment(1, f"{sys.argv[2]} {task} {turn}")
        await tracker.close(made.id)

async def main():
    store = open_inbox(load_plugins(environ={}), path=sys.argv[1])
    tracker = Tracker(documents_of(store, "/p", session_id=sys.argv[2]))
    await asyncio.gather(work(tracker, "a"), work(tracker, "b"))
    await store.close()

asyncio.run(main())
"""


async def test_two_processes_lose_no_change_of_each_other(tmp_path: Path) -> None:
    path = tmp_path / "store" / "amplifier.db"
    store = open_inbox(load_plugins(environ={}), path=path)
    tracker = Tracker(documents_of(store, "/p"))
    await tracker.create("one")
    both = [subprocess.Popen([sys.executable, "-c", PROCESS, str(path), name]) for name in ("a", "b")]
    assert [await asyncio.to_thread(each.wait, 120) for each in both] == [0, 0]
    issues = await tracker.find()
    assert sorted(each.id for each in issues) == list(range(1, 42))
    assert (await tracker.get(1)).blocks == list(range(2, 42))
    assert len(await tracker.comments(1)) == 40
    counts = Counter(event.name for event in await store.events())
    assert counts == {"issue:created": 41, "issue:updated": 40, "issue:closed": 40}
    await store.close()


DYING = """
import asyncio, os, signal, sys
from amplifier_core import load_plugins
from amplifier_foundation import open_inbox
from amplifier_foundation.sessions.documents import documents_of
from amplifier_tool_issue import Tracker

async def main():
    store = open_inbox(load_plugins(environ={}), path=sys.argv[1])
    write = store.write_documents
    async def dying(*arguments, **given):
        if sys.argv[2] == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        await write(*arguments, **given)
        os.kill(os.getpid(), signal.SIGKILL)
    store.write_documents = dying
    await Tracker(documents_of(store, "/p", session_id="s")).create("one")

asyncio.run(main())
"""


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_call_makes_one_issue_over_a_kill(moment: str, tmp_path: Path) -> None:
    path = tmp_path / "amplifier.db"
    done = subprocess.run([sys.executable, "-c", DYING, str(path), moment], timeout=60, check=False)
    assert done.returncode == -9
    store = open_inbox(load_plugins(environ={}), path=path)
    tracker = Tracker(documents_of(store, "/p", session_id="s"))
    assert len(await tracker.find()) == (moment == "after")
    assert (await tracker.create("one")).id == 1
    assert [event.name for event in await store.events()] == ["issue:created"]
    await store.close()


async def test_a_store_that_fails_for_a_while_loses_nothing_and_doubles_nothing(
    documents: Of, store: DurableStore, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker, kept = Tracker(documents("s")), store.write_documents  # type: ignore[attr-defined]

    async def fails(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("the disk is full", "database is locked")

    monkeypatch.setattr(store, "write_documents", fails)
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await tracker.create("one")
    monkeypatch.setattr(store, "write_documents", kept)
    assert (await tracker.create("one")).id == 1
    assert await told() == [("created", 1, [])]
