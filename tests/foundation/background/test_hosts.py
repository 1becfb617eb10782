"""Several hosts on one store: who runs triggers, who handles what, and what happens to one that is cut off."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from functools import partial
from hashlib import sha256
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import TriggerEvent, TriggerType
from amplifier_core.errors import SessionConflict, StaleEpoch, StoreUnavailable
from amplifier_core.testing import VirtualClock
from amplifier_core.testing.shared_memory_store import SharedMemoryStore
from amplifier_foundation.background import cancelling
from amplifier_foundation.background.asking import NothingRuns
from amplifier_foundation.background.file_causes import FileCauses, Writer
from amplifier_foundation.background.hosts import people
from amplifier_foundation.background.hosts.claims import keep_claim
from amplifier_foundation.background.hosts.clock import StoreClock
from amplifier_foundation.background.hosts.leading import Leadership
from amplifier_foundation.background.hosts.people import (
    adopt_host,
    cancel_elsewhere,
    change_elsewhere,
    describe_hosts,
)
from amplifier_foundation.background.hosts.writes import SharedWrites
from amplifier_foundation.background.state import Running
from amplifier_foundation.background.tasks import keep_beside, run_beside
from amplifier_foundation.background.trigger_making import take_over_state
from amplifier_foundation.background.up import Control, Up
from amplifier_foundation.operations.acting import Actor
from amplifier_foundation.operations.running import Changed, change_background_session
from amplifier_foundation.sessions.presence import this_host

from .bench import FedTrigger, Feeds
from .hosts import LEASE, HostBench, Hosts
from .stages import WAIT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from amplifier_core import AmplifierSession
    from amplifier_core.plugins import Plugins
    from amplifier_foundation import PreparedBundle

    Bundles = Callable[..., PreparedBundle]


@pytest.fixture
def hosts(parent: AmplifierSession, plugins: Plugins) -> Hosts:
    FedTrigger.made = []
    plugins.register(Feeds(), "feeds")
    clock = VirtualClock()
    return Hosts(parent, plugins, clock, SharedMemoryStore(clock))


def watching() -> list[FedTrigger]:
    """The triggers that are watched; others were made to check the configuration."""
    return [each for each in FedTrigger.made if each.queue.empty() and each.queue._getters]  # type: ignore[attr-defined]


async def test_one_host_runs_the_triggers_and_the_next_one_takes_them_over(hosts: Hosts, make_bundle: Bundles) -> None:
    bundle = make_bundle("family")
    async with hosts.open("berlin", bundle) as berlin, hosts.open("paris", bundle) as paris:
        await berlin.start()
        await paris.start()
        await berlin.holds(lambda: len(watching()) == 1)
        assert hosts.leaders == ["berlin"]
        watching()[0].feed(1)
        await berlin.until("accepted")
        berlin.cut.set()
        await hosts.clock.advance(LEASE * 0.8)
        assert hosts.leaders == []  # the one that is cut off has stopped before anybody follows
        await berlin.holds(lambda: hosts.leaders == ["paris"], step=0.5)
        assert hosts.clock.monotonic() <= 1.5 * LEASE
        await paris.holds(lambda: len(watching()) == 1)
        watching()[0].feed(2)
        await paris.until("completed")
        berlin.cut.clear()
        await hosts.clock.advance(LEASE)
        assert hosts.leaders == ["paris"]
        assert sorted(await paris.numbers()) == [1, 2]


async def test_an_event_of_a_leader_that_is_none_any_more_is_not_stored(hosts: Hosts, make_bundle: Bundles) -> None:
    bundle = make_bundle("family")
    async with hosts.open("berlin", bundle) as berlin:
        await berlin.start()
        await berlin.holds(lambda: len(watching()) == 1)
        lease = berlin.leadership.lease
        await hosts.store.resign(lease)
        await hosts.store.lead(lease.name, owner="2-x@paris", lease=60)
        watching()[0].feed(1)
        await hosts.clock.advance(1)
        assert await berlin.deliveries() == []
        await hosts.clock.advance(LEASE)
        assert not berlin.leads
        assert berlin.statuses() == {"queue": "running"}


async def test_a_trigger_that_watches_its_own_host_runs_on_each(
    hosts: Hosts, make_bundle: Bundles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FedTrigger, "local", True, raising=False)
    bundle = make_bundle("family")
    async with hosts.open("berlin", bundle) as berlin, hosts.open("paris", bundle) as paris:
        await berlin.start()
        await paris.start()
        await berlin.holds(lambda: len(watching()) == 2)
        for each in watching():
            each.feed(1, file_path="notes.txt", dedupe_key="notes.txt at 5", state={"seen": each.context.name})
        await berlin.until("completed", step=0.5)
        await paris.until("completed", step=0.5)
        assert {each.only_on for each in await hosts.store.deliveries()} == {"berlin", "paris"}
        project = berlin.manager._project
        for host in ("berlin", "paris"):
            assert await hosts.store.trigger_state(project, f"family/queue/trigger-fed#1@{host}") != {}


async def test_a_trigger_that_watches_its_own_host_goes_on_where_a_copied_store_was(
    hosts: Hosts, make_bundle: Bundles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One store is that of one host here, and then a shared one: a copy has the same rows."""
    monkeypatch.setattr(FedTrigger, "local", True, raising=False)
    bundle = make_bundle("family")
    async with hosts.open_alone(bundle) as alone:
        await alone.start()
        alone.trigger.feed(1, state={"seen": 1})
        await alone.until("completed")
    async with hosts.open(this_host(), bundle) as here, hosts.open("paris", bundle) as paris:
        for host in (here, paris):
            await host.start()
        await here.holds(lambda: len(watching()) == 2)
        assert [each.context.state for each in watching()] == [{"seen": 1}, {}]
        watching()[0].feed(2, state={"seen": 2})
        await here.until("accepted")
    async with hosts.open_alone(bundle) as alone:
        await alone.start()
        assert alone.trigger.context.state == {"seen": 2}
    project = alone.manager._project
    assert await hosts.store.trigger_state(project, f"family/queue/trigger-fed#1@{this_host()}") == {}


