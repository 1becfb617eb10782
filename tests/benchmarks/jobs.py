"""Run queues of jobs, ours and those of peers, with workers in several processes."""

from __future__ import annotations

import asyncio
import random
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from .worker import SCRIPTS, environment

if TYPE_CHECKING:
    from collections.abc import Iterator

WORKERS = 4
LEASE = 3.0
"""Seconds until a dead worker's job may be done again."""
RESTORED_AFTER = 25.0
"""Seconds without a further job after which the rest counts as lost: a peer looks for lost ones every 10 s."""


@dataclass
class Jobs:
    """A queue of one kind, in a folder of its own."""

    name: str
    python: Path
    place: str
    folder: Path
    work: float = 0.0
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.effects.touch()

    @property
    def effects(self) -> Path:
        """The file with a line for each job that is done."""
        return self.folder / f"{self.name}-effects"

    def start(self, role: str, count: int = 0) -> subprocess.Popen[bytes]:
        """Start a process of the queue."""
        with (self.folder / f"{self.name}-log").open("ab") as log:
            process = subprocess.Popen(
                [self.python, SCRIPTS / f"jobs_{self.name}.py", role, self.place, self.effects, str(count)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if role == "latency" else log,
                stderr=log,
                env={**environment(), "LEASE": str(LEASE), "WORK": str(self.work)},
                cwd=self.folder,
            )
        self.running.append(process)
        return process

    def run(self, role: str, count: int = 0) -> str:
        """Run a process of the queue to its end; return its output."""
        process = self.start(role, count)
        said = (process.communicate()[0] or b"").decode()
        if process.returncode != 0:
            raise RuntimeError((self.folder / f"{self.name}-log").read_text()[-2000:])
        self.running.remove(process)
        return said

    def done(self) -> list[tuple[int, float, int]]:
        """Return the lines: job, time, worker."""
        lines = (line.split() for line in self.effects.read_text(encoding="ascii").splitlines())
        return [(int(number), float(at), int(pid)) for number, at, pid in lines]

    def close(self) -> None:
        """Kill all processes."""
        while self.running:
            process = self.running.pop()
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


async def seconds_per_job(jobs: Jobs, count: int) -> float:
    """Return the seconds that a job takes while all workers are at work: they find the jobs there."""
    jobs.run("enqueue", count)
    for _ in range(WORKERS):
        jobs.start("worker")
    while len(jobs.done()) < count:
        await asyncio.sleep(0.05)
    jobs.close()
    done = jobs.done()
    firsts = {pid: at for _, at, pid in reversed(done)}
    begun = max(firsts.values())
    after = [at for _, at, _ in done if at > begun]
    return (max(after) - begun) / len(after)


async def latency(jobs: Jobs, count: int) -> float:
    """Return the median of the seconds from a job's acceptance in one process to its line in another."""
    jobs.start("worker")
    await asyncio.sleep(4)  # until it listens: no peer tells when
    return median(float(line) for line in (await asyncio.to_thread(jobs.run, "latency", count)).split())


async def losses(jobs: Jobs, count: int, kills: int) -> tuple[int, int]:
    """Kill workers with SIGKILL while they work; return how many jobs were never done, and how many more than once."""
    chance = random.Random(1)
    jobs.run("enqueue", count)
    jobs.start("restore")
    workers = [jobs.start("worker") for _ in range(WORKERS)]
    for kill in range(kills):
        await _until_done(jobs, (kill + 1) * count // (kills + 4))
        await asyncio.sleep(chance.uniform(0, 2 * jobs.work))
        victim = workers.pop(chance.randrange(WORKERS))
        victim.kill()
        victim.wait()
        workers.append(jobs.start("worker"))
    await _until_done(jobs, count)
    jobs.close()
    numbers = [number for number, _, _ in jobs.done()]
    times = [numbers.count(number) for number in range(count)]
    return times.count(0), sum(each > 1 for each in times)


async def _until_done(jobs: Jobs, count: int) -> None:
    """Return when so many different jobs are done, or when no further one is for long."""
    before, at = 0, time.monotonic()
    while (done := len({number for number, _, _ in jobs.done()})) < count:
        if done > before:
            before, at = done, time.monotonic()
        if time.monotonic() - at > RESTORED_AFTER:
            return
        await asyncio.sleep(0.02)


@contextmanager
def redis(folder: Path) -> Iterator[str | None]:
    """Run a server that writes to the disk what it accepts, as the store does; None where it is not installed."""
    program = shutil.which("redis-server")
    if program is None:
        yield None
        return
    socket = folder / "redis"
    durable = ["--appendonly", "yes", "--appendfsync", "always"]
    process = subprocess.Popen(
        [program, "--port", "0", "--unixsocket", socket, "--dir", folder, *durable], stdout=subprocess.DEVNULL
    )
    while not socket.exists():
        time.sleep(0.02)
    try:
        yield f"redis+socket://{socket}"
    finally:
        process.kill()
        process.wait()


OURS = Path(sys.executable)
