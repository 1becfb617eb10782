"""Test the store on bad networks and with a dying server: nothing hangs, nothing is lost, nothing is done twice."""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from amplifier_core.errors import StoreUnavailable
from amplifier_core.events import SessionEvent
from amplifier_core.storage import Admission, SessionRecord
from amplifier_core.triggers import TriggerEvent, TriggerType
from amplifier_storage_postgres import open_postgres
from tests.postgres import Postgres, free_port, running
from tests.stalling_proxy import StallingProxy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from amplifier_core.storage import Delivery
    from amplifier_storage_postgres.store import PostgresStore

pytestmark = pytest.mark.slow

BROKEN = int(os.environ.get("BROKEN_WRITES", "60"))
KILLS = int(os.environ.get("KILLS_OF_SERVER", "1"))
IMPATIENT = {"timeout": 0.5, "lock_timeout": 0.3, "resolve_timeout": 10.0, "connect_timeout": 2.0}


def _event(**fields: Any) -> TriggerEvent:
    return TriggerEvent(TriggerType.CUSTOM, "test", **fields)


def _through(dsn: str, proxy: StallingProxy) -> str:
    """Return a dsn that goes through the proxy."""
    parts = dict(part.split("=", 1) for part in dsn.split())
    return f"host=127.0.0.1 port={proxy.port} user={parts['user']} dbname={parts['dbname']}"


@pytest.fixture
def proxy(postgres: Postgres) -> Iterator[StallingProxy]:
    with StallingProxy(f"{postgres.folder}/.s.PGSQL.5432") as proxy:
        yield proxy


@pytest.fixture
def far(dsn: str, proxy: StallingProxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresStore]:
    """A store behind the proxy, with one connection; it sends no hints, whose bytes would be among those counted."""
    store = open_postgres({"dsn": _through(dsn, proxy), "pool": 1, **IMPATIENT})
    monkeypatch.setattr(store._runner.hints, "tell", lambda **_: None)
    yield store
    proxy.resume()
    asyncio.run(store.close())


def _shorten(store: PostgresStore, patience: float) -> None:
    """Have the open connections give up after so many seconds."""
    for slot in store._runner.pool._slots:
        if slot.connection is not None:
            slot.connection.patience = patience