async def test_of_two_hosts_that_start_together_one_takes_over_what_a_copied_store_has_brought(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(SharedMemoryStore):
        async def trigger_state(self, project: str, trigger: str) -> dict[str, Any]:
            found = await super().trigger_state(project, trigger)
            await asyncio.sleep(0)
            return found

    store = Slow(VirtualClock())
    await store.save_trigger_state("/p", "watcher", {"seen": 1})

    async def start(host: str) -> dict[str, Any]:
        monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / host))
        return await take_over_state(store, "/p", "watcher", f"watcher@{host}")

    assert await asyncio.gather(start("berlin"), start("paris")) == [{"seen": 1}, {}]
    assert await store.trigger_state("/p", "watcher@paris") == {}
    assert await store.leases() == []


async def test_a_shared_folder_is_watched_by_one_host_and_its_events_are_for_all(
    hosts: Hosts, make_bundle: Bundles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FedTrigger, "local", True, raising=False)
    bundle = make_bundle("family")
    async with hosts.open("berlin", bundle) as berlin, hosts.open("paris", bundle) as paris:
        await berlin.start(shared_folder=True)
        await paris.start(shared_folder=True)
        await berlin.holds(lambda: len(watching()) == 1)
        watching()[0].feed(1, file_path="notes.txt")
        await berlin.holds(lambda: len(berlin.handled()) + len(paris.handled()) == 1, step=0.5)
        assert [each.only_on for each in await hosts.store.deliveries()] == [None]


async def test_a_host_that_is_cut_off_ends_its_session_before_another_one_begins_it(
    hosts: Hosts, make_bundle: Bundles, held: list[dict[str, Any]]
) -> None:
    bundle = make_bundle("family", providers=held)
    async with hosts.open("berlin", bundle) as berlin, hosts.open("paris", bundle) as paris:
        await berlin.start()
        await berlin.holds(lambda: len(watching()) == 1)
        watching()[0].feed(1)
        await berlin.until("session")
        await paris.start()
        model = berlin.held()
        await berlin.holds(lambda: len(model.asked) == 1)
        berlin.cut.set()
        await hosts.clock.advance(LEASE * 0.8 + 0.1)
        assert model.together == 0
        assert paris.handled() == []
        await paris.holds(lambda: len(model.asked) == 2, step=0.25)
        assert hosts.clock.monotonic() <= LEASE * 4 / 3 + 1 + 5  # the last renewal, a lease, and a look
        berlin.cut.clear()
        await hosts.clock.advance(2)
        model.go.set()
        await paris.until("completed")
        assert (berlin.kinds().count("completed"), paris.kinds().count("completed")) == (0, 1)
        [delivery] = await hosts.store.deliveries()
        assert (delivery.state, delivery.owners) == ("done", ("1-berlin@berlin", "1-paris@paris"))
        assert berlin.statuses() == {"queue": "running"}


