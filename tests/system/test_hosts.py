"""Two hosts and a worker on one PostgreSQL, killed, frozen and cut off; what they accepted is done once all the same.

`KILLS`, `ZOMBIES`, `PARTITIONS` and `OUTAGES` say how often (`make hosts`: 500, 100, 50 and 20); `SEED` chooses others.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.postgres import Postgres, running

from .hosting import LEASE, Cut, Farm, Host, allows_namespaces

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("KILLS", "2"))
ZOMBIES = int(os.environ.get("ZOMBIES", "1"))
PARTITIONS = int(os.environ.get("PARTITIONS", "2"))
OUTAGES = int(os.environ.get("OUTAGES", "1"))
SEED = os.environ.get("SEED", "20261123")
ROUND = 25
"""Faults of one farm before what was given there is compared with what was done."""
CUTS: tuple[Cut, ...] = ("all", "answers", "silence")


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with running(fsync=True) as made:
        yield made


@pytest.fixture
async def farm(tmp_path: Path, server: Postgres, request: pytest.FixtureRequest) -> AsyncIterator[Farm]:
    number = getattr(request.node, "callspec", None)
    runner = "subprocess" if number is not None and number.params["number"] % 2 else "inprocess"
    made = Farm(tmp_path, server, SEED, with_namespaces=allows_namespaces(), runner=runner)
    try:
        for name, role in (("amsterdam", "up"), ("berlin", "up"), ("cairo", "worker")):
            made.add_host(name, role)  # type: ignore[arg-type]
        yield made
    finally:
        await made.close()


def faults() -> list[list[str]]:
    """Return the faults in rounds, in an order of chance."""
    kinds = ["kill"] * KILLS + ["zombie"] * ZOMBIES + ["partition"] * PARTITIONS + ["outage"] * OUTAGES
    random.Random(SEED).shuffle(kinds)
    return [kinds[at : at + ROUND] for at in range(0, len(kinds), ROUND)]


class Chaos:
    """Does one fault after the other to a farm that always has work."""

    def __init__(self, farm: Farm, seed: str) -> None:
        self.farm, self.server, self.chance = farm, farm.server, random.Random(seed)
        self.takeovers: list[float] = []
        self.rejoins: list[float] = []

    async def do(self, kind: str) -> None:
        await self.farm.give(2)
        await self.farm.give(2, key=f"k{self.chance.randrange(3)}")
        host = self.chance.choice(self.farm.hosts)
        if self.chance.random() < 0.8:
            with suppress(AssertionError):  # the others were faster
                await self.farm.until(lambda: self.farm.is_at_work(host), patience=4.0)
        await asyncio.sleep(self.chance.uniform(0.0, 0.5))
        await getattr(self, kind)(host)

    async def kill(self, host: Host) -> None:
        """Kill a process, and start it again a little later."""
        host.kill()
        await asyncio.sleep(self.chance.uniform(0.0, 0.4))
        host.start()

    async def zombie(self, host: Host) -> None:
        """Freeze a process for longer than its lease: others take its work over, and it awakes."""
        host.send(signal.SIGSTOP)
        await asyncio.sleep(LEASE + self.chance.uniform(0.2, 1.0))
        host.send(signal.SIGCONT)

    async def partition(self, host: Host) -> None:
        """Cut a host off for longer than its lease."""
        host.cut(self.chance.choice(CUTS))
        await asyncio.sleep(LEASE + self.chance.uniform(0.2, 1.5))
        host.heal()

    async def outage(self, host: Host) -> None:
        """Kill the server, and start it again; half of the times, answers are lost before."""
        if self.chance.random() < 0.5:
            host.cut("answers")
            await asyncio.sleep(0.2)
        self.server.kill()
        await asyncio.sleep(self.chance.uniform(0.0, 1.0))
        self.server.start()
        host.heal()


@pytest.mark.parametrize("number", range(len(faults())))
async def test_what_hosts_accept_is_done_once_whatever_fails(farm: Farm, number: int) -> None:
    chaos = Chaos(farm, f"{SEED}-{number}")
    await farm.give(4)
    for kind in faults()[number]:
        await chaos.do(kind)
    await farm.until(farm.is_done)
    figures = await farm.check()
    assert figures["overlap"] <= 0.2 * LEASE
    sys.stdout.write(f"round {number}: {figures}\n")


async def test_the_work_and_the_timers_of_a_killed_host_go_on_elsewhere(farm: Farm) -> None:
    amsterdam, berlin, cairo = farm.hosts
    await farm.until(farm.leader)
    leading = await farm.leader()
    assert leading is not None
    leader = amsterdam if leading.startswith(f"{amsterdam.pid}-") else berlin

    async def leader_is_at_work() -> bool:
        await farm.give(2)
        return leader.name in marks_of(farm)

    await farm.until(leader_is_at_work)
    leader.kill()
    taken = await farm.until(lambda: is_led_by_another(farm, leading))
    await farm.until(farm.is_done)
    await farm.check()
    assert taken <= 1.5 * LEASE + 1
    assert cairo.process is not None
    assert cairo.process.poll() is None


def marks_of(farm: Farm) -> set[str]:
    """Return the hosts that have worked."""
    return {line.split()[1] for line in (farm.project / "marks").read_text().splitlines()}


async def is_led_by_another(farm: Farm, leading: str) -> bool:
    """Return whether the timers are led, by another process than that one."""
    return await farm.leader() not in (None, leading)
