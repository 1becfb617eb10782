"""Test what only several writers show, with real processes."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.documents import DocumentChange
from amplifier_core.errors import StaleEpoch, StoreUnavailable
from amplifier_core.events import SessionEvent
from amplifier_core.shared_stores import Bounds, Lease
from amplifier_core.storage import Admission, SessionRecord
from amplifier_core.triggers import TriggerEvent, TriggerType
from amplifier_storage_postgres import open_postgres

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from amplifier_core.storage import Delivery
    from amplifier_storage_postgres.store import PostgresStore

    from .conftest import Start

pytestmark = pytest.mark.slow

EVENTS = int(os.environ.get("EVENTS_OF_STORE", "300"))
"""Events of each writer."""


def _event(**fields: Any) -> TriggerEvent:
    return TriggerEvent(TriggerType.CUSTOM, "test", **fields)


async def _claim(store: PostgresStore, owner: str = "one@a", **given: Any) -> Delivery | None:
    return await store.claim("/p", "queue", **{"owner": owner, "lease": 60.0, "session_id": "worker", **given})


async def _claimed(store: PostgresStore, owner: str = "one@a", **given: Any) -> Delivery:
    claimed = await _claim(store, owner, **given)
    assert claimed is not None
    return claimed


async def _enqueue(store: PostgresStore, **given: Any) -> Delivery:
    delivery = await store.enqueue("/p", "queue", "trigger", _event(), **given)
    assert delivery is not None
    return delivery


WRITER = """
store = open_postgres({"dsn": sys.argv[1], "pool": 4})

async def write(number):
    for each in range(int(sys.argv[2])):
        await store.emit(SessionEvent("n", {}, event_id=f"{os.getpid()}-{number}-{each}"))

async def main():
    await asyncio.gather(*map(write, range(4)))
    await store.close()

asyncio.run(main())
say("written")
"""


async def test_a_reader_of_the_log_misses_no_event_of_several_writers(
    store: PostgresStore, dsn: str, start: Start
) -> None:
    """A sequence that is given out before the commit would let a reader pass events that are not visible yet."""
    writers = [start(WRITER, dsn, EVENTS // 4) for _ in range(2)]
    seen: list[str] = []
    since = 0
    while len(seen) < 8 * (EVENTS // 4):
        for event in await store.events(since=since, limit=20):
            seen.append(event.event_id)
            since = event.sequence or 0
        assert (
            any(writer.poll() is None for writer in writers)
            or since < await store.last_sequence()
            or (len(seen) == 8 * (EVENTS // 4))
        )
    assert len(set(seen)) == len(seen)
    assert [writer.communicate()[0] for writer in writers] == ["written\n"] * 2


WORKER = """
store = open_postgres({"dsn": sys.argv[1], "pool": 4})

async def work(number):
    while True:
        claimed = await store.claim("/p", "queue", owner=f"{os.getpid()}-{number}@h", lease=60, session_id="s")
        if claimed is None:
            open_ones = [each for each in await store.deliveries(limit=9999) if each.state in ("pending", "claimed")]
            if not open_ones:
                return
            continue
        n = claimed.event.data.get("n", 1)
        await store.emit(SessionEvent("begun", {"key": claimed.key, "n": n}))
        if n % 5 == 0 and claimed.attempts == 1:
            now = await store.now()
            await store.emit(SessionEvent("ended", {"key": claimed.key, "n": None}))
            await store.nack(claimed, reason="again", available_at=now)
        else:
            await store.commit(claimed, emits=[SessionEvent("ended", {"key": claimed.key, "n": n})])

async def main():
    await asyncio.gather(*map(work, range(3)))
    await store.close()

asyncio.run(main())
say("over")
"""

ENQUEUER = """
store = open_postgres({"dsn": sys.argv[1], "pool": 4})

async def main():
    for n in range(int(sys.argv[2])):
        await store.enqueue("/p", "queue", "trigger", event(data={"n": n}), admission=Admission(f"key{n % 3}"))
    await store.close()

