"""The tracker of a background session: an issue is begun, closed, opened again, or escalated with its delivery."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import TriggerEvent, TriggerType, load_plugins
from amplifier_tool_issue.work import IssueTracker

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_core.documents import DocumentEdit
    from amplifier_core.storage import Delivery, DurableStore
    from amplifier_foundation.sessions.documents import SessionDocuments
    from amplifier_tool_issue import Tracker

    Of = Callable[..., SessionDocuments]


class Worker:
    """A delivery about an issue, with the tracker of its background session."""

    def __init__(self, store: DurableStore, of: Of, delivery: Delivery, **config: Any) -> None:
        self.store, self.delivery, self.tracker = store, delivery, IssueTracker(config)
        self.documents = of(delivery.session_id, depth=1)

    async def begin(self) -> str | None:
        return await self.tracker.begin(self.documents, self.delivery)

    async def finish(self, **outcome: Any) -> DocumentEdit:
        return await self.tracker.finish(self.documents, self.delivery, outcome)

    async def give_up(self, reason: str = "it broke") -> DocumentEdit:
        return await self.tracker.give_up(self.documents, self.delivery, reason)

    async def find_withdrawal(self) -> str | None:
        return await self.tracker.find_withdrawal(self.documents, self.delivery)

    async def end(self, edit: DocumentEdit) -> None:
        await self.documents.write(edit.changes, edit.events)


@pytest.fixture
def work(store: DurableStore, documents: Of) -> Callable[..., Any]:
    """Return a worker's delivery with this data."""

    async def claim(session_id: str = "w", reopen: int = 1, **data: Any) -> Worker:
        event = TriggerEvent(TriggerType.ISSUE_EVENT, "trigger-issue", data=data or {"issue_id": "1"}, depth=1)
        await store.enqueue("/p", "crew/coder", "issue", event)
        delivery = await store.claim("/p", "crew/coder", owner="o", lease=60, session_id=session_id)
        assert delivery is not None
        return Worker(store, documents, delivery, reopen=reopen)

    return claim


async def test_the_work_on_an_issue_is_begun_once_and_finished_with_its_answer(
    tracker: Tracker, work: Any, told: Any
) -> None:
    await tracker.create("one")
    await told()
    worker = await work()
    assert [await worker.begin(), await worker.begin()] == [None, None]
    issue = await tracker.get(1)
    assert (issue.state, issue.assignee, issue.queue) == ("in_progress", "w", "crew/coder")
    outcome = {"output": "done it", "branch": "issue-1", "commit": "c0ffee", "merged": False, "conflicts": None}
    await worker.end(await worker.finish(**outcome, cost_usd=3))
    again = await worker.finish(**outcome)
    assert (again.changes, again.events) == ([], [])
    issue = await tracker.get(1)
    assert (issue.state, issue.resolution, issue.result) == ("closed", "completed", "done it")
    assert issue.metadata == {"branch": "issue-1", "commit": "c0ffee", "merged": False}
    assert await told() == [("updated", 1, ["status", "assignee"]), ("closed", 1, ["status"])]


async def test_a_finished_issue_unblocks_those_that_waited_for_it(tracker: Tracker, work: Any, told: Any) -> None:
    await tracker.create("one")
    await tracker.create("two", blocked_by=[1])
    worker = await work()
    await worker.begin()
    await worker.end(await worker.finish(output="done"))
    assert (await told())[-2:] == [("closed", 1, ["status"]), ("unblocked", 2, ["blocked"])]


async def test_a_long_answer_and_long_lists_of_files_are_cut(tracker: Tracker, work: Any) -> None:
    await tracker.create("one")
    worker = await work()
    await worker.begin()
    files = [f"file-{number}" for number in range(1_000)]
    await worker.end(await worker.finish(output="x" * 100_000, conflicts=files, left_out=files))
    assert (await tracker.get(1)).metadata == {"conflicts": files[:100], "left_out": files[:100]}
    assert (await tracker.get(1)).result.endswith("x\n(cut; the issue has 100,000 characters)")