async def test_what_a_session_writes_after_its_delivery_was_taken_over_is_refused(
    hosts: Hosts, make_bundle: Bundles, held: list[dict[str, Any]]
) -> None:
    bundle = make_bundle("family", providers=held)
    async with hosts.open("berlin", bundle) as berlin:
        await berlin.start()
        await berlin.holds(lambda: len(watching()) == 1)
        watching()[0].feed(1)
        await berlin.until("session")
        [running] = berlin.told("started", "delivery")
        claimed = await hosts.store.claim(
            running.project, running.queue, owner="1-paris@paris", lease=60, session_id="s",
            now=hosts.clock.now() + timedelta(seconds=LEASE + 1),
        )  # fmt: skip
        assert claimed is not None
        [background] = berlin.manager._sessions.values()
        store = berlin.manager._engine.store_for(background.running[running.delivery_id])
        for write in (store.append(running.session_id, [{"role": "user", "content": "x"}], at=0), store.update("s")):
            with pytest.raises(StaleEpoch):
                await write


@pytest.mark.parametrize("runner", ["runner-inprocess", "runner-subprocess"])
async def test_a_call_that_was_cut_by_a_store_without_answers_is_made_again(
    hosts: Hosts, make_bundle: Bundles, tmp_path: Path, runner: str
) -> None:
    (tmp_path / "wait.py").write_text(WAIT)
    rules = [{"when": {"tool": "wait"}, "say": "waited"}]
    otherwise = {"call": {"tool": "wait", "input": {}}}
    bundle = make_bundle(
        "family",
        providers=[{"module": "provider-playbook", "config": {"rules": rules, "otherwise": otherwise}}],
        tools=[{"module": "tool-wait", "source": "./wait.py", "config": {"folder": str(tmp_path)}}],
    )
    async with hosts.open("berlin", bundle) as berlin:
        await berlin.start(runner=runner)
        await berlin.holds(lambda: len(watching()) == 1)
        watching()[0].feed(1)
        await berlin.holds((tmp_path / "waits").exists)
        (tmp_path / "waits").unlink()
        [background] = berlin.manager._sessions.values()
        [running] = background.running.values()
        berlin.answers.clear()
        await hosts.clock.advance(LEASE * 0.8)
        await berlin.holds(lambda: running.task.cancelling() > 0)
        berlin.answers.set()
        await berlin.holds((tmp_path / "waits").exists, step=0.5)
        (tmp_path / "waited").touch()
        await berlin.until("completed", step=0.5)
        [delivery] = await hosts.store.deliveries()
        results = [each["content"] for each in await hosts.store.read(delivery.session_id) if each["role"] == "tool"]
        assert (json.loads(results[0])["interrupted"], json.loads(results[1])) == (True, {"said": "done"})
        record = await hosts.store.get(delivery.session_id)
        assert (record.status, record.turn_count) == ("completed", 1)


async def test_the_last_sign_of_a_host_tells_its_states_of_now(hosts: Hosts, make_bundle: Bundles) -> None:
    async with hosts.open("berlin", make_bundle("family")) as berlin:
        stored: list[Any] = []

        async def present(process: str, facts: dict[str, Any]) -> None:
            if not stored and facts["states"] == {"queue": "running"}:
                await asyncio.sleep(0.01)  # the first is slower than the second
            stored.append(facts["states"])

        states = {"queue": "running"}
        store: Any = SimpleNamespace(now=berlin.member.store.now, present=present)
        member = replace(berlin.member, store=store, states=lambda: dict(states))
        signing = asyncio.ensure_future(member.sign())
        while not member._signing.locked():
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        states["queue"] = "paused"
        await asyncio.gather(signing, member.sign())
        assert stored[-1] == {"queue": "paused"}