asyncio.run(main())
say("enqueued")
"""


async def test_deliveries_of_one_key_are_one_at_a_time_and_none_is_stuck(
    store: PostgresStore, dsn: str, start: Start
) -> None:
    """Without the lock of the queue, two transactions line up deliveries that neither sees of the other."""
    many = max(12, EVENTS // 10)
    enqueuers = [start(ENQUEUER, dsn, many) for _ in range(2)]
    await _enqueue(store, admission=Admission("first"))  # so that workers do not end before the enqueuers begin
    workers = [start(WORKER, dsn) for _ in range(2)]
    assert [each.communicate(timeout=100)[0] for each in enqueuers] == ["enqueued\n"] * 2
    while left := [each for each in await store.deliveries(limit=9999) if each.state in ("pending", "claimed")]:
        if all(worker.poll() is not None for worker in workers):  # they ended before the last was enqueued
            workers.append(start(WORKER, dsn))
        assert left
        await asyncio.sleep(0.02)
    assert {worker.communicate(timeout=100)[0] for worker in workers} == {"over\n"}
    running: set[str] = set()
    done: dict[str, list[int]] = {}
    for event in await store.events(limit=100_000):
        key = event.data["key"]
        if event.name == "begun":
            assert key not in running, "two of one key at once"
            running.add(key)
        else:
            running.remove(key)
            done.setdefault(key, []).extend([] if event.data["n"] is None else [event.data["n"]])
    assert sum(map(len, done.values())) == 2 * many + 1


@pytest.fixture
async def slow(dsn: str) -> AsyncIterator[PostgresStore]:
    """A store whose writes are in one transaction that is still open."""
    store = open_postgres({"dsn": dsn, "pool": 1})
    store._runner.hints.tell = lambda **_: None  # type: ignore[method-assign]  # its only connection is busy
    await store._runner.rows("SELECT set_config('idle_in_transaction_session_timeout', '0', false)")
    [slot] = store._runner.pool._slots
    assert slot.connection is not None
    slot.connection.execute("BEGIN")
    yield store
    await store.close()


def _commit(slow: PostgresStore) -> None:
    [slot] = slow._runner.pool._slots
    assert slot.connection is not None
    slot.connection.execute("COMMIT")


async def _done_or_waiting(store: PostgresStore, task: asyncio.Task[Any]) -> None:
    """Return when the task is done, or waits for a lock in the database."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    while not task.done() and await store._runner.rows(waiting) == [(0,)]:
        await asyncio.sleep(0.01)


async def test_two_enqueues_at_once_of_one_key_line_up(store: PostgresStore, slow: PostgresStore) -> None:
    """Neither sees the delivery of the other: both would be claimed at once."""
    await _enqueue(slow, admission=Admission("key"))
    async with asyncio.TaskGroup() as tasks:
        second = tasks.create_task(_enqueue(store, admission=Admission("key")))
        await _done_or_waiting(store, second)
        _commit(slow)
    first = await _claimed(store)
    assert await _claim(store) is None
    await store.commit(first)
    assert (await _claimed(store)).delivery_id == second.result().delivery_id


async def test_an_enqueue_during_a_commit_of_its_key_is_not_stuck(store: PostgresStore, slow: PostgresStore) -> None:
    """It would wait for a delivery whose end has already looked for the next one."""
    await _enqueue(store, admission=Admission("key"))
    await slow.commit(await _claimed(store))
    async with asyncio.TaskGroup() as tasks:
        second = tasks.create_task(_enqueue(store, admission=Admission("key")))
        await _done_or_waiting(store, second)
        _commit(slow)
    assert (await _claimed(store)).delivery_id == second.result().delivery_id


async def test_two_deletions_at_once_leave_no_messages(store: PostgresStore, slow: PostgresStore) -> None:
    """Each would leave the shared messages to the other."""
    await store.create(SessionRecord("source"))
    await store.append("source", [{}, {}], at=0)
    await store.create(SessionRecord("fork", fork_of="source"))
    await slow.delete("fork")
    async with asyncio.TaskGroup() as tasks:
        await _done_or_waiting(store, tasks.create_task(store.delete("source")))
        _commit(slow)
    assert await store._runner.rows("SELECT count(*) FROM @.messages") == [(0,)]


