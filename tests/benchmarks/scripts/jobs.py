"""A queue of jobs in several processes: `python jobs_NAME.py ROLE PLACE EFFECTS [COUNT]`, here or among the peers.

`prepare` makes the queue at PLACE, `enqueue` gives it jobs, and `latency` one after the other. `worker` does jobs until
it is killed, and `restore` gives back the jobs of dead workers, where nothing else does. A job works for `WORK` seconds
and leaves a line in the file EFFECTS: its number, the time and the worker.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

ROLE, PLACE, EFFECTS, *REST = sys.argv[1:]
COUNT = int(REST[0]) if REST else 0
LEASE = float(os.environ["LEASE"])
"""Seconds after which a worker without a sign counts as dead."""
WORK = float(os.environ["WORK"])


def leave_effect(number: int) -> None:
    """Leave the line of a job."""
    time.sleep(WORK)
    with Path(EFFECTS).open("ab", buffering=0) as effects:
        effects.write(f"{number} {time.monotonic()} {os.getpid()}\n".encode())


def wait_for_effect(number: int) -> float:
    """Return the time of a job's line."""
    while True:
        for line in Path(EFFECTS).read_text(encoding="ascii").splitlines():
            if line.startswith(f"{number} "):
                return float(line.split()[1])
        time.sleep(0.001)


def print_latencies(enqueue: Callable[[int], object]) -> None:
    """Enqueue one job after the other, each when the one before has left its line; print the seconds of each."""
    for number in range(COUNT):
        begun = time.monotonic()
        enqueue(number)
        sys.stdout.write(f"{wait_for_effect(number) - begun}\n")
        time.sleep(0.02)