async def test_outages_of_the_store_use_up_no_attempts(
    hosts: Hosts, make_bundle: Bundles, held: list[dict[str, Any]]
) -> None:
    bundle = make_bundle("family", providers=held)
    async with hosts.open("berlin", bundle) as berlin, hosts.open("paris", bundle) as paris:
        for host in (berlin, paris):
            await host.start(max_attempts=2)
        await berlin.holds(lambda: len(watching()) == 1)
        watching()[0].feed(1)
        at_work, other = berlin, paris
        await berlin.holds(lambda: bool(berlin.told("session", "session") or paris.told("session", "session")), 0.5)
        if not berlin.told("session", "session"):
            at_work, other = paris, berlin
        model = at_work.held()
        for asked in range(2, 7):
            at_work.cut.set()
            other.cut.set()
            await hosts.clock.advance(LEASE + 1)
            other.cut.clear()
            await other.holds(lambda asked=asked: len(model.asked) == asked, step=0.5)
            at_work.cut.clear()
            await hosts.clock.advance(LEASE / 2)
            at_work, other = other, at_work
        model.go.set()
        await berlin.holds(lambda: "completed" in berlin.kinds() + paris.kinds(), step=0.5)
        assert "dead" not in berlin.kinds() + paris.kinds()


async def test_a_process_that_hung_is_told_from_a_store_that_cannot_be_used(hosts: Hosts, make_bundle: Bundles) -> None:
    async with hosts.open("berlin", make_bundle("family")) as berlin:
        delivery: Any = SimpleNamespace(project="/p", delivery_id="d", epoch=1)
        store: Any = SimpleNamespace(renew=lambda delivery, lease: asyncio.Event().wait())
        now, member = hosts.clock.monotonic(), replace(berlin.member, store=store)
        frozen, cut_off = [Running(delivery, asyncio.ensure_future(asyncio.sleep(0))) for _ in range(2)]
        with pytest.raises(StoreUnavailable, match="no answer"):
            await keep_claim(member, frozen, now - LEASE)
        berlin.cut.set()
        keeping = asyncio.ensure_future(keep_claim(replace(berlin.member, lease=0.3), cut_off, now))
        while not keeping.done():
            await hosts.clock.advance(0.1)
        assert isinstance(keeping.exception(), StoreUnavailable)
        assert (frozen.hung, cut_off.hung) == (True, False)


async def test_the_bound_of_running_sessions_counts_on_all_hosts(
    hosts: Hosts, make_bundle: Bundles, held: list[dict[str, Any]]
) -> None:
    bundle = make_bundle("family", providers=held)
    async with hosts.open("berlin", bundle) as berlin, hosts.open("paris", bundle) as paris:
        for host in (berlin, paris):
            await host.start(pool_size=4, max_running=3)
        await berlin.holds(lambda: len(watching()) == 1)
        [trigger] = watching()
        for number in range(8):
            trigger.feed(number)
        await berlin.holds(lambda: len(berlin.handled()) + len(paris.handled()) == 3, step=0.5)
        await hosts.clock.advance(5)
        assert len(berlin.handled()) + len(paris.handled()) == 3
        model = (berlin if berlin.handled() else paris).held()
        model.go.set()
        await berlin.holds(lambda: berlin.kinds().count("completed") + paris.kinds().count("completed") == 8, step=0.5)
        assert model.most == 3


async def test_a_throttle_counts_on_all_hosts(hosts: Hosts, make_bundle: Bundles) -> None:
    bundle = make_bundle("family")
    async with hosts.open("berlin", bundle) as berlin, hosts.open("paris", bundle) as paris:
        for host in (berlin, paris):
            await host.start(pool_size=4, throttle={"limit": 2, "period": 60})
        await berlin.holds(lambda: len(watching()) == 1)
        [trigger] = watching()
        for number in range(4):
            trigger.feed(number)
        await hosts.clock.advance(30)
        assert len(berlin.handled()) + len(paris.handled()) == 2
        await hosts.clock.advance(32)
        await berlin.holds(lambda: len(berlin.handled()) + len(paris.handled()) == 4, step=0.5)