async def test_the_writes_of_a_zombie_are_refused(store: PostgresStore, dsn: str) -> None:
    """And those of the rightful owner are not in conflict with them."""
    await store.create(SessionRecord("worker"))
    await _enqueue(store)
    zombie = store.fenced(await _claimed(store, now=datetime(2000, 1, 1, tzinfo=UTC)))
    await zombie.append("worker", [{"content": "before"}], at=0)
    owner = store.fenced(await _claimed(store, "two@b"))
    attempts: list[Any] = [
        zombie.append("worker", [{"content": "late"}], at=1),
        zombie.update("worker", name="late"),
        zombie.create(SessionRecord("late")),
        zombie.delete("worker"),
        zombie.emit(SessionEvent("late", {})),
        zombie.write_documents([DocumentChange("/p", "things", "late", {})]),
        zombie.save_trigger_state("/p", "trigger", {"late": 1}),
    ]
    for attempt in attempts:
        with pytest.raises(StaleEpoch):
            await attempt
    assert await owner.append("worker", [{"content": "after"}], at=1) == 2
    assert await store.events() == []
    assert await store.document("/p", "things", "late") is None
    assert await store.trigger_state("/p", "trigger") == {}
    await zombie.close()
    assert [record.session_id for record in await store.sessions()] == ["worker"]


async def test_a_host_with_a_wrong_clock_steals_no_lease(store: PostgresStore, dsn: str, start: Start) -> None:
    await _enqueue(store)
    await _claimed(store)
    lease = await store.lead("timers", owner="one@a", lease=60)
    script = """
import datetime, time
real = datetime.datetime
class Ahead(real):
    @classmethod
    def now(cls, zone=None):
        return real.now(zone) + timedelta(hours=int(sys.argv[2]))
datetime.datetime = Ahead
away = time.time
time.time = lambda: away() + 3600 * int(sys.argv[2])
async def main():
    store = open_postgres({"dsn": sys.argv[1]})
    claimed = await store.claim("/p", "queue", owner="two@b", lease=60, session_id="s")
    led = await store.lead("timers", owner="two@b", lease=60)
    made = await store.enqueue("/p", "other", "trigger", event(timestamp=real.now(datetime.UTC)))
    due = await store.claim("/p", "other", owner="two@b", lease=60, session_id="s")
    is_now = abs((made.created - real.now(datetime.UTC)).total_seconds()) < 600
    say(claimed, led, due.delivery_id == made.delivery_id, is_now)
    await store.close()
asyncio.run(main())
"""
    for hours in (-1, 1):
        assert start(script, dsn, hours).communicate()[0] == "None None True True\n"
    assert await store.leases() == [lease]


async def test_several_processes_make_the_tables_at_once(database: str, start: Start) -> None:
    script = """
import amplifier_storage_postgres.store
say("ready")
sys.stdin.readline()
store = open_postgres({"dsn": sys.argv[1]})
async def main():
    await store.create(SessionRecord(f"s{os.getpid()}"))
    await store.close()
asyncio.run(main())
say("made")
"""
    processes = [start(script, database) for _ in range(4)]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.communicate()[0] for process in processes] == ["made\n"] * 4
    store = open_postgres({"dsn": database})
    assert len(await store.sessions()) == 4
    await store.close()


async def test_a_hint_comes_from_another_store_and_not_from_the_own(store: PostgresStore, dsn: str) -> None:
    other = open_postgres({"dsn": dsn})
    heard = threading.Semaphore(0)
    end = other.listen(heard.release)
    assert await asyncio.to_thread(heard.acquire, timeout=120)  # it listens, and may have missed something
    await store.emit(SessionEvent("a", {}))
    assert await asyncio.to_thread(heard.acquire, timeout=120)
    await other.emit(SessionEvent("b", {}))
    await asyncio.to_thread(other._runner.hints.close)  # its hint is out
    assert not heard.acquire(blocking=False)
    end()
    end()
    await other.close()


