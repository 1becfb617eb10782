"""Services that fail by thousands of random schedules: no acknowledged turn is lost, and every session goes on.

`make streams SCHEDULES=10000` is the whole campaign, for all services together; `SEED` chooses other schedules.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from pathlib import Path

import pytest

from amplifier_core import load_plugins
from amplifier_foundation import open_inbox
from tests.wire.services import SERVICES

from .streaming import NOTE, JumpingClock, Run

pytestmark = pytest.mark.slow

SCHEDULES = int(os.environ.get("SCHEDULES", "40"))
SEED = os.environ.get("SEED", "20261122")


@pytest.mark.usefixtures("one_certificate")
@pytest.mark.parametrize("name", SERVICES)
async def test_no_acknowledged_turn_is_lost_whatever_the_service_does(name: str, home: Path, tmp_path: Path) -> None:
    (tmp_path / "note.py").write_text(NOTE)
    plugins = load_plugins(environ={})
    store = open_inbox(plugins, path=home / "amplifier.db")
    counts, clock = Counter[str](), JumpingClock(asyncio.get_running_loop())
    for number in range(-(-SCHEDULES // len(SERVICES))):
        schedule = f"{SEED}-{name}-{number}"
        run = Run(SERVICES[name], schedule, store, plugins, tmp_path, clock)
        try:
            await run.take_place()
        except Exception as error:
            error.add_note(f"schedule {schedule}: {run.faults}, at {run.ended}: {run.acknowledged}")
            raise
        counts.update(run.count())
    await store.close()
    sys.stdout.write(f"{name}: {dict(sorted(counts.items()))}\n")
