"""Measure the store of many hosts beside its own server, and beside queues that people use today.

A one-row transaction is one INSERT as the store would make it: from a coroutine, in a thread, over a connection that
prepares no statements. A disk that answers at once shows every microsecond of both: the limits hold there, too.
`JOBS` and `KILLS` say how many jobs are done while workers are killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from amplifier_core.events import SessionEvent
from amplifier_core.triggers import TriggerEvent, TriggerType

from .environment import peers_python
from .jobs import OURS, WORKERS, Jobs, latency, losses, redis, seconds_per_job
from .measure import Row, awaited, in_turns
from .storing import CALLS, LONGEST, ROUNDS, SHORT, closing_store, forking, more_turns, next_turns, session

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.postgres import Postgres

    from .measure import Sample

TURN_AT_MOST = 2.0  # goal: times a one-row transaction of the same server
FORK_AT_MOST = 3.0  # goal: times the same
CLAIM_AT_MOST = 3.0  # goal: times the same
COMMIT_AT_MOST = 3.0  # goal: times the same
GROWTH_AT_MOST = 1.2  # goal: times the same of a short history
DELIVERY_AT_MOST = 1.0  # goal: times a job of procrastinate
EFFECT_AT_MOST = 12.0  # goal: times a job of procrastinate, which begins no session
JUDGED = "procrastinate"
"""The peer that keeps its jobs in the same server."""

TAIL = 50
"""Messages that a context asks for."""
DELIVERIES = int(os.environ.get("DELIVERIES", "2000"))
EFFECTS, WARM = 40, 5
JOBS, KILLS = int(os.environ.get("JOBS", "200")), int(os.environ.get("KILLS", "10"))
WORK = 0.02
"""Seconds of a job while workers are killed."""
PATIENCE = 60
"""Seconds in which the hosts must be there."""
PEERS = ("procrastinate", "celery")
PROGRAM = [sys.executable, "-m", "amplifier_foundation"]
BUNDLE = """---
bundle: {name: bench}
providers:
  - module: provider-playbook
    config:
      rules:
        - when: {user: 'work (?P<n>\\d+)'}
          call: {tool: mark, input: {n: "{n}"}}
        - when: {tool: mark}
          say: done
tools: [{module: tool-mark, source: ./mark.py}]
background_sessions:
  - name: worker
    instruction_template: work {n}
    triggers: [{type: session_event, config: {event_names: ["bench:work"]}}]
---
"""
MARK = """
import time

class Mark:
    name = "mark"
    description = "Notes the time."
    input_schema = {"type": "object", "properties": {"n": {"type": "string"}}}

    async def execute(self, input):
        from amplifier_core import ToolResult
        with open("effects", "a") as effects:
            effects.write(f"{input['n']} {time.monotonic()}\\n")
        return ToolResult(success=True, output="noted")

async def mount(coordinator, config):
    await coordinator.mount("tools", Mark())
