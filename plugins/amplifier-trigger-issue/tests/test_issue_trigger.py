"""Test the trigger of issues on a real store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.errors import TriggerConfigError, TriggerError
from amplifier_core.events import SessionEvent
from amplifier_core.plugins import load_plugins
from amplifier_core.testing.trigger_checks import check_trigger
from amplifier_core.triggers import TriggerContext, TriggerEvent, TriggerSource, TriggerType
from amplifier_foundation import EventRouter, open_inbox
from amplifier_foundation.sessions.documents import documents_of
from amplifier_tool_issue import Tracker
from amplifier_trigger_issue import IssueTrigger

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_core.storage import DurableStore


class Project:
    """The issues of a folder, and triggers that follow them."""

    def __init__(self, store: DurableStore, folder: Path) -> None:
        self.store, self.folder, self.router = store, folder, EventRouter(store)
        self.saved: list[Mapping[str, Any]] = []

    def tracker(self, session_id: str | None = None, **chain: Any) -> Tracker:
        publish = self.router.publish
        project = str(self.folder.resolve())
        return Tracker(documents_of(self.store, project, session_id=session_id, publish=publish, **chain))

    def context(self, state: Mapping[str, Any] | None = None) -> TriggerContext:
        async def save(state: Mapping[str, Any]) -> None:
            self.saved.append(state)

        return TriggerContext(
            "tests/worker/trigger-issue#1",
            working_dir=self.folder,
            events=self.router,
            documents=documents_of(self.store, str(self.folder.resolve())),
            state=state or {},
            saver=save,
        )

    def trigger(self, state: Mapping[str, Any] | None = None, **config: Any) -> IssueTrigger:
        trigger = IssueTrigger()
        trigger.bind(self.context(state))
        trigger.configure(config)
        return trigger

    async def fired(self, **config: Any) -> list[tuple[str, int]]:
        """Return the events of the log that fire."""
        trigger = self.trigger(**config)
        read = [each for event in await self.store.events() if (each := trigger.read(event)) is not None]
        assert [trigger.matches(each) for each in read] == [None] * len(read)
        return [(str(each.event_name).removeprefix("issue:"), each.data["id"]) for each in read]

    async def watched(self, count: int, state: Mapping[str, Any] | None = None, **config: Any) -> list[TriggerEvent]:
        """Return the first events of a watch."""
        trigger, events = self.trigger(state, **config), list[TriggerEvent]()
        async with asyncio.timeout(60), aclosing(trigger.watch()) as stream:
            async for event in stream:
                events.append(event)
                if len(events) == count:
                    return events
        raise AssertionError("the watch ended")


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Project]:
    store = open_inbox(load_plugins(environ={}), path=tmp_path / "store" / "amplifier.db")
    yield Project(store, tmp_path)
    await store.close()


async def test_the_contract_of_a_trigger(here: Project) -> None:
    await here.tracker().create("before")
    events = await check_trigger(
        IssueTrigger, {}, provoke=lambda: here.tracker().create("one"), context=here.context({"sequence": 1})
    )
    assert [event.state for event in events] == [{"sequence": 2}, {"sequence": 3}]


def test_the_plugin_registers_the_trigger() -> None:
    plugins = load_plugins(environ={"AMPLIFIER_LOAD_PLUGINS": "trigger-issue"})
    assert plugins.triggers.get("trigger-issue") is IssueTrigger
    assert isinstance(IssueTrigger(), TriggerSource)


async def test_an_event_fires_with_what_is_known_of_it(here: Project) -> None:
    made = await here.tracker("s", depth=2).create("one", labels=["a"])
    [cause] = await here.store.events()
    event = here.trigger().read(cause)
    assert event is not None
    assert (event.type, event.source, event.event_name) == (TriggerType.ISSUE_EVENT, "trigger-issue", "issue:created")
    assert (event.source_session_id, event.cause, event.depth) == ("s", cause.event_id, 3)
    assert event.dedupe_key == f"1@{made.updated}"
    assert (event.data, event.state) == (dict(cause.data), {"sequence": 1})


async def test_an_issue_fires_when_it_can_be_begun(here: Project) -> None:
    tracker = here.tracker()
    await tracker.create("one")
    await tracker.create("two", blocked_by=[1])
    await tracker.comment(1, "hm")
    await tracker.update(1, title="uno", priority=1)
    await tracker.update(1, status="in_progress")
    await tracker.update(1, status="escalated")
    await tracker.update(1, status="open")
    await tracker.close(1)
    await tracker.update(2, type="bug")
    await tracker.update(2, labels=["a"])
    assert await here.fired() == [("created", 1), ("updated", 1), ("unblocked", 2), ("updated", 2), ("updated", 2)]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"events": "created"}, [("created", 1), ("created", 2), ("created", 3)]),
        ({"events": ["unblocked", "closed"]}, [("closed", 1), ("unblocked", 2)]),
        ({"events": ["updated"]}, [("updated", 3), ("updated", 2)]),
        ({"types": ["bug"]}, [("created", 3), ("updated", 3)]),
        ({"types": "bug"}, [("created", 3), ("updated", 3)]),
        ({"except_types": ["bug"]}, [("created", 1), ("unblocked", 2), ("updated", 2)]),
        ({"labels": ["ui"]}, [("updated", 3)]),
        ({"except_labels": ["ui", "db"]}, [("created", 1), ("created", 3), ("unblocked", 2)]),
        ({"events": ["closed", "created"], "status": ["closed"]}, [("closed", 1)]),
        ({"if": "data.priority == 0"}, [("created", 3), ("updated", 3)]),
        ({"if": "name == 'issue:unblocked'"}, [("unblocked", 2)]),
    ],
)
async def test_only_the_issues_that_were_asked_for_fire(
    config: dict[str, Any], expected: list[tuple[str, int]], here: Project
) -> None:
    tracker = here.tracker()
    await tracker.create("one")
    await tracker.create("two", blocked_by=[1])
    await tracker.create("three", type="bug", priority=0)
    await tracker.close(1)
    await tracker.update(3, labels=["ui"])
    await tracker.update(2, labels=["db"])
    assert await here.fired(**config) == expected


async def test_issues_of_another_project_do_not_fire(here: Project, tmp_path: Path) -> None:
    other = Project(here.store, tmp_path / "other")
    await other.tracker().create("theirs")
    await here.tracker().create("mine")
    assert await here.fired() == [("created", 1)]
    assert [each.data["title"] for each in await here.watched(1)] == ["mine"]


async def test_the_very_first_start_fires_for_what_is_ready_the_same_state_once(here: Project) -> None:
    tracker = here.tracker("s", depth=4)
    for title in ("one", "two", "three", "four"):
        await tracker.create(title, description="x" * 10_000)
    await tracker.depend(2, 1)
    await tracker.close(3)
    events, trigger = list[TriggerEvent](), here.trigger()
    async with aclosing(trigger.watch()) as stream:
        async for event in stream:
            events.append(event)
            if len(events) == 2:
                await tracker.create("five")
            if len(events) == 3:
                break
    assert [(each.data["id"], each.state) for each in events] == [(1, None), (4, None), (5, {"sequence": 7})]
    assert here.saved == [{"sequence": 6}]
    first, logged = events[0], here.trigger(events="created").read((await here.store.events())[0])
    assert logged is not None
    assert (first.dedupe_key == logged.dedupe_key, first.source_session_id) == (False, "s")  # it blocks another since
    assert (first.depth, logged.depth) == (5, 5)
    fourth = here.trigger().read((await here.store.events())[3])
    assert fourth is not None
    assert events[1].dedupe_key == fourth.dedupe_key
    assert dict(events[1].data) == dict(fourth.data)
    assert trigger.matches(first) is None


async def test_a_first_start_that_was_killed_looks_back_again(here: Project) -> None:
    await here.tracker().create("one")
    keys = []
    for _ in range(2):
        async with aclosing(here.trigger().watch()) as stream:
            keys.append((await anext(stream)).dedupe_key)
    assert (here.saved, keys[0]) == ([], keys[1])


async def test_a_first_start_without_ready_begins_with_what_happens_then(here: Project) -> None:
    await here.tracker().create("one")
    trigger = here.trigger(events=["created"])
    stream = trigger.watch()
    waiting = asyncio.ensure_future(anext(stream))
    await trigger.ready()
    await here.tracker().create("two")
    assert (await asyncio.wait_for(waiting, 60)).data["id"] == 2
    await stream.aclose()


async def test_a_restart_goes_on_after_the_last_event(here: Project) -> None:
    for title in ("one", "two", "three"):
        await here.tracker().create(title)
    assert [each.data["id"] for each in await here.watched(2, {"sequence": 1})] == [2, 3]


async def test_a_store_without_documents_is_followed_all_the_same() -> None:
    router, trigger = EventRouter(), IssueTrigger()
    trigger.bind(TriggerContext("tests/issues#0", events=router))
    trigger.configure({})
    stream = trigger.watch()
    waiting = asyncio.ensure_future(anext(stream))
    await trigger.ready()
    await router.emit("issue:created", {"issue_id": "1", "status": "open"})
    assert (await asyncio.wait_for(waiting, 60)).data["issue_id"] == "1"
    await stream.aclose()


async def test_without_events_to_follow_watching_says_so() -> None:
    trigger = IssueTrigger()
    trigger.configure({})
    with pytest.raises(TriggerError, match="there are no issues to follow here"):
        await anext(trigger.watch())


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"status": "open", "labels": "ui", "type": ["bug"], "changed": 5, "depth": -5, "updated": {}},
        {"status": ["open"], "labels": {"ui": 1}, "type": None, "changed": None, "depth": "x", "blocked": "no"},
        {"status": "open", "labels": [["ui"]], "changed": [["status"]], "depth": True},
        {"status": "open", "labels": 7, "changed": {"status": 1}, "depth": 1.5},
    ],
)
@pytest.mark.parametrize("name", ["issue:created", "issue:updated", "issue:unblocked", "issue:", "issue:other"])
def test_an_event_that_others_emit_breaks_nothing(data: dict[str, Any], name: str, tmp_path: Path) -> None:
    trigger = IssueTrigger()
    trigger.bind(TriggerContext("tests/issues#0", working_dir=tmp_path))
    for config in ({}, {"labels": ["ui"], "events": ["updated", "ready"]}, {"except_labels": ["ui"], "types": ["bug"]}):
        trigger.configure(config)
        event = trigger.read(SessionEvent(name, data, depth=3))
        assert event is None or event.depth >= 1


def test_a_fired_event_is_judged_for_a_person(here: Project) -> None:
    trigger = here.trigger(types=["bug"])

    def judged(kind: TriggerType = TriggerType.ISSUE_EVENT, name: str = "issue:created", **data: Any) -> str | None:
        facts = {"status": "open", "type": "bug", **data}
        return trigger.matches(TriggerEvent(kind, "test", data=facts, event_name=name))

    assert judged() is None
    assert judged(TriggerType.WEBHOOK) == "it fires on events of issues, and this is a webhook event"
    assert judged(type="task") == "the issue is of the type task"
    assert judged(name="issue:closed", status="closed") == "its events are ready, and this is issue:closed"
    assert judged(name="") == "its events are ready, and this is without a name"


@pytest.mark.parametrize(
    ("config", "key", "message"),
    [
        ({"events": []}, "events", "at least 1 item"),
        ({"events": ["begun"]}, "events", "'ready', 'created', 'updated', 'unblocked' or 'closed'"),
        ({"types": []}, "types", "at least 1 item"),
        ({"types": [""]}, "types", "at least 1 character"),
        ({"status": ["blocked"]}, "status", "'open', 'in_progress', 'escalated' or 'closed'"),
        ({"labels": [1]}, "labels", "string"),
        ({"label": ["a"]}, "label", "did you mean 'labels'?"),
        ({"if": "data.priority ="}, "if", "column 15"),
        ({"condition": "true"}, "condition", "unknown key"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(config: dict[str, Any], key: str, message: str) -> None:
    with pytest.raises(TriggerConfigError, match=r"^trigger-issue: ") as caught:
        IssueTrigger().configure(config)
    assert (caught.value.key, message in str(caught.value)) == (key, True), str(caught.value)


def test_the_schema_lists_every_key() -> None:
    keys = {"events", "types", "except_types", "status", "labels", "except_labels", "if"}
    assert set(IssueTrigger.config_schema()["properties"]) == keys
