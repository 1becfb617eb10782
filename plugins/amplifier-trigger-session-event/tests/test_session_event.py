"""Test the session event trigger on a log of events in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import log_triggers
from amplifier_core.errors import StoreUnavailable, TriggerConfigError, TriggerError
from amplifier_core.events import SessionEvent
from amplifier_core.log_triggers import SAVE_AFTER
from amplifier_core.plugins import load_plugins
from amplifier_core.testing.memory_store import MemoryStore
from amplifier_core.testing.trigger_checks import check_trigger
from amplifier_core.triggers import TriggerContext, TriggerEvent, TriggerSource, TriggerType
from amplifier_foundation import EventRouter
from amplifier_trigger_session_event import SessionEventTrigger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence


class Log:
    """An event source as `EventSource` describes it, with numbered events."""

    def __init__(self) -> None:
        self.events: list[SessionEvent] = []
        self.followers = 0
        self._news = asyncio.Condition()

    async def emit(
        self, name: str, source: str | None = None, depth: int = 0, cause: str | None = None, **data: Any
    ) -> SessionEvent:
        event = SessionEvent(name, data, source, depth=depth, cause=cause, sequence=len(self.events) + 1)
        async with self._news:
            self.events.append(event)
            self._news.notify_all()
        return event

    async def position(self) -> int:
        return len(self.events)

    async def follow(
        self, names: Sequence[str], *, sources: Sequence[str] | None = None, since: int | None = None
    ) -> AsyncIterator[SessionEvent]:
        position = len(self.events) if since is None else since
        self.followers += 1
        try:
            while True:
                async with self._news:
                    while len(self.events) <= position:
                        await self._news.wait()
                event = self.events[position]
                position += 1
                if _matches(names, event.name) and (sources is None or event.source_session_id in sources):
                    yield event
        finally:
            self.followers -= 1


def _matches(names: Sequence[str], name: str) -> bool:
    return any(name.startswith(known[:-1]) if known.endswith("*") else name == known for known in names)


def bound(
    log: Log | None, state: Mapping[str, Any] | None = None, name: str = "tests/lane/events#1", **config: Any
) -> SessionEventTrigger:
    trigger = SessionEventTrigger()
    trigger.bind(TriggerContext(name, events=log, state=state or {}))
    trigger.configure(config)
    return trigger


@asynccontextmanager
async def running(trigger: SessionEventTrigger) -> AsyncIterator[asyncio.Queue[TriggerEvent]]:
    """Consume the trigger into a queue while the block runs."""
    events: asyncio.Queue[TriggerEvent] = asyncio.Queue()

    async def consume() -> None:
        async for event in trigger.watch():
            events.put_nowait(event)

    task = asyncio.create_task(consume())
    await trigger.ready()
    yield events
    await trigger.stop()
    await asyncio.wait_for(task, 60)


async def names(events: asyncio.Queue[TriggerEvent], count: int) -> list[str | None]:
    return [(await asyncio.wait_for(events.get(), 60)).event_name for _ in range(count)]


async def test_the_contract_of_a_trigger() -> None:
    log = Log()
    events = await check_trigger(
        SessionEventTrigger,
        {"event_names": ["work:*"]},
        provoke=lambda: log.emit("work:done", result="ok"),
        context=TriggerContext("tests/events#0", events=log),
    )
    assert [event.state for event in events] == [{"sequence": 1}, {"sequence": 2}]


def test_the_plugin_registers_the_trigger() -> None:
    plugins = load_plugins(environ={"AMPLIFIER_LOAD_PLUGINS": "trigger-session-event"})
    assert plugins.triggers.get("trigger-session-event") is SessionEventTrigger
    assert isinstance(SessionEventTrigger(), TriggerSource)


async def test_an_event_fires_with_what_is_known_of_it() -> None:
    log = Log()
    async with running(bound(log, event_names=["work:done"])) as events:
        cause = await log.emit("work:done", "s-1", depth=2, result="ok")
        event = await asyncio.wait_for(events.get(), 60)
    assert (event.type, event.source) == (TriggerType.SESSION_EVENT, "trigger-session-event")
    assert (event.event_name, event.source_session_id, event.data) == ("work:done", "s-1", {"result": "ok"})
    assert (event.cause, event.depth, event.dedupe_key) == (cause.event_id, 3, cause.event_id)
    assert event.state == {"sequence": 1}


async def test_only_the_names_and_sessions_that_were_asked_for_fire() -> None:
    log = Log()
    trigger = bound(log, event_names=["work:*", "issue:opened"], source_sessions=["s-1"])
    async with running(trigger) as events:
        await log.emit("work:done", "s-1")
        await log.emit("work:done", "s-2")
        await log.emit("issue:closed", "s-1")
        await log.emit("workshop", "s-1")
        await log.emit("issue:opened", "s-1")
        assert await names(events, 2) == ["work:done", "issue:opened"]
        assert events.empty()


async def test_the_very_first_start_begins_with_what_happens_from_then_on() -> None:
    log = Log()
    await log.emit("before")
    async with running(bound(log, event_names=["*"])) as events:
        await log.emit("after")
        assert await names(events, 1) == ["after"]


async def test_where_it_began_is_saved_before_anything_happened() -> None:
    log, saved = Log(), list[Mapping[str, Any]]()
    await log.emit("before")

    async def save(state: Mapping[str, Any]) -> None:
        saved.append(state)

    trigger = SessionEventTrigger()
    trigger.bind(TriggerContext("tests/events#0", events=log, saver=save))
    trigger.configure({"event_names": ["*"]})
    async with running(trigger):
        assert saved == [{"sequence": 1}]
    await log.emit("while it was killed")
    async with running(bound(log, saved[0], event_names=["*"])) as events:
        assert await names(events, 1) == ["while it was killed"]


async def test_a_restart_goes_on_after_the_last_event() -> None:
    log = Log()
    for name in ("seen", "meanwhile", "meanwhile too"):
        await log.emit(name)
    async with running(bound(log, {"sequence": 1}, event_names=["*"])) as events:
        await log.emit("now")
        assert await names(events, 3) == ["meanwhile", "meanwhile too", "now"]


async def test_an_event_that_no_store_numbered_carries_no_state() -> None:
    log = Log()
    log.events.append(SessionEvent("loose", {}))
    async with running(bound(log, {"sequence": 0}, event_names=["*"])) as events:
        assert (await asyncio.wait_for(events.get(), 60)).state is None


async def test_stop_ends_the_wait_and_closes_the_stream() -> None:
    log = Log()
    async with running(bound(log, event_names=["*"])) as events:
        await log.emit("one")
        assert await names(events, 1) == ["one"]
        assert log.followers == 1
    assert log.followers == 0


async def test_a_cancelled_consumer_closes_the_stream() -> None:
    log = Log()
    trigger = bound(log, event_names=["*"])
    task = asyncio.ensure_future(anext(trigger.watch()))
    await trigger.ready()
    task.cancel()
    await asyncio.wait((task,))
    assert task.cancelled()
    assert log.followers == 0


async def test_a_trigger_stopped_before_it_is_watched_yields_nothing() -> None:
    trigger = bound(Log(), event_names=["*"])
    await trigger.stop()
    assert [event async for event in trigger.watch()] == []


async def test_without_events_to_follow_watching_says_so() -> None:
    trigger = bound(None, event_names=["*"])
    with pytest.raises(TriggerError, match="no session events to follow here; run the bundle with: amplifier up"):
        await anext(trigger.watch())
    await asyncio.wait_for(trigger.ready(), 60)


async def test_a_router_without_a_store_is_enough() -> None:
    router, trigger = EventRouter(), SessionEventTrigger()
    trigger.configure({"event_names": ["work:*"], "source_sessions": ["s-1"]})
    trigger.set_event_router(router)
    await router.emit("work:before", {}, "s-1")
    async with running(trigger) as events:
        await router.emit("other", {}, "s-1")
        await router.emit("work:done", {"n": 1}, "s-2")
        await router.emit("work:done", {"n": 2}, "s-1")
        event = await asyncio.wait_for(events.get(), 60)
        assert (event.event_name, event.data, event.source_session_id) == ("work:done", {"n": 2}, "s-1")
        assert router.subscriber_count == 1
    assert (events.empty(), router.subscriber_count) == (True, 0)


async def test_a_router_without_a_store_is_followed_from_now_on_and_again_after_a_restart_of_the_trigger() -> None:
    router, config = EventRouter(), {"event_names": ["work:*"]}
    await router.emit("work:before", {})
    trigger = SessionEventTrigger()
    trigger.bind(TriggerContext("tests/events#0", events=router))
    trigger.configure(config)
    async with running(trigger) as events:
        await router.emit("work:done", {}, "s-1")
        event = await asyncio.wait_for(events.get(), 60)
    assert (event.event_name, event.state) == ("work:done", {"sequence": 2})
    await router.emit("work:meanwhile", {})
    again = SessionEventTrigger()
    again.bind(TriggerContext("tests/events#0", events=router, state=event.state or {}))
    again.configure(config)
    async with running(again) as events:
        assert await names(events, 1) == ["work:meanwhile"]
    assert router.subscriber_count == 0


class Broken(Log):
    """A log with a fault while somebody reads it."""

    async def follow(
        self, names: Sequence[str], *, sources: Sequence[str] | None = None, since: int | None = None
    ) -> AsyncIterator[SessionEvent]:
        for event in self.events:
            yield event
        raise OSError("the log is gone")


async def test_a_fault_of_the_log_ends_the_watch() -> None:
    with pytest.raises(OSError, match="the log is gone"):
        await anext(bound(Broken(), event_names=["*"]).watch())


@pytest.mark.parametrize(
    ("config", "key", "message"),
    [
        ({}, "event_names", "required"),
        ({"event_names": []}, "event_names", "at least 1 item"),
        ({"event_names": "work:*"}, "event_names", "a list"),
        ({"event_names": [""]}, "event_names", "at least 1 character"),
        ({"event_names": ["w*k"]}, "event_names", "'w*k': a * may only be the last character"),
        ({"event_names": ["*"], "source_sessions": []}, "source_sessions", "at least 1 item"),
        ({"event_name": ["*"]}, "event_name", "did you mean 'event_names'?"),
        ({"event_names": ["*"], "zzz": 1}, "zzz", "known are event_names, source_sessions, from, if, self_trigger"),
        ({"event_names": ["*"], "if": "name = 'a'"}, "if", "column 6: unexpected '='; equal is =="),
        ({"event_names": ["*"], "if": ""}, "if", "column 1: expected a value, not the end"),
        ({"event_names": ["*"], "if": True}, "if", "text"),
        ({"event_names": ["*"], "condition": "true"}, "condition", "unknown key"),
        ({"event_names": ["*"], "self_trigger": "yes"}, "self_trigger", "true or false"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(config: dict[str, Any], key: str, message: str) -> None:
    with pytest.raises(TriggerConfigError, match=r"^trigger-session-event: ") as caught:
        SessionEventTrigger().configure(config)
    assert (caught.value.key, message in str(caught.value)) == (key, True), str(caught.value)


def test_the_schema_lists_every_key() -> None:
    schema = SessionEventTrigger.config_schema()
    assert set(schema["properties"]) == {"event_names", "source_sessions", "from", "if", "self_trigger"}


async def test_an_if_keeps_the_events_that_it_is_true_of() -> None:
    log = Log()
    text = "data.exit_code != 0 and name in ['build:done', 'test:done'] and source_session_id == 's-1'"
    async with running(bound(log, event_names=["*"], **{"if": text})) as events:
        await log.emit("build:done", "s-1", exit_code=0)
        await log.emit("build:done", "s-2", exit_code=1)
        await log.emit("other", "s-1", exit_code=1)
        await log.emit("test:done", "s-1", exit_code=2)
        event = await asyncio.wait_for(events.get(), 60)
        assert (event.event_name, event.data, event.state) == ("test:done", {"exit_code": 2}, {"sequence": 4})
        assert events.empty()


def test_session_event_configure() -> None:
    trigger = bound(None, event_names=["work:done"], source_sessions=["s-1"])
    assert (trigger._config.event_names, trigger._config.source_sessions) == (["work:done"], ["s-1"])


async def test_session_event_requires_router() -> None:
    with pytest.raises(RuntimeError, match="no session events to follow"):
        await anext(bound(None, event_names=["*"]).watch())


async def test_session_event_receives_events() -> None:
    log = Log()
    async with running(bound(log, event_names=["test:event"])) as events:
        await log.emit("test:event", "s-1", n=1)
        event = await asyncio.wait_for(events.get(), 60)
    assert (event.type, event.data, event.source_session_id) == (TriggerType.SESSION_EVENT, {"n": 1}, "s-1")


async def test_session_event_filters_by_name() -> None:
    log = Log()
    async with running(bound(log, event_names=["wanted"])) as events:
        await log.emit("other")
        await log.emit("wanted")
        assert await names(events, 1) == ["wanted"]


async def test_session_event_stop() -> None:
    trigger = bound(Log(), event_names=["*"])
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(anext(trigger.watch(), None))
        await trigger.ready()
        await trigger.stop()
    assert waiting.result() is None


class Saving:
    """A trigger's saved states, and a log in a real store with a router."""

    def __init__(self) -> None:
        self.states: list[Mapping[str, Any]] = []
        self.router = EventRouter(MemoryStore())

    async def save(self, state: Mapping[str, Any], *, merge: bool = False) -> None:
        self.states.append({**self.states[-1], **state} if merge else state)

    def trigger(self, **config: Any) -> SessionEventTrigger:
        state = self.states[-1] if self.states else {}
        trigger = SessionEventTrigger()
        trigger.bind(TriggerContext("tests/lane/events#1", events=self.router, state=state, saver=self.save))
        trigger.configure(config)
        return trigger

    async def emit(self, name: str, count: int) -> None:
        for number in range(count):
            await self.router.emit(name, {"n": number})

    async def until_passed(self, sequence: int) -> None:
        [reader] = self.router.subscriptions
        while getattr(reader, "passed", None) != sequence:
            await asyncio.sleep(0.001)

    async def until_saved(self, sequence: int) -> None:
        while self.states[-1] != {"sequence": sequence}:
            await asyncio.sleep(0.001)