"""


async def _store(server: Postgres, folder: Path) -> AsyncIterator[Row]:
    """Measure the store alone, beside a transaction of one row."""
    from amplifier_storage_postgres import open_postgres
    from amplifier_storage_postgres.connections import connect
    from amplifier_storage_postgres.settings import read_settings

    dsn = server.create()
    async with closing_store(open_postgres({"dsn": dsn})) as opened:
        store: Any = opened
        shorts = [f"turn-{number}" for number in range(CALLS * (ROUNDS + 1))]
        for name in (*shorts, "short"):
            await session(store, name, SHORT)
        await session(store, "long", LONGEST)
        await session(store, "tail", TAIL)
        with connect(read_settings({"dsn": dsn})) as raw:
            raw.execute("CREATE TABLE rows (id bigserial PRIMARY KEY, body text NOT NULL)")
            samples = [next_turns(store, iter(shorts)), more_turns(store, "long")]
            samples += [forking(store, "short"), forking(store, "long"), *_deliveries(store)]
            samples += [_reading(store, "tail", 0), _reading(store, "long", LONGEST - TAIL)]
            insert = partial(raw.execute, "INSERT INTO rows (body) VALUES (%s)", ("x" * 200,))
            limit = awaited(lambda: asyncio.to_thread(insert), CALLS)
            *ours, one_row = await in_turns(*samples, limit, rounds=ROUNDS)
    turn, long_turn, fork, long_fork, claim, commit, tail, long_tail = ours
    for what, figure, at_most in (
        (f"one more turn of 2 KB, {SHORT} messages", turn, TURN_AT_MOST),
        (f"one more turn of 2 KB, {LONGEST:,} messages", long_turn, TURN_AT_MOST),
        (f"durable fork, {LONGEST:,} messages", long_fork, FORK_AT_MOST),
        ("claim", claim, CLAIM_AT_MOST),
        ("commit, with an event", commit, COMMIT_AT_MOST),
    ):
        yield Row(f"hosts: {what} / a one-row transaction", figure, one_row, at_most_ratio=at_most)
    for what, few, long, short in (
        ("one more turn", SHORT, long_turn, turn),
        ("durable fork", SHORT, long_fork, fork),
        (f"the last {TAIL} messages", TAIL, long_tail, tail),
    ):
        yield Row(f"hosts: {what}, {LONGEST:,} / {few} messages", long, short, at_most_ratio=GROWTH_AT_MOST)


def _reading(store: Any, name: str, start: int) -> Sample:
    return awaited(lambda: store.read(name, start, start + TAIL), CALLS)


def _deliveries(store: Any) -> tuple[Sample, Sample]:
    """Return samples of claims and of commits, each with a delivery of its own."""
    queues = count()

    async def enqueued() -> str:
        queue = f"queue-{next(queues)}"
        for _ in range(CALLS):
            await store.enqueue("/p", queue, "trigger", TriggerEvent(TriggerType.MANUAL, "me"))
        return queue

    async def claims(queue: str) -> list[Any]:
        return [await store.claim("/p", queue, owner="w@host", lease=60, session_id="session") for _ in range(CALLS)]

    async def claim() -> float:
        queue = await enqueued()
        start = perf_counter()
        await claims(queue)
        return (perf_counter() - start) / CALLS

    async def commit() -> float:
        claimed = await claims(await enqueued())
        start = perf_counter()
        for delivery in claimed:
            await store.commit(delivery, emits=[SessionEvent("work:done", {})])
        return (perf_counter() - start) / CALLS

    return claim, commit


async def _jobs(server: Postgres, folder: Path) -> AsyncIterator[Row]:
    """Measure a claim with its commit by several worker processes."""
    with ExitStack() as opened:
        taken = {each.name: await seconds_per_job(each, DELIVERIES) for each in _queues(server, folder, opened)}
    ours = taken["ours"]
    for name in PEERS:
        what = f"hosts: a delivery, claimed and committed, {WORKERS} workers / a job of {name}"
        yield Row(what, ours, taken.get(name), DELIVERY_AT_MOST if name == JUDGED else None, note="not installed")
    yield Row("  deliveries a second", 1 / ours, unit="")


def _queues(server: Postgres, folder: Path, opened: ExitStack, work: float = 0.0) -> list[Jobs]:
    """Return queues without a job: ours, and those of the peers that are installed."""
    peers = peers_python()
    broker = opened.enter_context(redis(folder)) if peers else None
    places = {"ours": (OURS, server.create()), "procrastinate": (peers, server.create()), "celery": (peers, broker)}
    queues = [Jobs(name, python, place, folder, work) for name, (python, place) in places.items() if python and place]
    for queue in queues:
        opened.callback(queue.close)
        queue.run("prepare")
    return queues


async def _effects(server: Postgres, folder: Path) -> AsyncIterator[Row]:
    """Measure from an event of one host to what the woken session does on another."""
    project = folder / "project"
    project.mkdir()
    (project / "bundle.md").write_text(BUNDLE, encoding="utf-8")
    (project / "mark.py").write_text(MARK, encoding="utf-8")
    (project / "effects").touch()
    dsn = server.create()
    hosts = [_start_host(project, folder / name, dsn) for name in ("amsterdam", "berlin")]
    try:
        ours = await _seconds_to_effect(dsn, project)
    finally:
        for host in hosts:
            host.send_signal(signal.SIGTERM)
            host.wait()
    with ExitStack() as opened:
        theirs = {each.name: await latency(each, EFFECTS) for each in _queues(server, folder, opened)[1:]}
    for name in PEERS:
        what = f"hosts: event of one to the effect of a session on another / a job of {name}"
        yield Row(what, ours, theirs.get(name), EFFECT_AT_MOST if name == JUDGED else None, note="not installed")


def _start_host(project: Path, home: Path, dsn: str) -> subprocess.Popen[bytes]:
    home.mkdir(mode=0o700)
    settings = {"storage": {"name": "storage-postgres", "config": {"dsn": "env:DSN"}}}
    (home / "settings.yaml").write_text(json.dumps(settings), encoding="utf-8")
    with (home / "log").open("wb") as log:
        return subprocess.Popen(
            [*PROGRAM, "-q", "up", "--trust", "bundle.md"],
            cwd=project,
            env={**os.environ, "AMPLIFIER_HOME": str(home), "DSN": dsn},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


async def _seconds_to_effect(dsn: str, project: Path) -> float:
    """Return the median; the trigger sees the events since its start, so the first ones may have no effect."""
    from amplifier_storage_postgres import open_postgres

    taken: list[float | None] = []
    async with closing_store(open_postgres({"dsn": dsn})) as opened:
        while len(taken) < PATIENCE and (len(taken) < WARM or None in taken[-WARM:]):
            taken.append(await _seconds_to_one(opened, project, EFFECTS + len(taken)))
        taken = [await _seconds_to_one(opened, project, number) for number in range(EFFECTS)]
    return median(each if each is not None else float("inf") for each in taken)


async def _seconds_to_one(store: Any, project: Path, number: int) -> float | None:
    """Emit an event, and return the seconds until its effect; None without one within a second."""
    begun = time.monotonic()
    await store.emit(SessionEvent("bench:work", {"n": number}, project=str(project)))
    while time.monotonic() < begun + 1:
        for line in (project / "effects").read_text(encoding="utf-8").splitlines():
            if line.split()[0] == str(number):
                await asyncio.sleep(0.05)  # until the session has ended
                return float(line.split()[1]) - begun
        await asyncio.sleep(0.001)
    return None


async def _losses(server: Postgres, folder: Path) -> AsyncIterator[Row]:
    """Kill workers while they do jobs."""
    with ExitStack() as opened:
        for queue in _queues(server, folder, opened, WORK):
            lost, twice = await losses(queue, JOBS, KILLS)
            what = f"hosts: {JOBS} jobs, {KILLS} workers killed, {queue.name}"
            yield Row(f"{what}: lost", lost, JOBS, 0 if queue.name == "ours" else None, unit="")
            yield Row(f"{what}: done more than once", twice, JOBS, 0 if queue.name == "ours" else None, unit="")


def _with_server(part: Callable[[Postgres, Path], AsyncIterator[Row]]) -> Callable[[], AsyncIterator[Row]]:
    """Return a part that has a server of its own, whose commits wait for the disk."""

    async def rows() -> AsyncIterator[Row]:
        if not any(Path("/usr/lib/postgresql").glob("*/bin/postgres")):
            click.echo("hosts: PostgreSQL is not installed", err=True)
            return
        from tests.postgres import running

        with running(fsync=True) as server, TemporaryDirectory(prefix="amp", dir="/tmp") as folder:
            async for row in part(server, Path(folder)):
                yield row

    return rows


PARTS = tuple(map(_with_server, (_store, _jobs, _effects, _losses)))