async def test_a_rate_limit_of_caused_events_counts_on_all_hosts(hosts: Hosts, make_bundle: Bundles) -> None:
    bundle = make_bundle("family")
    async with hosts.open("berlin", bundle) as berlin, hosts.open("paris", bundle) as paris:
        for host in (berlin, paris):
            await host.start(rate_limit={"limit": 1, "period": 60})
        await berlin.holds(lambda: len(watching()) == 1)
        [trigger] = watching()
        for number in range(3):
            trigger.feed(number, depth=1)
        await hosts.clock.advance(59)
        assert len(berlin.handled()) + len(paris.handled()) == 1
        await hosts.clock.advance(62)
        await berlin.holds(lambda: len(berlin.handled()) + len(paris.handled()) == 3, step=1)


async def test_what_a_person_asks_on_one_host_holds_on_all(hosts: Hosts, make_bundle: Bundles) -> None:
    sections = {"background_sessions": [{"name": "queue", "triggers": [{"module": "trigger-fed"}]}]}
    bundle = make_bundle("family", **sections)
    async with hosts.open("berlin", bundle) as berlin, hosts.open("paris", bundle) as paris:
        for host in (berlin, paris):
            await host.manager.start(bundle.bundle.background_sessions[0])
        await berlin.manager.change("queue", "paused")
        await berlin.holds(lambda: paris.statuses() == {"queue": "paused"}, step=0.5)
        await paris.manager.change("queue", "stopped")
        await berlin.holds(lambda: berlin.statuses() == {"queue": "stopped"}, step=0.5)
        await paris.manager.change("queue", "running")
        await berlin.holds(lambda: berlin.statuses() == paris.statuses() == {"queue": "running"}, step=0.5)


async def test_the_newest_declaration_leads(hosts: Hosts, make_bundle: Bundles) -> None:
    old, new = make_bundle("family"), make_bundle("family", instruction="Changed.")
    async with hosts.open("berlin", old) as berlin:
        await berlin.start()
        await berlin.holds(lambda: hosts.leaders == ["berlin"], step=0.5)
        await hosts.clock.advance(1)
        async with hosts.open("paris", new) as paris:
            await paris.start()
            await paris.holds(lambda: hosts.leaders == ["paris"], step=0.5)
            await hosts.clock.advance(3 * LEASE)
            assert hosts.leaders == ["paris"]
        await berlin.holds(lambda: hosts.leaders == ["berlin"], step=0.5)


async def test_a_worker_runs_no_triggers_and_handles_what_others_accept(hosts: Hosts, make_bundle: Bundles) -> None:
    bundle = make_bundle("family")
    async with hosts.open("berlin", bundle) as berlin, hosts.open("tokyo", bundle, role="worker") as tokyo:
        await tokyo.start()
        await berlin.start(start_on_parent_start=True)
        await berlin.manager.change("queue", "paused", save=False)
        await berlin.holds(lambda: len(watching()) == 1)
        watching()[0].feed(1)
        await tokyo.until("completed", step=0.5)
        assert [row["role"] for row in await describe_hosts(hosts.store)] == ["up", "worker"]


async def test_a_host_that_is_drained_takes_no_new_work_and_hands_its_triggers_over(
    hosts: Hosts, make_bundle: Bundles
) -> None:
    bundle = make_bundle("family")
    async with hosts.open("berlin", bundle) as berlin, hosts.open("paris", bundle) as paris:
        await berlin.start()
        await paris.start()
        await berlin.holds(lambda: hosts.leaders == ["berlin"])
        berlin.member.drain_asked.set()
        await berlin.holds(lambda: hosts.leaders == ["paris"], step=0.5)
        await paris.holds(lambda: len(watching()) == 1)
        watching()[0].feed(1)
        await paris.until("completed")
        assert berlin.handled() == []


