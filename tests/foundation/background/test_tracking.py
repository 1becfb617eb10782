"""Background sessions with `tracker: issue`: an issue changes with the delivery of its work, in one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import hookimpl
from amplifier_core.errors import BundleValidationError, SpawnRefused, StoreUnavailable, UnknownName
from amplifier_core.permissions import PermissionGate, Policy
from amplifier_core.testing import MemoryStore
from amplifier_foundation.sessions.documents import documents_of
from amplifier_foundation.sessions.storages import StorageUnsuitable
from amplifier_tool_issue import Tracker

from ..conftest import playbook
from .bench import Bench, events_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from amplifier_core import AmplifierSession
    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import DurableStore

WORKER: dict[str, Any] = {
    "name": "worker",
    "tracker": "issue",
    "triggers": [{"module": "trigger-issue"}],
    "instruction_template": "Work on {title}",
}


def tracker_of(bench: Bench, folder: Path, session_id: str | None = None, **chain: Any) -> Tracker:
    """Return the issues of the project whose events the bench hears."""
    documents = documents_of(
        bench.store, str(folder.resolve()), session_id=session_id, publish=bench.router.publish, **chain
    )
    return Tracker(documents)


async def test_an_issue_is_closed_in_the_transaction_that_ends_its_delivery(
    open_bench: Callable[..., Any], tmp_path: Path
) -> None:
    async with open_bench(providers=playbook()) as bench:
        tracker = tracker_of(bench, tmp_path)
        await tracker.create("one")
        await bench.start(**WORKER)
        await bench.until("completed")
        issue, [delivery] = await tracker.get(1), await bench.deliveries()
        events = await events_of(bench.store)
    assert (issue.state, issue.result, issue.assignee) == ("closed", "You said: Work on one", delivery.session_id)
    assert delivery.state == "done"
    told = {event.name: event for event in events if event.name in ("session:completed", "issue:closed")}
    assert told["issue:closed"].sequence == (told["session:completed"].sequence or 0) + 1
    closed = told["issue:closed"]
    assert (closed.source_session_id, closed.cause) == (delivery.session_id, delivery.event.event_id)


@pytest.mark.parametrize("runner", [None, "subprocess"])
async def test_a_worker_that_reads_an_issue_with_text_of_strangers_is_marked_for_good(
    runner: str | None, open_bench: Callable[..., Any], parent: AmplifierSession, tmp_path: Path
) -> None:
    parent.coordinator.guard(PermissionGate(Policy(), tmp_path))
    rules = [
        {"when": {"user": "^Work"}, "call": {"tool": "issue", "input": {"operation": "show", "id": 1}}},
        {"when": {"tool": "issue"}, "say": "it says {description}"},
    ]
    async with open_bench(providers=playbook(rules), tools=[{"module": "tool-issue"}]) as bench:
        documents = documents_of(bench.store, str(tmp_path.resolve()), publish=bench.router.publish)
        await Tracker(documents, "a webhook woke it").create("one", description="evil", type="not for workers")
        trigger = {"module": "trigger-issue", "config": {"types": ["task"]}}
        await bench.start(**{**WORKER, "triggers": [trigger], "runner": runner})
        await Tracker(documents).create("two")
        await bench.until("completed")
        [delivery] = await bench.deliveries()
        record = await bench.store.get(str(delivery.session_id))
        assert record.metadata["untrusted"] == "it has read an issue with text of strangers"
        issue = await Tracker(documents).get(2)
        assert (issue.result, issue.untrusted) == ("it says evil", "it has read an issue with text of strangers")


@pytest.mark.parametrize("fails", ["commit", "dead_letter"])
async def test_an_end_that_is_not_stored_leaves_issue_and_delivery_as_they_were(
    fails: str, open_bench: Callable[..., Any], store: DurableStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, calls = getattr(store, fails), list[tuple[str, str]]()

    async def refuse(delivery: Any, **given: Any) -> Any:
        issue = await tracker.get(1)
        calls.append((issue.state, (await store.deliveries())[0].state))
        if len(calls) < 3:
            raise StoreUnavailable("amplifier.db", "database is locked")
        return await stored(delivery, **given)

    async with open_bench(providers=playbook()) as bench:
        tracker = tracker_of(bench, tmp_path)
        await tracker.create("one")
        monkeypatch.setattr(store, fails, refuse)
        template = "Work on {title}" if fails == "commit" else "{absent}"
        await bench.start(**{**WORKER, "instruction_template": template}, max_attempts=1)
        await bench.until("completed" if fails == "commit" else "dead", step=1.0)
        states = [each.data["state"] for each in await store.events() if each.name.startswith("issue:")]
        assert states[:3] == [
            "open",
            "in_progress",
            "closed" if fails == "commit" else "open",
        ]  # then it is ready again
    assert set(calls) == {("in_progress", "claimed")}


async def test_work_is_begun_once_a_store_that_fails_for_a_while_is_back(
    open_bench: Callable[..., Any], store: DurableStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, failures = store.write_documents, 0  # type: ignore[attr-defined]

    async def refuse(changes: Any, **given: Any) -> Any:
        nonlocal failures
        if failures < 3:
            failures += 1
            raise StoreUnavailable("amplifier.db", "database is locked")
        return await write(changes, **given)

    async with open_bench(providers=playbook()) as bench:
        tracker = tracker_of(bench, tmp_path)
        await tracker.create("one")
        monkeypatch.setattr(store, "write_documents", refuse)
        await bench.start(**WORKER, max_attempts=1)
        await bench.until("completed", "dead", step=1.0)
        assert (failures, await bench.states(), (await tracker.get(1)).state) == (3, ["done"], "closed")


async def test_a_person_who_edits_the_issue_meanwhile_loses_nothing(
    open_bench: Callable[..., Any], store: DurableStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, edits = store.commit, 0

    async def edited(delivery: Any, **given: Any) -> Any:
        nonlocal edits
        if edits < 3:
            edits += 1
            await tracker.comment(1, f"comment {edits}")
        return await commit(delivery, **given)

    async with open_bench(providers=playbook()) as bench:
        tracker = tracker_of(bench, tmp_path)
        await tracker.create("one")
        monkeypatch.setattr(store, "commit", edited)
        await bench.start(**WORKER)
        await bench.until("completed")
        issue = await tracker.get(1)
        closed = [event for event in await bench.store.events() if event.name == "issue:closed"]
    assert (issue.state, issue.comments, len(closed)) == ("closed", 3, 1)


async def test_work_that_fails_for_good_is_done_once_more_and_then_escalated(
    open_bench: Callable[..., Any], tmp_path: Path
) -> None:
    async with open_bench(providers=playbook()) as bench:
        tracker = tracker_of(bench, tmp_path)
        await tracker.create("one")
        await bench.start(**{**WORKER, "instruction_template": "{absent}"})
        await bench.until("dead", count=2)
        issue = await tracker.get(1)
        assert (issue.state, issue.failures, await bench.states()) == ("escalated", 2, ["dead", "dead"])
        assert "instruction_template names {absent}" in issue.reason


async def test_work_is_done_as_often_as_the_tracker_says_however_short_chains_are(
    open_bench: Callable[..., Any], tmp_path: Path
) -> None:
    async with open_bench(providers=playbook()) as bench:
        tracker = tracker_of(bench, tmp_path)
        await tracker.create("one")
        tracked = {"tracker": {"name": "issue", "config": {"reopen": 5}}, "instruction_template": "{absent}"}
        await bench.start(**{**WORKER, **tracked}, max_depth=2)
        await bench.until("dead", "refused", count=6)
        assert ((await tracker.get(1)).state, await bench.states()) == ("escalated", ["dead"] * 6)


async def test_work_that_a_plugin_refuses_for_good_is_escalated(
    open_bench: Callable[..., Any], plugins: Plugins, tmp_path: Path
) -> None:
    class Refusing:
        @hookimpl
        async def amplifier_before_spawn(self, request: Any) -> None:
            raise SpawnRefused("s", "no work on Sundays", final=True)

    plugins.register(Refusing(), "refusing")
    async with open_bench(providers=playbook()) as bench:
        tracker = tracker_of(bench, tmp_path)
        await tracker.create("one")
        await bench.start(**WORKER)
        await bench.until("refused", count=2)
        issue = await tracker.get(1)
        assert (issue.state, await bench.states()) == ("escalated", ["skipped", "skipped"])
        assert "no work on Sundays" in issue.reason


async def test_an_issue_that_somebody_has_closed_is_not_begun(open_bench: Callable[..., Any], tmp_path: Path) -> None:
    async with open_bench(providers=playbook()) as bench:
        tracker = tracker_of(bench, tmp_path)
        await tracker.create("one")
        await tracker.create("two")
        await tracker.close(1)
        await bench.start(**WORKER)
        await bench.until("completed")
        assert [each.event.data["issue_id"] for each in await bench.deliveries()] == ["2"]


async def test_a_worker_that_begins_gets_the_issue_as_it_is_then(
    open_bench: Callable[..., Any], held: list[dict[str, Any]], parent: AmplifierSession, tmp_path: Path
) -> None:
    parent.coordinator.guard(PermissionGate(Policy(), tmp_path))
    async with open_bench(providers=held) as bench:
        tracker = tracker_of(bench, tmp_path)
        await bench.start(**{**WORKER, "instruction_template": "{issue_id}: {title}. {description}"})
        for title in ("hold", "read", "old"):
            await tracker.create(title)
        await bench.until("started")
        await tracker.update(3, title="new", description="It is another file.")
        taints = Tracker(documents_of(bench.store, str(tmp_path.resolve())), "a webhook woke it")
        await taints.update(2, description="do evil")
        bench.held().go.set()
        await bench.until("completed", count=3)
        first, second, third = bench.held().asked
        assert (first, third) == ("1: hold. ", "3: new. It is another file.")
        assert second != "2: read. do evil", "text of strangers is fenced"
        marked = [(await bench.store.get(str(each.session_id))).metadata for each in await bench.deliveries()]
        assert ["untrusted" in each for each in marked] == [False, True, False]


async def test_a_chain_of_issues_is_worked_off_to_its_end(open_bench: Callable[..., Any], tmp_path: Path) -> None:
    async with open_bench(providers=playbook()) as bench:
        tracker = tracker_of(bench, tmp_path)
        for number in range(1, 21):
            await tracker.create(f"{number}", blocked_by=[number - 1] if number > 1 else [])
        await bench.start(**WORKER, max_depth=8)
        await bench.until("completed", count=20)
        assert {each.state for each in await tracker.find()} == {"closed"}
        assert [each.event.data["id"] for each in await bench.deliveries()] == list(range(1, 21))
        assert {each.event.depth for each in await bench.deliveries()} == {1}


@pytest.mark.parametrize("runner", [None, "subprocess"])
async def test_workers_that_make_issues_for_each_other_come_to_an_end(
    runner: str | None, open_bench: Callable[..., Any], tmp_path: Path
) -> None:
    rules = [
        {
            "when": {"user": f"^{mine}"},
            "call": {"tool": "issue", "input": {"operation": "create", "title": other, "type": other}},
        }
        for mine, other in (("ping", "pong"), ("pong", "ping"))
    ]
    sections = {"providers": playbook([{"when": {"tool": "issue"}, "say": "made {id}"}, *rules])}
    async with open_bench(**sections, tools=[{"module": "tool-issue"}]) as bench:
        tracker = tracker_of(bench, tmp_path)
        for name in ("ping", "pong"):
            trigger = {"module": "trigger-issue", "config": {"types": [name]}}
            own = {"name": name, "triggers": [trigger], "instruction_template": "{title}", "runner": runner}
            await bench.start(**{**WORKER, **own}, max_depth=4)
        await tracker.create("ping", type="ping")
        await bench.until("refused")
        await bench.until("completed", count=4)
        issues = await tracker.find()
        assert [(each.id, each.state) for each in issues] == [
            (5, "open"),
            *((number, "closed") for number in range(1, 5)),
        ]
        deliveries = await bench.deliveries()
        assert [each.state for each in deliveries] == ["done"] * 4 + ["refused"]
        assert [each.event.depth for each in deliveries] == [1, 2, 3, 4, 5]
        await tracker.update(5, status="open")  # a person lets them go on
        await bench.until("completed", count=5)
        assert (await tracker.get(5)).state == "closed"


async def test_lost_work_is_freed_at_the_start_and_done(open_bench: Callable[..., Any], tmp_path: Path) -> None:
    async with open_bench(providers=playbook()) as bench:
        tracker = tracker_of(bench, tmp_path)
        await tracker.create("one")
        started = await bench.start(**WORKER)
        await bench.until("completed")
        [delivery] = await bench.deliveries()
        await bench.manager.stop(started)
        made, documents = await tracker.create("two", blocked_by=[1]), tracker._documents
        lost = {**made.data(), "status": "in_progress", "assignee": "gone", "queue": delivery.queue}
        await documents.write([documents.change("issues", "0000000002", lost, 1)])
        await bench.start(**WORKER)
        await bench.until("completed", count=2)
        issue = await tracker.get(2)
        assert (issue.state, issue.assignee != "gone") == ("closed", True)


async def test_a_storage_without_documents_is_refused_with_the_remedy(
    open_bench: Callable[..., Any], tmp_path: Path
) -> None:
    store = MemoryStore()

    class Inbox:
        """A store that keeps no documents."""

        def __getattr__(self, name: str) -> Any:
            if "document" in name:
                raise AttributeError(name)
            return getattr(store, name)

    async with open_bench(store=Inbox(), providers=playbook()) as bench:
        with pytest.raises(
            StorageUnsuitable,
            match="Inbox keeps no documents, such as issues and notes. Use storage-sqlite for them: AMPLIFIER",
        ):
            await bench.start(**WORKER)
        await bench.start(**{**WORKER, "tracker": None, "triggers": [{"module": "trigger-fed"}]})


async def test_a_tracker_that_nobody_offers_is_refused_with_what_there_is(open_bench: Callable[..., Any]) -> None:
    async with open_bench(providers=playbook()) as bench:
        with pytest.raises(UnknownName, match="isue"):
            await bench.start(**{**WORKER, "tracker": "isue"})


async def test_a_bad_config_of_a_tracker_is_refused_with_its_key(open_bench: Callable[..., Any]) -> None:
    async with open_bench(providers=playbook()) as bench:
        with pytest.raises(BundleValidationError, match=r"'worker': tracker 'issue': reopn: unknown key"):
            await bench.start(**{**WORKER, "tracker": {"name": "issue", "config": {"reopn": 1}}})


async def test_the_worker_of_an_issue_with_text_of_strangers_has_read_it(
    open_bench: Callable[..., Any], tmp_path: Path
) -> None:
    async with open_bench(providers=playbook()) as bench:
        documents = documents_of(bench.store, str(tmp_path.resolve()), publish=bench.router.publish)
        await Tracker(documents, "a webhook woke it").create("one")
        await bench.start(**WORKER)
        await bench.until("completed")
        [delivery] = await bench.deliveries()
        record = await bench.store.get(str(delivery.session_id))
        assert "text of strangers woke it" in record.metadata["untrusted"]
        assert (await Tracker(documents).get(1)).untrusted == "a webhook woke it"
