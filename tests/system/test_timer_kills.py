"""A timer that is killed again and again: every tick is stored, and none twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

from amplifier_core import load_plugins
from amplifier_core.testing.trigger_checks import check_trigger
from amplifier_core.triggers import TriggerContext
from amplifier_foundation import open_inbox
from amplifier_trigger_timer import TimerTrigger

NAME, PROJECT, QUEUE = "times/tick/trigger-timer#1", "/project", "times/tick"
CONFIG = {"interval": "50ms", "catch_up": "all"}
KILLS = 2

PROGRAM = f"""
import asyncio, sys
from functools import partial
from pathlib import Path
from amplifier_core import load_plugins
from amplifier_core.triggers import TriggerContext
from amplifier_foundation import open_inbox
from amplifier_trigger_timer import TimerTrigger

async def main():
    store = open_inbox(load_plugins(environ={{}}), path=Path(sys.argv[1]))
    trigger, state = TimerTrigger(), await store.trigger_state({PROJECT!r}, {NAME!r})
    save = partial(store.save_trigger_state, {PROJECT!r}, {NAME!r})
    trigger.bind(TriggerContext({NAME!r}, state=state, saver=save))
    trigger.configure({CONFIG!r})
    async for event in trigger.watch():
        await store.enqueue({PROJECT!r}, {QUEUE!r}, {NAME!r}, event)
        print(event.data["tick"], flush=True)

asyncio.run(main())
"""


async def test_a_timer_that_is_killed_loses_no_tick_and_repeats_none(tmp_path: Path) -> None:
    path = tmp_path / "amplifier.db"
    for _ in range(KILLS):
        _kill_after_some_ticks(path)
    store = open_inbox(load_plugins(environ={}), path=path)
    try:
        deliveries = await store.deliveries(project=PROJECT, limit=100_000)
        state = await store.trigger_state(PROJECT, NAME)
        context = TriggerContext(NAME, state=state)
        later = await check_trigger(TimerTrigger, CONFIG, provoke=lambda: None, context=context)
    finally:
        await store.close()
    events = [each.event for each in reversed(deliveries)] + later
    assert [event.data["tick"] for event in events] == list(range(1, len(events) + 1))
    assert len({event.dedupe_key for event in events}) == len(events)
    dues = [datetime.fromisoformat(event.data["scheduled"]) for event in events]
    assert {after - before for before, after in pairwise(dues)} == {timedelta(milliseconds=50)}


def _kill_after_some_ticks(path: Path) -> None:
    environment = {**os.environ, "AMPLIFIER_HOME": str(path.parent)}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(path)], stdout=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        for _ in range(5):
            assert process.stdout.readline().strip().isdigit()
        process.send_signal(signal.SIGKILL)
        process.stdout.read()
        assert process.wait() == -signal.SIGKILL