async def test_the_work_of_a_host_that_is_gone_is_adopted(
    hosts: Hosts, make_bundle: Bundles, held: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FedTrigger, "local", True, raising=False)
    bundle = make_bundle("family", providers=held)
    async with hosts.open("berlin", bundle) as berlin, hosts.open("paris", bundle) as paris:
        await berlin.start()
        await berlin.holds(lambda: len(watching()) == 1)
        [trigger] = watching()
        trigger.feed(1, file_path="notes.txt")
        trigger.feed(2, file_path="other.txt")
        await berlin.until("session")
        await paris.start()
        berlin.cut.set()
        await hosts.clock.advance(LEASE * 2)
        assert paris.handled() == []  # its files are there
        told = await adopt_host(hosts.store, "berlin", "paris")
        assert "2 waiting events" in told
        await paris.holds(lambda: len(paris.handled()) == 1, step=0.5)
        paris.told("session", "session")[0].coordinator.get_capability("tests.held").go.set()
        await paris.until("completed", count=2, step=0.5)


async def test_a_host_is_unseen_when_its_work_may_have_been_taken_over(hosts: Hosts, make_bundle: Bundles) -> None:
    async with hosts.open("berlin", make_bundle("family")) as berlin:
        berlin.cut.set()
        await hosts.clock.advance(1.2 * LEASE)
        assert [row["state"] for row in await describe_hosts(hosts.store)] == ["present"]
        await hosts.clock.advance(0.2 * LEASE)
        assert [row["state"] for row in await describe_hosts(hosts.store)] == ["unseen"]


async def test_commands_reach_the_host_that_runs_the_background_session(
    hosts: Hosts, make_bundle: Bundles, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))  # where nothing runs
    bundle, asked, state = make_bundle("family"), [], ["running", ""]

    async def change(verb: Any, name: str, **where: Any) -> list[Changed]:
        task = asyncio.ensure_future(change_background_session(hosts.store, Actor("ann", "cli"), verb, name, **where))
        while not task.done():
            await hosts.clock.advance(1)
            await asyncio.sleep(0.01)
        return task.result()

    async with hosts.open("berlin", bundle) as berlin:
        await berlin.start()

        async def obey(operation: str, arguments: Any) -> list[str]:
            asked.append((operation, arguments["project"], arguments["name"]))
            if operation == "stop":
                raise SessionConflict("queue", "it cannot be stopped now")
            state[0] = "paused"
            return ["bg-queue-0001"]

        queues = {"/a": {"family/queue": state}, "/b": {"family/queue": state, "town/hall": state}}
        berlin.member.obey, berlin.member.states = obey, lambda: queues
        await berlin.member.sign()
        assert await change("restart", "hall") == [("/b", "town/hall")]
        assert await change("pause", "queue", first="/b") == [("/b", "family/queue")]
        [shown] = await describe_hosts(hosts.store)
        assert shown["states"]["/b"]["family/queue"] == ["paused", ""]
        assert await change("pause", "family/queue", project="/a") == [("/a", "family/queue")]
        with pytest.raises(SessionConflict, match="family/queue in /a, family/queue in /b. Go to the folder of one"):
            await change("stop", "queue")
        with pytest.raises(NothingRuns):
            await change("stop", "queue", project="/c")
        with pytest.raises(SessionConflict, match="cannot be stopped now"):
            await change("stop", "queue", first="/a")
        assert asked == [
            ("restart", "/b", "town/hall"),
            ("pause", "/b", "family/queue"),
            ("pause", "/a", "family/queue"),
            ("stop", "/a", "family/queue"),
        ]
        assert await hosts.store.documents("", "host-commands") == []