async def test_a_stop_saves_the_place_in_a_log_of_events_that_nobody_asked_for() -> None:
    saving = Saving()
    async with running(saving.trigger(event_names=["work:done"])):
        await saving.emit("other", SAVE_AFTER)
        await asyncio.wait_for(saving.until_passed(SAVE_AFTER), 60)
        assert saving.states == [{"sequence": 0}]
    assert saving.states == [{"sequence": 0}, {"sequence": SAVE_AFTER}]
    async with running(saving.trigger(event_names=["work:done"])) as events:
        await saving.emit("work:done", 1)
        assert await names(events, 1) == ["work:done"]
        assert events.empty()


async def test_a_trigger_that_waits_for_long_saves_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_triggers, "LOOK_EVERY", 0.001)
    saving = Saving()
    async with running(saving.trigger(event_names=["work:done"])):
        await saving.emit("other", SAVE_AFTER)
        await asyncio.wait_for(saving.until_saved(SAVE_AFTER), 60)
        await saving.emit("other", SAVE_AFTER - 1)
        await asyncio.wait_for(saving.until_passed(2 * SAVE_AFTER - 1), 60)
    assert saving.states[-1] == {"sequence": SAVE_AFTER}, "a page is read again rather than written about"


async def test_events_that_do_not_hold_save_the_place_on_the_way() -> None:
    saving = Saving()
    async with running(saving.trigger(event_names=["work:done"], **{"if": "data.n > 5000"})):
        await saving.emit("work:done", SAVE_AFTER)
        await asyncio.wait_for(saving.until_saved(SAVE_AFTER), 60)


async def test_a_store_that_is_full_ends_no_trigger() -> None:
    saving = Saving()

    async def refuse(state: Mapping[str, Any], *, merge: bool = False) -> None:
        if merge:
            raise StoreUnavailable("store.db", "is full")

    saving.save = refuse  # type: ignore[method-assign]
    async with running(saving.trigger(event_names=["work:done"])) as events:
        await saving.emit("other", SAVE_AFTER)
        await saving.emit("work:done", 1)
        assert await names(events, 1) == ["work:done"]
        await saving.emit("other", SAVE_AFTER)
        await asyncio.wait_for(saving.until_passed(2 * SAVE_AFTER + 1), 60)