async def test_work_that_fails_is_done_again_and_escalated_the_next_time(
    tracker: Tracker, work: Any, told: Any
) -> None:
    await tracker.create("one")
    first = await work("w1")
    await first.begin()
    await told()
    await first.end(await first.give_up("no network"))
    again = await first.give_up("no network")
    assert (again.changes, again.events) == ([], [])
    issue = await tracker.get(1)
    assert (issue.state, issue.assignee, issue.failures, issue.reason) == ("open", None, 1, "no network")
    second = await work("w2")
    await second.begin()
    await second.end(await second.give_up("no network either"))
    issue = await tracker.get(1)
    assert (issue.state, issue.failures, issue.reason) == ("escalated", 2, "no network either")
    failed = ("updated", 1, ["status", "reason"])
    assert await told() == [failed, ("updated", 1, ["status", "assignee"]), failed]


@pytest.mark.parametrize("reopen", [0, 2])
async def test_the_bundle_says_how_often_work_is_done_again(reopen: int, tracker: Tracker, work: Any) -> None:
    await tracker.create("one")
    for turn in range(reopen + 1):
        assert (await tracker.get(1)).state == "open"
        worker = await work(f"w{turn}", reopen)
        await worker.begin()
        await worker.end(await worker.give_up())
    assert (await tracker.get(1)).state == "escalated"


@pytest.mark.parametrize("reopen", [0, 1])
async def test_a_person_makes_escalated_work_due_again(reopen: int, tracker: Tracker, work: Any) -> None:
    await tracker.create("one")
    for turn in range(reopen + 1):
        worker = await work(f"w{turn}", reopen)
        await worker.begin()
        await worker.end(await worker.give_up())
    assert [await worker.begin(), await worker.begin()] == [None, None]
    assert (await tracker.get(1)).state == "in_progress"
    await worker.end(await worker.give_up("again"))
    issue = await tracker.get(1)
    assert (issue.state, issue.reason) == ("escalated", "again")
    assert await worker.begin() is None
    await worker.end(await worker.finish(output="at last"))
    assert (await tracker.get(1)).state == "closed"


async def test_a_person_who_opens_an_escalated_issue_gives_it_all_its_attempts(tracker: Tracker, work: Any) -> None:
    await tracker.create("one")
    for name in ("w1", "w2"):
        worker = await work(name)
        await worker.begin()
        await worker.end(await worker.give_up())
    await tracker.update(1, status="open")
    worker = await work("w3")
    assert await worker.begin() is None
    await worker.end(await worker.give_up())
    assert (await tracker.get(1)).state == "open"


@pytest.mark.parametrize("status", ["closed", "escalated"])
async def test_what_a_worker_has_settled_stays_over_a_kill_before_its_delivery_ends(
    status: str, documents: Of, tracker: Tracker, work: Any, told: Any
) -> None:
    from amplifier_tool_issue import Tracker as OfSession

    await tracker.create("one")
    worker = await work()
    await worker.begin()
    await OfSession(documents("w")).update(1, status=status, reason="a person is to decide")
    await told()
    assert await worker.begin() is None  # its delivery is claimed again, and the session goes on
    edit = await worker.finish(output="settled")
    assert (edit.changes, edit.events, await told()) == ([], [], [])
    issue = await tracker.get(1)
    assert (issue.state, issue.reason) == (status, "a person is to decide")


async def test_what_others_have_begun_closed_or_blocked_is_not_begun(tracker: Tracker, work: Any) -> None:
    await tracker.create("one")
    await (await work("w1")).begin()
    assert await (await work("w2")).begin() == "issue 1 is in_progress (w1)"
    await tracker.close(1)
    assert await (await work("w3")).begin() == "issue 1 is closed (completed)"
    await tracker.create("two")
    await tracker.create("three", blocked_by=[2])
    assert await (await work("w4", issue_id="3")).begin() == "issue 3 is blocked"
    await tracker.update(2, status="escalated")
    assert await (await work("w5", issue_id="2")).begin() == "issue 2 is escalated"
    assert "there is no issue 9 here" in await (await work("w6", issue_id="9")).begin()


@pytest.mark.parametrize(
    ("closer", "resolution", "reason"),
    [
        (None, "completed", "issue 1 is closed (completed)"),
        (None, "wontfix", "issue 1 is closed (wontfix)"),
        ("foreman", "duplicate", "issue 1 is closed (duplicate)"),
        ("foreman", "completed", None),  # a session below the worker's may close its issue
        ("w", "completed", None),
        ("w", "wontfix", None),
    ],
)
async def test_work_on_an_issue_that_others_have_closed_is_not_wanted(
    closer: str | None, resolution: str, reason: str | None, documents: Of, tracker: Tracker, work: Any
) -> None:
    from amplifier_tool_issue import Tracker as OfSession

    await tracker.create("one")
    worker = await work()
    await worker.begin()
    assert await worker.find_withdrawal() is None
    await OfSession(documents(closer)).close(1, resolution=resolution)
    assert [await worker.find_withdrawal(), await worker.begin()] == [reason, reason]
    assert (await tracker.get(1)).assignee == "w"