async def test_a_host_that_does_not_answer_follows_what_another_one_did(
    hosts: Hosts, make_bundle: Bundles, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(people, "PATIENCE", 1.0)
    monkeypatch.setattr(people, "SOON", 0.0)

    async def obey(operation: str, arguments: Any) -> None:
        """Do as it says."""

    async def change(verb: str) -> list[str]:
        task = asyncio.ensure_future(change_elsewhere(hosts.store, verb, "queue", "/p"))
        while not task.done():
            await hosts.clock.advance(1)
            await asyncio.sleep(0.01)
        return task.result()

    async with hosts.open("berlin", make_bundle("family")) as berlin:
        queues = {"/p": {"family/queue": ["running", ""]}}
        berlin.member.obey, berlin.member.states = obey, lambda: queues
        await berlin.member.sign()
        await hosts.store.present("1-x@frozen", {"states": queues})
        assert await change("pause") == ["family/queue"]
        assert "host frozen does not answer; it follows as soon as it does" in caplog.text
        await hosts.store.present("1-x@frozen", {"states": queues})
        with pytest.raises(SessionConflict, match="does not answer after 1 s; elsewhere it is done for family/queue"):
            await change("restart")
        berlin.member.states = lambda: {"/p": {}}
        await berlin.member.sign()
        await hosts.store.present("1-x@frozen", {"states": queues})
        with pytest.raises(SessionConflict, match="host frozen does not answer after 1 s. See"):
            await change("pause")
        assert await hosts.store.documents("", "host-commands") == []


async def test_a_turn_is_cancelled_on_the_host_that_runs_it(
    hosts: Hosts, make_bundle: Bundles, held: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancelling, "GRACE", 0.05)
    bundle = make_bundle("family", providers=held)
    async with hosts.open("berlin", bundle) as berlin, hosts.open("paris", bundle):
        await berlin.start()
        await berlin.holds(lambda: len(watching()) == 1)
        watching()[0].feed(1)
        await berlin.until("session")
        [delivery] = berlin.told("started", "delivery")
        control = Control()
        control.running.append(Up(bundle.bundle, "p", berlin.manager._engine.parent, berlin.manager, berlin.router))
        berlin.member.obey = control.handle
        await berlin.member.sign()
        task = asyncio.ensure_future(cancel_elsewhere(hosts.store, delivery.session_id, "ann"))
        while not task.done():
            await hosts.clock.advance(1)
            await asyncio.sleep(0.01)
        assert task.result() == {"cancelled": True, "queue": "family/queue"}
        [delivery] = await hosts.store.deliveries()
        assert (delivery.state, delivery.reason) == ("skipped", "cancelled by ann")
        assert await cancel_elsewhere(hosts.store, str(delivery.session_id), "ann") is None


async def test_the_clock_of_the_store_counts_however_wrong_that_of_the_machine_is() -> None:
    clock = VirtualClock()
    store = SharedMemoryStore(clock)
    mine = VirtualClock(clock.now() + timedelta(hours=1))
    following = StoreClock(mine)
    assert following.now() == mine.now()
    await following.follow(store)
    assert following.now() == clock.now()
    await mine.advance(5)
    assert following.now() == clock.now() + timedelta(seconds=5)


async def test_a_file_that_a_session_of_another_host_wrote_has_that_session_as_its_cause(
    hosts: Hosts, tmp_path: Path
) -> None:
    path, place = tmp_path / "notes.txt", (str(tmp_path), "family/queue")
    path.write_text("new")
    writer = Writer("s-1", place, "event-1", 2)
    berlin, paris = FileCauses(), FileCauses()
    for causes in (berlin, paris):
        causes.shared = SharedWrites(hosts.store)
    await berlin._remember_and_share(path, sha256(b"new").hexdigest(), writer)
    event = TriggerEvent(TriggerType.FILE_CHANGE, "trigger-file-watcher", file_path="notes.txt")
    found = await paris.attribute(hosts.store, place, event)
    assert (found.source_session_id, found.cause, found.depth) == ("s-1", "event-1", 3)
    path.write_text("changed by somebody else")
    assert await paris.attribute(hosts.store, place, event) == event


async def test_what_one_host_does_for_all_moves_with_the_leadership(hosts: Hosts, make_bundle: Bundles) -> None:
    bundle, at_work = make_bundle("family"), list[str]()
    async with hosts.open("berlin", bundle) as berlin, hosts.open("paris", bundle) as paris:

        async def carry(host: HostBench) -> None:
            at_work.append(host.member.host)
            try:
                await asyncio.Event().wait()
            finally:
                at_work.remove(host.member.host)

        async with AsyncExitStack() as stack:
            for host in (berlin, paris):
                leadership = Leadership(host.member, "transport x")
                await stack.enter_async_context(keep_beside(leadership.run, "leadership"))
                await stack.enter_async_context(run_beside(leadership.run_led(partial(carry, host)), "carrying"))
            await berlin.holds(lambda: at_work == ["berlin"])
            berlin.cut.set()
            await hosts.clock.advance(LEASE * 0.8)
            assert at_work == []
            await paris.holds(lambda: at_work == ["paris"], step=0.5)
            berlin.cut.clear()
        assert at_work == []