async def test_a_claim_is_told_to_views_and_not_to_hosts(store: PostgresStore, dsn: str) -> None:
    other = open_postgres({"dsn": dsn})
    listened, watched = threading.Semaphore(0), threading.Semaphore(0)
    ends = [other.listen(listened.release), other.watch_commits(watched.release)]
    assert await asyncio.to_thread(listened.acquire, timeout=120)
    await store.enqueue("/p", "queue", "t", TriggerEvent(TriggerType.CUSTOM, "x"))
    assert await asyncio.to_thread(listened.acquire, timeout=120)
    while watched.acquire(blocking=False):
        pass
    await store.claim("/p", "queue", owner="w@h", lease=60, session_id="s")
    assert await asyncio.to_thread(watched.acquire, timeout=120)
    assert not listened.acquire(blocking=False)
    for end in ends:
        end()
    await other.close()


async def test_a_listener_connects_again(store: PostgresStore, dsn: str) -> None:
    heard = threading.Semaphore(0)
    end = store.listen(heard.release)
    assert await asyncio.to_thread(heard.acquire, timeout=120)
    end_of_it = """SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE query LIKE 'LISTEN%' AND datname = current_database()"""
    assert await store._runner.rows(end_of_it) == [(1,)]
    assert await asyncio.to_thread(heard.acquire, timeout=120)
    end()


async def test_one_owner_leads_at_a_time(store: PostgresStore) -> None:
    first = await store.lead("timers", owner="one@a", lease=60)
    assert first is not None
    assert first.epoch == 1
    assert await store.lead("timers", owner="two@b", lease=60) is None
    again = await store.lead("timers", owner="one@a", lease=90)
    assert again is not None
    assert again.epoch == 1
    assert again.until > first.until
    await store.resign(Lease("timers", "two@b", 1, first.until))
    assert await store.leases() == [again]
    await store.resign(again)
    assert await store.leases() == []
    second = await store.lead("timers", owner="two@b", lease=60)
    assert second is not None
    assert second.epoch == 2
    with pytest.raises(StaleEpoch, match="lease timers was taken over"):
        await _enqueue(store, leader=again)
    assert await store.deliveries() == []
    await _enqueue(store, leader=second)
    short = await store.lead("short", owner="one@a", lease=0.0)
    assert short is not None
    assert [lease.name for lease in await store.leases()] == ["timers"]
    taken = await store.lead("short", owner="two@b", lease=60)
    assert taken is not None
    assert taken.epoch == 2


async def test_bounds_count_the_claims_of_all_hosts(store: PostgresStore) -> None:
    for _ in range(4):
        await _enqueue(store)
    first = await _claimed(store, bounds=Bounds(running=1))
    assert await _claim(store, "two@b", bounds=Bounds(running=1)) is None
    await store.commit(first)
    await _claimed(store, "two@b", bounds=Bounds(running=1))
    begun = Bounds(begun=1, period=3600)
    await _claimed(store, bounds=begun)
    assert await _claim(store, "two@b", bounds=begun) is None
    later = datetime.now(UTC) + timedelta(hours=2)
    await _claimed(store, "two@b", bounds=begun, now=later)


async def test_claims_at_once_stay_within_their_bounds(store: PostgresStore, dsn: str) -> None:
    for _ in range(20):
        await _enqueue(store)
    others = [open_postgres({"dsn": dsn}) for _ in range(2)]
    asked = [_claim(each, bounds=Bounds(running=3)) for each in others * 8]
    assert sum(claimed is not None for claimed in await asyncio.gather(*asked)) == 3
    for each in others:
        await each.close()