@pytest.mark.parametrize("by", [None, "foreman", "w"])
async def test_an_issue_gets_no_second_worker_while_the_first_is_at_work(
    by: str | None, documents: Of, tracker: Tracker, work: Any, told: Any
) -> None:
    from amplifier_tool_issue import IssueError
    from amplifier_tool_issue import Tracker as OfSession

    await tracker.create("one")
    worker = await work()
    await worker.begin()
    await told()
    with pytest.raises(IssueError, match="beside session w. Close it first, .*: amplifier issue close 1"):
        await OfSession(documents(by)).update(1, status="open", title="new")
    assert (await told(), (await tracker.get(1)).title) == ([], "one")
    await tracker.close(1)
    await tracker.update(1, status="open")
    second = await work("w2")
    assert [await second.begin(), await worker.find_withdrawal()] == [None, "issue 1 is in_progress (w2)"]


async def test_an_issue_that_a_person_has_begun_is_opened_again(tracker: Tracker, work: Any) -> None:
    await tracker.create("one")
    worker = await work(reopen=0)
    await worker.begin()
    await worker.end(await worker.give_up())
    issue = await tracker.update(1, status="in_progress")
    assert (issue.assignee, issue.queue) == (None, None)
    assert (await tracker.update(1, status="open")).state == "open"


async def test_an_event_about_no_issue_changes_none(tracker: Tracker, work: Any, told: Any) -> None:
    worker = await work(file="a.txt")
    assert [await worker.begin(), await worker.find_withdrawal()] == [None, None]
    assert [(await worker.finish(output="x")).changes, (await worker.give_up()).changes] == [[], []]


@pytest.mark.parametrize("number", ["", "one", -1, [1], True])
async def test_an_event_about_a_number_that_is_none_is_refused_and_can_be_given_up(number: Any, work: Any) -> None:
    worker = await work(issue_id=number)
    assert "is no number of an issue" in await worker.begin()
    assert (await worker.give_up()).changes == []


async def test_work_whose_session_is_gone_is_freed_once(documents: Of, tracker: Tracker, work: Any, told: Any) -> None:
    for number in ("1", "2", "3"):
        await tracker.create(number)
        await (await work(f"w{number}", issue_id=number)).begin()
    await tracker.create("a person's")
    await tracker.update(4, status="in_progress")
    await told()
    free = IssueTracker({})
    assert await free.recover(documents(), "crew/coder", {"w2"}) == ["issue 1", "issue 3"]
    assert await free.recover(documents(), "crew/coder", {"w2"}) == []
    assert await free.recover(documents(), "crew/other", set()) == []
    assert [each.state for each in await tracker.find()] == ["open", "in_progress", "open", "in_progress"]
    assert (await tracker.get(1)).reason == "the work on it was lost"
    assert await told() == [("updated", 1, ["status", "assignee"]), ("updated", 3, ["status", "assignee"])]


async def test_the_answer_of_a_session_that_has_read_text_of_strangers_taints_the_issue(
    tracker: Tracker, work: Any
) -> None:
    await tracker.create("one")
    worker = await work()
    await worker.begin()
    await worker.end(await worker.finish(output="from the net", untrusted="it has read a result of web"))
    assert (await tracker.get(1)).untrusted == "it has read a result of web"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"reopen": -1}, "reopen: must be 0 to 100, not -1"),
        ({"reopen": True}, "reopen: must be 0 to 100, not True"),
        ({"reopen": "2"}, "reopen: must be 0 to 100, not '2'"),
        ({"reopn": 1}, "reopn: unknown key; known is reopen"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused_by_its_key(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="reop") as caught:
        IssueTracker(config)
    assert str(caught.value) == message


def test_the_plugin_registers_the_tracker() -> None:
    tracker = load_plugins(environ={}).registry_of("tracker").get("issue")({"reopen": 3})
    assert isinstance(tracker, IssueTracker)
