"""Carry events between stores in one process, by a transport whose broker is a folder."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.clock import SystemClock
from amplifier_core.events import SessionEvent
from amplifier_core.storage import SessionRecord
from amplifier_core.testing import MemoryStore, VirtualClock
from amplifier_core.triggers import TriggerEvent, TriggerType
from amplifier_foundation.background import tasks
from amplifier_foundation.events import EventRouter
from amplifier_foundation.events.names import OVERFLOW
from amplifier_foundation.hookspecs import Message
from amplifier_foundation.paths import data_home
from amplifier_foundation.sessions.untrusted import find_reason
from amplifier_foundation.transports import LOST, SET_ASIDE, Route
from amplifier_foundation.transports import carrying as carrying_module
from amplifier_foundation.transports.carrying import LONGEST_PAUSE, STEADY, Carrier, hold_route
from amplifier_foundation.transports.checks import check_transport
from amplifier_foundation.transports.wire import UnreadableMessage, decode, encode
from tests.folder_transport import FolderTransport
from tests.odd_errors import PanicException, Unreadable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

NOW = datetime(2026, 3, 4, tzinfo=UTC)


@pytest.fixture
def broker(tmp_path: Path, home: Path) -> Path:
    folder = tmp_path / "broker"
    folder.mkdir()
    return folder


class Member:
    """A store with its router and its carrier; `problems` are the reports."""

    def __init__(self, site: str, broker: Path, store: MemoryStore | None = None, **lists: Any) -> None:
        self.store = store or MemoryStore()
        self.router = EventRouter(self.store)
        self.problems: list[str] = []
        route = Route(f"transport-{site}", site, {"folder": str(broker)}, **{"publish": ["work:*"], **lists})
        self.carrier = Carrier(
            route,
            FolderTransport,
            self.store,
            self.router,
            SystemClock(),
            lambda _, problem: self.problems.append(problem),
        )

    async def until(self, count: int, prefix: str = "work:") -> list[SessionEvent]:
        """Return the events of the log when there are so many."""
        async with asyncio.timeout(120):
            while len(found := [each for each in await self.store.events() if each.name.startswith(prefix)]) < count:
                await asyncio.sleep(0.002)
        return found

    async def until_connected(self) -> None:
        async with asyncio.timeout(120):
            while "" not in self.problems[-1:]:
                await asyncio.sleep(0.002)


@asynccontextmanager
async def carrying(*members: Member) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each.carrier.run()) for each in members]
        for each in members:
            await each.until_connected()
        yield
        for task in tasks:
            task.cancel()


async def test_the_transport_of_the_tests_keeps_the_contract(broker: Path) -> None:
    await check_transport(lambda: FolderTransport({"folder": broker}))


async def test_events_go_from_log_to_log_with_their_chain_and_not_back(broker: Path) -> None:
    berlin = Member("berlin", broker, subscribe=["*"])
    oslo = Member("oslo", broker, subscribe=["work:*"])
    await berlin.store.emit(SessionEvent("work:before", {}))  # the first start begins at the end of the log
    async with carrying(berlin, oslo):
        sent = await berlin.router.emit(
            "work:a", {"n": [1, "ü", None]}, "s-1", cause="c", depth=4, project="/home/me/app"
        )
        await berlin.router.emit("private:b", {})
        await berlin.router.emit("work:c", {})
        received, last = await oslo.until(2)
        expected = replace(sent, project="site:berlin", source_session_id="berlin.s-1", sequence=received.sequence)
        assert (received, last.name) == (expected, "work:c")
        await oslo.router.emit("work:d", {})
        names = [each.name for each in await berlin.until(4)]
        assert names == ["work:before", "work:a", "work:c", "work:d"]
    assert [each.name for each in await oslo.store.events()] == ["work:a", "work:c", "work:d"]
    assert "/home/me" not in (broker / "log").read_text(), "folders stay at home"


@pytest.mark.parametrize("is_alone", [True, False])
async def test_an_event_before_the_first_connection_is_published(broker: Path, is_alone: bool) -> None:
    berlin, oslo = Member("berlin", broker), Member("oslo", broker, subscribe=["work:*"])
    await berlin.store.emit(SessionEvent("work:before", {}))
    await berlin.carrier.begin(is_alone=is_alone)
    await berlin.router.emit("work:early", {})
    if is_alone:  # the process is killed before it is connected
        berlin = Member("berlin", broker, berlin.store)
        await berlin.carrier.begin(is_alone=is_alone)
    async with carrying(berlin, oslo):
        await berlin.router.emit("work:late", {})
        assert [each.name for each in await oslo.until(2)] == ["work:early", "work:late"]


async def test_a_received_event_reaches_the_followers_of_the_log(broker: Path) -> None:
    berlin, oslo = Member("berlin", broker), Member("oslo", broker, subscribe=["work:*"])
    async with carrying(berlin, oslo), asyncio.timeout(120):
        waiting = asyncio.ensure_future(oslo.router.wait_for_event(["work:*"]))
        await asyncio.sleep(0)
        await berlin.router.emit("work:a", {})
        found = await waiting
        assert found is not None
        assert found.project == "site:berlin"


async def test_what_is_in_the_log_waits_for_the_broker_and_the_state_says_how_much(
    broker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrying_module, "STEADY", 0.01)
    berlin, oslo = Member("berlin", broker), Member("oslo", broker, subscribe=["work:*"])
    async with carrying(berlin, oslo):
        away = broker.rename(broker.with_name("away"))
        async with asyncio.timeout(120):
            while not berlin.problems[-1]:
                await asyncio.sleep(0.002)
        for number in range(3):
            await berlin.router.emit(f"work:{number}", {})
        async with asyncio.timeout(120):
            while "3 events of the log wait" not in berlin.problems[-1]:
                await asyncio.sleep(0.002)
        away.rename(broker)
        assert [each.name for each in await oslo.until(3)] == ["work:0", "work:1", "work:2"]
        await berlin.until_connected()


async def test_the_last_events_of_a_process_go_out_when_it_ends(broker: Path) -> None:
    berlin = Member("berlin", broker)
    async with carrying(berlin):
        await berlin.store.emit(SessionEvent("work:last", {}))  # nobody wakes the outbox
    assert "work:last" in (broker / "log").read_text()


async def test_events_that_retention_removed_unsent_are_counted(broker: Path, caplog: pytest.LogCaptureFixture) -> None:
    berlin = Member("berlin", broker)
    async with carrying(berlin):
        await berlin.router.emit("work:0", {})
        while "work:0" not in (broker / "log").read_text():
            await asyncio.sleep(0.002)
    now = datetime.now(UTC)
    for number in range(1, 6):
        await berlin.store.emit(SessionEvent(f"work:{number}", {}, timestamp=now + timedelta(days=number)))
    await berlin.store.purge(before=now + timedelta(days=4, hours=1))
    again = Member("berlin", broker, berlin.store)
    async with carrying(again):
        [lost] = await again.until(1, LOST)
    count = 4
    assert lost.data == {"transport": "transport-berlin", "count": count}
    assert f"retention has removed up to {count} events" in caplog.text
    assert [name in (broker / "log").read_text() for name in ("work:4", "work:5")] == [False, True]


async def test_events_removed_before_the_first_connection_are_counted(broker: Path) -> None:
    berlin, now = Member("berlin", broker), datetime.now(UTC)
    await berlin.carrier.begin(is_alone=True)
    for number in range(1, 6):
        await berlin.store.emit(SessionEvent(f"work:{number}", {}, timestamp=now + timedelta(days=number)))
    await berlin.store.purge(before=now + timedelta(days=4, hours=1))
    async with carrying(berlin):
        [lost] = await berlin.until(1, LOST)
    assert lost.data["count"] == 4


GOOD: dict[str, Any] = {
    "name": "work:a",
    "data": {"n": 1},
    "source_session_id": "s-1",
    "timestamp": "2026-03-03T00:00:00+00:00",
    "event_id": "e1",
    "cause": None,
    "depth": 0,
}
HOSTILE: list[tuple[bytes, str]] = [
    (b"{not json", "it is not JSON"),
    (b"\xff\xfe", "it is not JSON"),
    (b"[" * 100_000, "it is not JSON"),
    (b"NaN", "it is not JSON"),
    (b"[1]", "it is not a JSON object"),
    (json.dumps({"version": 2, "event": GOOD}).encode(), "its version is 2, not 1"),
    (json.dumps({"version": 1}).encode(), "it has no event"),
    (b'{"version": ' + b"[" * 900 + b"]" * 900 + b"}", "it has more than 100 levels"),
    *(
        (json.dumps({"version": 1, "store": "x", "event": {**GOOD, key: value}}).encode(), reason)
        for key, value, reason in [
            ("name", "approval:granted", "its event is not 'work:a'"),
            ("data", [1], "the data of its event is not a JSON object"),
            ("event_id", "../../x", "its event_id is no id"),
            ("event_id", None, "its event_id is no id"),
            ("cause", "a b", "its cause is no id"),
            ("source_session_id", "a\nb", "its source_session_id is no id"),
            ("depth", -1, "its depth is no number from 0"),
            ("depth", True, "its depth is no number from 0"),
            ("depth", 10**9, "its depth is no number from 0"),
            ("timestamp", "yesterday", "its timestamp is no time"),
            ("timestamp", "2026-03-03T00:00:00", "its timestamp has no time zone"),
            ("timestamp", "0001-01-01T00:00:00+23:00", "its timestamp is no time"),
        ]
    ),
]


@pytest.mark.parametrize(("body", "reason"), HOSTILE, ids=range(len(HOSTILE)))
def test_a_message_that_is_no_event_is_refused_with_the_reason(body: bytes, reason: str) -> None:
    with pytest.raises(UnreadableMessage, match=reason.replace("'", ".")):
        decode(Message("x.1", "x", "work:a", body), NOW)


@pytest.mark.parametrize("site", ["", "Berlin", "a b", "a\nb", "\u202e", "x" * 64])
def test_a_site_has_the_name_of_one(site: str) -> None:
    with pytest.raises(UnreadableMessage, match="its site has no name of one"):
        decode(Message("x.1", site, "work:a", encode(SessionEvent("work:a", {}), "store")), NOW)


def test_an_event_of_the_future_happens_now() -> None:
    event = SessionEvent("work:a", {}, timestamp=NOW + timedelta(days=999))
    assert decode(Message("x.1", "x", "work:a", encode(event, "store")), NOW).event.timestamp == NOW


async def test_an_unreadable_message_is_set_aside_with_its_reason_and_comes_no_more(
    broker: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stranger = FolderTransport({"folder": broker})
    await stranger.open("x", ())
    body = b'{"version": 7, "token": "ghp_0123456789abcdefghijABCDEFGHIJ012345"}'
    good = json.dumps({"version": 1, "store": "x", "event": GOOD}).encode()
    steers = Message("x.2", "x\x1b[2J\n", "work:a", good)
    await stranger.publish([Message("x.bad", "x", "work:a", body), steers, Message("x.e1", "x", "work:a", good)])
    oslo = Member("oslo", broker, subscribe=["work:*"])
    async with carrying(oslo):
        await oslo.until(1)
        told, steered = await oslo.until(2, SET_ASIDE)
        assert steered.data["site"] == "x\\x1b[2J\\n"
        assert "\x1b" not in caplog.text
        facts = {key: told.data[key] for key in ("message", "site", "reason")}
        assert facts == {"message": "x.bad", "site": "x", "reason": "its version is 7, not 1"}
        assert "ghp_" not in told.data["body"]
    again = Member("oslo", broker, subscribe=["work:*"])
    async with carrying(again):
        await stranger.publish([Message("x.e2", "x", "work:a", good.replace(b"e1", b"e2"))])
        await again.until(1)
    assert [event.event_id for event in await again.store.events()] == ["e2"]


async def test_what_no_site_sends_of_its_transports_and_its_router_is_set_aside(broker: Path) -> None:
    stranger, names = FolderTransport({"folder": broker}), [LOST, SET_ASIDE, OVERFLOW, "router:slow", "work:a"]
    await stranger.open("x", ())
    for name in names:
        event = {**GOOD, "name": name, "event_id": name.replace(":", "-")}
        body = json.dumps({"version": 1, "store": "x", "event": event}).encode()
        await stranger.publish([Message(f"x.{name}", "x", name, body)])
    oslo = Member("oslo", broker, subscribe=["*"])
    async with carrying(oslo):
        await oslo.until(1)
    assert [(each.name, each.data.get("message")) for each in await oslo.store.events()] == [
        *((SET_ASIDE, f"x.{name}") for name in names[:-1]),
        ("work:a", None),
    ]


async def test_what_the_broker_refuses_is_set_aside_and_the_rest_goes_on(broker: Path) -> None:
    class Small(FolderTransport):
        async def publish(self, messages: Sequence[Message]) -> Mapping[str, str]:
            fits = [each for each in messages if len(each.body) < 1_000]
            await super().publish(fits)
            return {each.id: "it is too large" for each in messages if each not in fits}

    berlin = Member("berlin", broker)
    berlin.carrier._factory = Small
    async with carrying(berlin):
        await berlin.store.emit(SessionEvent("work:large", {"text": "x" * 2_000}, event_id="large"))
        await berlin.router.emit("work:small", {})
        [told] = await berlin.until(1, SET_ASIDE)
        assert told.data["reason"] == "the broker refuses it: it is too large"
        while "work:small" not in (broker / "log").read_text():
            await asyncio.sleep(0.002)
    assert "work:large" not in (broker / "log").read_text()


def break_at_receive(transport: Any) -> Any:
    raise RuntimeError("no rights")


async def break_at_publish(*_: Any) -> None:
    raise RuntimeError("no rights")


async def leave(*_: Any) -> None:
    raise SystemExit(3)


async def end_itself(*_: Any) -> None:
    raise asyncio.CancelledError


async def answer_with_a_list(*_: Any) -> list[str]:
    return ["taken"]


async def panic(*_: Any) -> None:
    raise PanicException("in Rust")


async def say_nothing(*_: Any) -> None:
    raise Unreadable


async def yield_a_message(*_: Any) -> AsyncIterator[str]:
    yield "message"


async def yield_a_number(*_: Any) -> AsyncIterator[int]:
    yield 5


@pytest.mark.parametrize(
    ("method", "broken", "told"),
    [
        ("receive", break_at_receive, "no rights"),
        ("receive", yield_a_message, "receive must yield pairs (message, acknowledge), not str"),
        ("receive", yield_a_number, "receive must yield pairs (message, acknowledge), not int"),
        ("publish", break_at_publish, "no rights"),
        ("publish", end_itself, "it raised CancelledError, and nobody has cancelled its work"),
        ("publish", leave, "it called exit(3), which a module may not do"),
        ("publish", answer_with_a_list, "publish must return a mapping of ids to reasons, not list"),
        ("open", leave, "it called exit(3), which a module may not do"),
        ("open", panic, "it raised PanicException: in Rust"),
        ("publish", panic, "it raised PanicException: in Rust"),
        ("open", say_nothing, "Unreadable: its text cannot be read"),
        ("publish", say_nothing, "Unreadable: its text cannot be read"),
    ],
)
async def test_a_broker_that_takes_connections_and_ends_each_is_tried_less_and_less_and_told_once(
    broker: Path, caplog: pytest.LogCaptureFixture, method: str, broken: Any, told: str
) -> None:
    berlin, clock = Member("berlin", broker, subscribe=["*"]), VirtualClock()
    berlin.carrier._clock = clock
    opened: list[float] = []

    class Broken(FolderTransport):
        async def open(self, site: str, names: Sequence[str]) -> None:
            opened.append(clock.monotonic())
            await super().open(site, names)

    async def open_and_break(self: Any, *given: Any) -> None:
        opened.append(clock.monotonic())
        await broken()

    setattr(Broken, method, open_and_break if method == "open" else broken)
    berlin.carrier._factory = Broken
    await berlin.store.save_trigger_state("", "transport:transport-berlin", {"sequence": 0, "store": "x"})
    await berlin.store.emit(SessionEvent("work:a", {}))
    task = asyncio.ensure_future(berlin.carrier.run())
    while len(opened) < 12:
        if len([each for each in berlin.problems if each]) == len(opened) and clock.sleeping:  # it pauses
            await clock.advance(0.25)
        await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert opened[-1] - opened[-2] >= LONGEST_PAUSE / 2
    problems = [each for each in berlin.problems if each]
    assert len(problems) >= 11 and "" not in berlin.problems[1:]
    assert {told in each for each in problems} == {True}
    assert len(caplog.messages) == 1 and told in caplog.messages[0]


async def test_a_connection_that_lasts_ends_the_problem_before_it(broker: Path) -> None:
    berlin, clock = Member("berlin", broker), VirtualClock()
    berlin.carrier._clock = clock
    away = broker.rename(broker.with_name("away"))
    task = asyncio.ensure_future(berlin.carrier.run())
    for _ in range(20):
        await clock.until_sleeping()
        await clock.advance(LONGEST_PAUSE)
    away.rename(broker)
    while "" not in berlin.problems:
        await asyncio.sleep(0.001)
        await clock.advance(LONGEST_PAUSE if clock.sleeping else 0)
    broker.rename(away)
    failures = len(berlin.problems)
    while len(berlin.problems) == failures:
        await asyncio.sleep(0.001)
    away.rename(broker)
    waited = clock.monotonic() + LONGEST_PAUSE / 2
    while berlin.problems[-1] != "":
        await asyncio.sleep(0.001)
        await clock.advance(0.1 if clock.sleeping else 0)
        assert clock.monotonic() < waited  # the pauses have begun anew
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("lasts", [2 * STEADY, 20.0, 0.0])
async def test_the_pauses_begin_anew_after_each_connection_that_has_worked(broker: Path, lasts: float) -> None:
    """A proxy ends each after `lasts` seconds; with 0, after one message."""
    berlin, clock = Member("berlin", broker, subscribe=["work:*"]), VirtualClock()
    berlin.carrier._clock = clock
    away, opened, ended = 10, list[float](), list[float]()

    class Ended(FolderTransport):
        async def open(self, site: str, names: Sequence[str]) -> None:
            opened.append(clock.monotonic())
            if len(opened) <= away:
                raise ConnectionError("away")
            await super().open(site, names)

        async def receive(self) -> AsyncIterator[tuple[Message, Any]]:
            if lasts:
                await clock.sleep(lasts)
            else:
                event = SessionEvent(f"work:{len(opened)}", {}, event_id=str(len(opened)))
                body = encode(event, "other")
                yield Message(f"oslo.{event.event_id}", "oslo", event.name, body), self._acknowledging(0)
            ended.append(clock.monotonic())
            raise ConnectionError("the proxy ends it")

    berlin.carrier._factory = Ended
    task = asyncio.ensure_future(berlin.carrier.run())
    async with asyncio.timeout(120):
        while len(ended) < 4 or len(opened) < away + 5:
            await asyncio.sleep(0.001)
            await clock.advance(0.25 if clock.sleeping else 0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    pauses = [begin - end for end, begin in zip(ended, opened[away + 1 :], strict=False)]
    assert max(pauses) <= 1.0


async def test_a_transport_that_awaits_what_it_has_cancelled_at_its_end_is_opened_again(broker: Path) -> None:
    berlin, clock, opened = Member("berlin", broker, subscribe=["work:*"]), VirtualClock(), 0
    berlin.carrier._clock = clock

    class Pinging(FolderTransport):
        async def open(self, site: str, names: Sequence[str]) -> None:
            nonlocal opened
            opened += 1
            await super().open(site, names)
            self._pinging = asyncio.ensure_future(asyncio.Event().wait())

        async def receive(self) -> AsyncIterator[tuple[Message, Any]]:
            raise ConnectionError("the broker has gone")
            yield

        async def close(self) -> None:
            self._pinging.cancel()
            await self._pinging

    berlin.carrier._factory = Pinging
    task = asyncio.ensure_future(berlin.carrier.run())
    async with asyncio.timeout(60):
        while opened < 3:
            assert not task.done()
            await asyncio.sleep(0.001)
            await clock.advance(0.25 if clock.sleeping else 0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert any("the broker has gone" in each for each in berlin.problems)


async def test_a_problem_of_the_connection_outlives_one_of_its_process(broker: Path) -> None:
    berlin, clock, problems = Member("berlin", broker), VirtualClock(), dict[str, str]()
    carrier = Carrier(
        berlin.carrier._route, FolderTransport, berlin.store, berlin.router, SystemClock(), problems.__setitem__
    )
    lock = data_home() / "locks" / "transport-transport-berlin.lock"
    lock.mkdir(parents=True)
    broker.rename(broker.with_name("away"))

    async def until_told(text: str) -> None:
        while not any(text in each for each in problems.values()):
            await asyncio.sleep(0.001)

    beside = tasks.keep_beside(carrier.run, carrier.component, problems.__setitem__, clock)
    async with asyncio.timeout(60), beside:
        await until_told("IsADirectoryError")
        lock.rmdir()
        await clock.until_sleeping()
        await clock.advance(1.0)
        await until_told("broker is away")
        await clock.until_sleeping()
        await clock.advance(tasks.STEADY)
        assert [(problem == "", "broker is away" in problem) for problem in problems.values()] == [
            (True, False),
            (False, True),
        ]


async def test_a_receiver_may_yield_any_pair(broker: Path) -> None:
    class Listing(FolderTransport):
        async def receive(self) -> AsyncIterator[Any]:
            async for pair in super().receive():
                yield list(pair)

    berlin, oslo = Member("berlin", broker), Member("oslo", broker, subscribe=["work:*"])
    oslo.carrier._factory = Listing
    async with carrying(berlin, oslo):
        await berlin.router.emit("work:a", {})
        assert [each.name for each in await oslo.until(1)] == ["work:a"]


async def test_a_refusal_of_what_was_never_published_is_told(broker: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Odd(FolderTransport):
        async def publish(self, messages: Sequence[Message]) -> Mapping[str, str]:
            return {"unknown": "why"}

    berlin = Member("berlin", broker)
    berlin.carrier._factory = Odd
    async with carrying(berlin):
        await berlin.router.emit("work:a", {})
        while not caplog.messages:
            await asyncio.sleep(0.002)
    assert caplog.messages == ["transport-berlin: publish refuses 'unknown', which it was not given"]
    assert [each for each in await berlin.store.events() if each.name == SET_ASIDE] == []


async def test_two_stores_with_one_site_name_are_told_so(broker: Path) -> None:
    first, second = (Member("oslo", broker, subscribe=["*"]) for _ in range(2))
    second.carrier._route = replace(second.carrier._route, name="transport-second")
    async with carrying(first, second):
        await first.router.emit("work:a", {})
        async with asyncio.timeout(120):
            while not second.problems[-1]:
                await asyncio.sleep(0.002)
    assert second.problems[-1].startswith("another store publishes as site 'oslo'")
    assert first.problems == [""]


async def test_one_process_of_a_data_folder_carries_and_another_goes_on_when_it_ends(broker: Path) -> None:
    berlin = Member("berlin", broker)
    with hold_route("transport-berlin") as is_held:
        assert is_held
        async with asyncio.TaskGroup() as group:
            task = group.create_task(berlin.carrier.run())
            await asyncio.sleep(0.05)
            assert berlin.problems == []
            task.cancel()
    async with carrying(berlin):
        await berlin.router.emit("work:a", {})


async def test_a_store_that_receives_nothing_says_so(broker: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Deaf(MemoryStore):
        receive = None  # type: ignore[assignment]

    caplog.set_level(logging.CRITICAL)
    member = Member("oslo", broker, Deaf(), subscribe=["*"])
    async with asyncio.TaskGroup() as group:
        task = group.create_task(member.carrier.run())
        while not member.problems:
            await asyncio.sleep(0.002)
        task.cancel()


async def test_an_event_of_another_site_is_untrusted_whatever_it_says_about_itself() -> None:
    store = MemoryStore()
    await store.create(SessionRecord("own", project="/p"))
    for source in ("own", None):
        body = json.dumps({"version": 1, "store": "x", "event": {**GOOD, "source_session_id": source}}).encode()
        event = decode(Message("x.1", "x", "work:a", body), NOW).event
        woken = TriggerEvent(TriggerType.SESSION_EVENT, "t", source_session_id=event.source_session_id, cause="e1")
        assert await find_reason(store, woken, "/p") == "an event of another site woke it"