async def test_places_of_a_rate_are_taken_by_all_hosts(store: PostgresStore, dsn: str) -> None:
    other = open_postgres({"dsn": dsn})
    waits = [await each.reserve("/p", "rate", 2, 100.0) for each in (store, other) * 3]
    assert [round(wait / 100) for wait in waits] == [0, 0, 1, 1, 2, 2]
    assert await store.reserve("/p", "other", 1, 100.0) == 0
    await other.close()


async def test_only_the_dead_owners_claims_are_released(store: PostgresStore) -> None:
    for _ in range(2):
        await _enqueue(store)
    dead, alive = await _claimed(store, "one@a"), await _claimed(store, "two@b")
    assert await store.release("/p", owners=["one@a", "nobody@c"]) == 1
    with pytest.raises(StaleEpoch):
        await store.commit(dead)
    await store.commit(alive)


async def test_a_delivery_for_one_host_waits_for_that_host(store: PostgresStore) -> None:
    await _enqueue(store, only_on="a")
    assert await _claim(store, "two@b") is None
    assert await store.adopt("a", "b") == 1
    claimed = await _claimed(store, "two@b")
    assert getattr(claimed, "only_on", None) == "b"
    assert getattr(claimed, "owners", None) == ("two@b",)


async def test_what_the_triggers_of_an_adopted_host_have_seen_is_forgotten(store: PostgresStore) -> None:
    for trigger in ("files@a", "files@ba", "files"):
        await store.save_trigger_state("/p", trigger, {"seen": 1})
    await store.adopt("a", "b")
    states = {each: await store.trigger_state("/p", each) for each in ("files@a", "files@ba", "files")}
    assert states == {"files@a": {}, "files@ba": {"seen": 1}, "files": {"seen": 1}}


async def test_the_owners_of_many_claims_are_the_last_ones(store: PostgresStore) -> None:
    await _enqueue(store)
    for number in range(23):
        claimed = await _claimed(store, f"{number}@a", lease=0.0)
    assert getattr(claimed, "owners", ()) == tuple(f"{number}@a" for number in range(3, 23))


async def test_processes_are_seen_until_they_are_forgotten(store: PostgresStore) -> None:
    await store.present("one@a", {"pid": 1, "text": "\0\udce9"})
    await store.present("two@b", {})
    await store.present("one@a", {"pid": 2})
    first, second = await store.processes()
    assert (first.process, first.host, first.facts) == ("one@a", "a", {"pid": 2})
    assert first.started <= second.started <= first.seen
    await store.absent("one@a")
    assert [each.process for each in await store.processes()] == ["two@b"]


async def test_an_event_of_another_site_comes_once(store: PostgresStore) -> None:
    event = SessionEvent("done", {}, event_id="e1")
    received = await store.receive(event, "site")
    assert received is not None
    assert await store.receive(event, "site") is None
    assert await store.receive(event, "third") is not None
    await store.purge(before=datetime.now(UTC) + timedelta(days=1))
    assert await store.receive(event, "site") is None
    assert await store.last_sequence() == 2


async def test_a_project_has_a_path_of_its_own_on_each_host(dsn: str) -> None:
    one = open_postgres({"dsn": dsn, "projects": {"shop": "/srv/shop", "all": "/srv"}})
    two = open_postgres({"dsn": dsn, "projects": {"shop": "/home/me/shop/"}})
    await one.create(SessionRecord("s", project="/srv/shop/api"))
    await one.create(SessionRecord("t", project="/srv/other"))
    await one.create(SessionRecord("u", project="/srv/shopping"))
    assert (await two.get("s")).project == "/home/me/shop/api"
    assert (await two.get("t")).project == "all:/other"
    assert (await one.get("t")).project == "/srv/other"
    assert (await one.get("u")).project == "/srv/shopping"
    assert [record.session_id for record in await two.sessions(project="/home/me/shop/api")] == ["s"]
    await one.enqueue("/srv/shop", "queue", "trigger", _event(state={"a": 1}))
    assert await two.trigger_state("/home/me/shop", "trigger") == {"a": 1}
    claimed = await two.claim("/home/me/shop", "queue", owner="p@h", lease=60, session_id="s")
    assert claimed is not None
    assert claimed.project == "/home/me/shop"
    await two.commit(claimed, documents=[DocumentChange("/home/me/shop", "things", "a", {"n": 1})])
    found = await one.document("/srv/shop", "things", "a")
    assert found is not None
    assert found.project == "/srv/shop"
    await one.emit(SessionEvent("a", {}, project="/srv/shop/"))
    assert (await two.events())[0].project == "/home/me/shop"
    assert [count.project for count in await one.delivery_counts(project="/srv/shop")] == ["/srv/shop"]
    await one.present("p@h", {"projects": ["/srv/shop", "/srv/a"], "states": {"/srv/shop": {"queue": ["running", ""]}}})
    [present] = await two.processes()
    states = {"/home/me/shop": {"queue": ["running", ""]}}
    assert present.facts == {"projects": ["/home/me/shop", "all:/a"], "states": states}
    assert one.shared_name("/srv/shop/api") == two.shared_name("/home/me/shop/api")
    await one.close()
    await two.close()