async def test_a_stalled_network_is_an_error_in_time(
    far: PostgresStore, proxy: StallingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    await far.last_sequence()
    monkeypatch.setattr(far._runner.pool, "settings", far._runner.pool.settings._replace(resolve_timeout=0.5))
    _shorten(far, 0.3)
    proxy.stall()
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        await far.last_sequence()
    proxy.resume()
    await far.emit(SessionEvent("b", {}))
    assert [event.name for event in await far.events()] == ["b"]


async def test_an_answer_that_never_comes_leaves_the_outcome_open(
    far: PostgresStore, store: PostgresStore, proxy: StallingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    await far.emit(SessionEvent("a", {}))
    monkeypatch.setattr(far._runner.pool, "settings", far._runner.pool.settings._replace(resolve_timeout=0.5))
    _shorten(far, 0.3)
    proxy.stall(to="client")
    with pytest.raises(StoreUnavailable, match="it may or may not be stored"):
        await far.emit(SessionEvent("b", {}))
    assert [event.name for event in await store.events()] == ["a", "b"]


WRITES = ("create", "append", "emit", "enqueue", "claim", "commit", "document", "receive", "lead")


async def _write(store: PostgresStore, what: str, claimed: Delivery | None) -> Any:
    match what:
        case "create":
            return await store.create(SessionRecord("new"))
        case "append":
            return await store.append("s", [{"content": "hello"}], at=0)
        case "emit":
            return await store.emit(SessionEvent("a", {}))
        case "enqueue":
            return await store.enqueue("/p", "queue", "trigger", _event())
        case "claim":
            return await store.claim("/p", "queue", owner="p@h", lease=60, session_id="worker")
        case "commit":
            assert claimed is not None
            return await store.commit(claimed, emits=[SessionEvent("done", {})])
        case "document":
            from amplifier_core.documents import DocumentChange

            return await store.write_documents([DocumentChange("/p", "things", "a", {})], emits=[SessionEvent("a", {})])
        case "receive":
            return await store.receive(SessionEvent("a", {}, event_id="e"), "elsewhere")
        case _:
            return await store.lead("name", owner="p@h", lease=60)


@pytest.mark.parametrize("what", WRITES)
async def test_a_write_whose_answer_is_lost_is_done_once(
    what: str, far: PostgresStore, store: PostgresStore, proxy: StallingProxy
) -> None:
    """The answer stays in the network, the connection breaks, and the same write is asked for again."""
    await store.create(SessionRecord("s"))
    for _ in range(2):
        await store.enqueue("/p", "queue", "trigger", _event())
    claimed = None
    if what == "commit":
        claimed = await store.claim("/p", "queue", owner="p@h", lease=60, session_id="worker")
    await far.make_due("nothing")  # opens the connection
    seen = proxy.seen["client"]
    proxy.stall(to="client")

    def lose() -> None:
        proxy.wait_for("client", seen + 1)
        proxy.cut()
        proxy.resume()

    thread = threading.Thread(target=lose)
    thread.start()
    result = await _write(far, what, claimed)
    thread.join()
    assert result is not None
    sessions = {record.session_id: record.message_count for record in await store.sessions()}
    deliveries = Counter(delivery.state for delivery in await store.deliveries())
    events = [event.name for event in await store.events()]
    assert sessions == {"s": int(what == "append")} | ({"new": 0} if what == "create" else {})
    expected = {"enqueue": {"pending": 3}, "claim": {"pending": 1, "claimed": 1}, "commit": {"pending": 1, "done": 1}}
    assert deliveries == expected.get(what, {"pending": 2})
    assert events == {"emit": ["a"], "document": ["a"], "receive": ["a"], "commit": ["done"]}.get(what, [])


async def test_a_network_that_breaks_all_the_time_loses_nothing_and_does_nothing_twice(
    store: PostgresStore, dsn: str, proxy: StallingProxy
) -> None:
    """It is cut after any number of bytes, on the way there or back."""
    far = open_postgres({"dsn": _through(dsn, proxy), "pool": 3, "resolve_timeout": 60})
    await asyncio.gather(*(store.create(SessionRecord(f"s{worker}")) for worker in range(3)))
    for number in range(BROKEN // 2):
        admission = Admission(f"key{number % 2}") if number % 3 else None
        await store.enqueue("/p", "queue", "trigger", _event(data={"n": number}), admission=admission)
    is_over = threading.Event()

    def cut() -> None:
        chance = random.Random(7)
        while not is_over.is_set():
            side: Any = chance.choice(("client", "server"))
            end = proxy.seen[side] + chance.randrange(1, 4000)
            while proxy.seen[side] < end and not is_over.wait(0.001):
                pass
            if chance.random() < 0.5:
                proxy.stall(to=side)
                is_over.wait(0.002)
            proxy.cut()
            proxy.resume()

    async def again(write: Callable[[], Awaitable[Any]]) -> Any:
        while True:  # what was not sent is no lost answer
            try:
                return await write()
            except StoreUnavailable as error:
                assert "may not be stored" not in str(error)

    async def work(worker: int) -> None:
        done = 0
        while True:
            owner, session_id = f"{worker}@h", f"s{worker}"
            claimed = await again(
                lambda: far.claim("/p", "queue", owner=owner, lease=3600, session_id=session_id)  # noqa: B023
            )
            if claimed is None:
                if not [each for each in await store.deliveries(limit=9999) if each.state in ("pending", "claimed")]:
                    return
                await asyncio.sleep(0.01)
                continue
            view, at = far.fenced(claimed), done
            done = await again(lambda: view.append(f"s{worker}", [{"n": claimed.event.data["n"]}], at=at))  # noqa: B023
            event = SessionEvent("done", {"n": claimed.event.data["n"]})
            await again(lambda: far.commit(claimed, emits=[event]))  # noqa: B023

    thread = threading.Thread(target=cut)
    thread.start()
    await asyncio.gather(*map(work, range(3)))
    is_over.set()
    thread.join()
    await far.close()
    expected = list(range(BROKEN // 2))
    assert sorted(event.data["n"] for event in await store.events(limit=9999)) == expected
    histories = [await store.read(f"s{worker}") for worker in range(3)]
    assert sorted(message["n"] for history in histories for message in history) == expected
    assert {delivery.attempts for delivery in await store.deliveries(limit=9999)} == {1}


async def test_a_write_that_comes_after_its_successor_is_refused(store: PostgresStore, dsn: str) -> None:
    """Bytes of a connection given up long ago may reach the server at last."""
    await store.emit(SessionEvent("a", {}))
    slot = store._runner.pool._slots[0]
    with psycopg.connect(dsn, autocommit=True) as db:
        ask = "SELECT amplifier.perform(%s, %s, 'emit', %s, '{}')"
        with pytest.raises(psycopg.Error) as refused:
            db.execute(ask, (slot.name, slot.number - 1, '{"events": [{}]}'))
        assert refused.value.sqlstate == "AM000"
        [(known,)] = db.execute(ask, (slot.name, slot.number, '{"events": [{}]}')).fetchall()
    assert known == [(await store.events())[0].sequence]
    assert await store.last_sequence() == 1


async def test_a_frozen_host_in_a_transaction_holds_no_lock_for_long(store: PostgresStore, dsn: str) -> None:
    """What the store itself never does, but somebody with its connection settings might."""
    from amplifier_storage_postgres.connections import connect

    await store.create(SessionRecord("s"))
    with connect(store._runner.pool.settings) as frozen:
        frozen.execute("BEGIN")
        frozen.execute("SELECT 1 FROM amplifier.sessions FOR UPDATE")
        await store.update("s", name="changed")  # waits until the server has ended that transaction
        with pytest.raises(psycopg.Error):
            frozen.execute("COMMIT")
    assert (await store.get("s")).name == "changed"


def test_every_connection_has_its_limits(store_settings: Any) -> None:
    from amplifier_storage_postgres.connections import connect

    with connect(store_settings) as db:
        names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
        limits = {name: db.execute(f"SHOW {name}".encode()).fetchall()[0][0] for name in names}
        parts = db.info.get_parameters()
    assert limits == {
        "statement_timeout": "30s",
        "lock_timeout": "10s",
        "idle_in_transaction_session_timeout": "1s",
    }
    assert (parts["connect_timeout"], parts["tcp_user_timeout"]) == ("5", "30000")
    assert (parts["keepalives"], parts["keepalives_idle"], parts["keepalives_count"]) == ("1", "5", "3")


@pytest.fixture
def store_settings(tables: str) -> Any:
    from amplifier_storage_postgres.settings import read_settings

    return read_settings({"dsn": tables})


async def test_a_lock_that_is_not_free_is_an_error_in_time(far: PostgresStore, dsn: str) -> None:
    await far.create(SessionRecord("s"))
    with psycopg.connect(dsn) as db:
        db.execute("SELECT 1 FROM amplifier.sessions FOR UPDATE")
        with pytest.raises(StoreUnavailable, match="a lock was not free in time"):
            await far.update("s", name="changed")
    await far.update("s", name="changed")


async def test_a_server_killed_among_writes_loses_nothing_and_does_nothing_twice() -> None:
    """Every acknowledged write is there, once; writers go on by themselves when the server is back."""
    with running(fsync=True) as server:
        dsn = server.create()
        store = open_postgres({"dsn": dsn, "resolve_timeout": 60})
        acknowledged: list[str] = []
        is_over = False

        async def emit(writer: int) -> None:
            for number in range(10_000):
                if is_over:
                    return
                event = SessionEvent("n", {}, event_id=f"{writer}-{number}")
                while True:
                    try:
                        await store.emit(event)
                        break
                    except StoreUnavailable as error:
                        assert "may not be stored" not in str(error)  # then this would write it twice
                        await asyncio.sleep(0.05)
                acknowledged.append(event.event_id)

        writers = [asyncio.create_task(emit(writer)) for writer in range(4)]
        for _ in range(KILLS):
            before = len(acknowledged)
            while len(acknowledged) < before + 20:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
        is_over = True
        await asyncio.gather(*writers)
        stored = [event.event_id for event in await store.events(limit=100_000)]
        assert sorted(stored) == sorted(acknowledged)
        assert len(set(stored)) == len(stored)
        server.stop()
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            await store.last_sequence()
        server.start()
        assert await store.last_sequence() == len(stored)
        await store.close()


async def test_errors_say_where_and_name_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setenv("DSN_OF_TEST", f"postgresql://me:hunter2-secret@127.0.0.1:{port}/shop")
    with pytest.raises(StoreUnavailable) as refused:
        open_postgres({"dsn": "env:DSN_OF_TEST"})
    assert f"PostgreSQL 127.0.0.1:{port}/shop, schema amplifier: cannot be reached" in str(refused.value)
    assert "hunter2" not in str(refused.value) + repr(refused.value)