async def test_a_fork_of_the_process_has_connections_of_its_own(dsn: str, start: Start) -> None:
    script = """
store = open_postgres({"dsn": sys.argv[1]})
store._runner.hints.tell = lambda **_: None  # a hint takes a connection
async def write(name):
    await store.create(SessionRecord(name))
async def server_process():
    return await store._runner.rows("SELECT pg_backend_pid()")
asyncio.run(write("before"))
own = asyncio.run(server_process())
child = os.fork()
if child == 0:
    try:
        asyncio.run(write("of-the-fork"))
        assert asyncio.run(server_process()) != own
        os._exit(0)
    except BaseException as error:
        say(repr(error))
        os._exit(1)
say(os.waitpid(child, 0)[1])
assert asyncio.run(server_process()) == own
asyncio.run(write("after"))
async def read():
    return sorted([record.session_id for record in await store.sessions()])
say(asyncio.run(read()))
asyncio.run(store.close())
"""
    assert start(script, dsn).communicate()[0] == "0\n['after', 'before', 'of-the-fork']\n"


async def test_the_store_works_in_many_loops_and_threads_and_without_a_loop(dsn: str) -> None:
    def use(number: int) -> None:
        async def write() -> None:
            await store.create(SessionRecord(f"s{number}"))
            await store.append(f"s{number}", [{"content": number}], at=0)

        asyncio.run(write())
        assert store.read_sync(f"s{number}") == [{"content": number}]

    store = await asyncio.to_thread(open_postgres, {"dsn": dsn, "pool": 2})
    await asyncio.gather(*(asyncio.to_thread(use, number) for number in range(6)))
    listing = store.sessions()
    assert len(await listing) == 6
    await store.close()
    with pytest.raises(StoreUnavailable, match="the store is closed"):
        await store.last_sequence()


def test_a_store_is_used_without_a_loop(dsn: str) -> None:
    store = open_postgres({"dsn": dsn})

    def run(coroutine: Any) -> Any:
        with pytest.raises(StopIteration) as ended:
            coroutine.send(None)
        return ended.value.value

    run(store.create(SessionRecord("s")))
    assert run(store.get("s")).session_id == "s"
    run(store.close())


async def test_nothing_is_kept_in_a_connection(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pooler gives each transaction another connection to the server."""
    pool = store._runner.pool
    give_back = pool._give_back

    def forget(slot: Any) -> None:
        slot.connection.execute("DISCARD ALL")
        give_back(slot)

    monkeypatch.setattr(pool, "_give_back", forget)
    await store.create(SessionRecord("worker"))
    for _ in range(8):
        await _enqueue(store, admission=Admission("key"))
        claimed = await _claimed(store)
        await store.fenced(claimed).append("worker", [{}], at=(await store.get("worker")).message_count)
        await store.commit(claimed, emits=[SessionEvent("a", {})], session={"turn_count": 1})
    assert json.dumps(await store.read("worker")) == json.dumps([{}] * 8)
