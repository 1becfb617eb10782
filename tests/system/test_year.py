"""A year of simulated time: timers and events wake real sessions, and the store stays within `retention.max_size`.

`DAYS` is how many days pass; `make year` lets 365 pass.
"""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

import amplifier_storage_sqlite.store
from amplifier_core import events, load_plugins, storage_records, triggers
from amplifier_core.storage import StoreAdministration
from amplifier_core.testing import VirtualClock
from amplifier_foundation import (
    BackgroundSessionConfig,
    BackgroundSessionManager,
    Bundle,
    EventRouter,
    PreparedBundle,
    open_inbox,
)
from amplifier_foundation.background.retention import Retention, purging

DAYS = int(os.environ.get("DAYS", "6"))
TICKS = 12
"""A day; each tick has a chained event."""
ROOM = 60_000 + DAYS * 25_000
"""Bytes that the bound leaves beside an empty store."""

PAGE = 4096
"""Bytes of a page of the store: sizes are whole pages."""

TICKED = BackgroundSessionConfig(
    name="ticked",
    triggers=[{"module": "trigger-timer", "config": {"interval": f"{24 // TICKS}h"}}],  # type: ignore[list-item]
    instruction_template="Report {scheduled}.",
    on_complete_emit="report:done",
)
CHAINED = BackgroundSessionConfig(
    name="chained",
    triggers=[{"module": "trigger-session-event", "config": {"event_names": ["report:done"]}}],  # type: ignore[list-item]
)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualClock:
    """The clock of everything that stamps a record."""
    clock = VirtualClock()

    class Dated(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return clock.now()

    monkeypatch.setattr(storage_records, "datetime", Dated)
    monkeypatch.setattr(triggers, "datetime", Dated)
    monkeypatch.setattr(events, "datetime", SimpleNamespace(datetime=Dated, UTC=UTC))
    monkeypatch.setattr(amplifier_storage_sqlite.store, "_now", clock.now)
    return clock


async def test_a_year_of_timers_and_events_stays_within_its_bound(
    tmp_path: Path, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    plugins = load_plugins(environ={})
    store = open_inbox(plugins, path=tmp_path / "amplifier.db")
    administration = getattr(store, "administration", None)
    assert isinstance(administration, StoreAdministration)
    provider = {"module": "provider-playbook", "config": {"otherwise": {"say": "It is done."}}}
    bundle = PreparedBundle.of(Bundle.from_dict({"bundle": {"name": "year"}, "providers": [provider]}, tmp_path))
    parent = await bundle.create_session(session_id="parent", session_cwd=tmp_path)
    router, finished, sizes = EventRouter(store, clock=clock), 0, []
    await store.sessions()
    empty = administration.size()[0]
    bound = empty + ROOM

    async with (
        BackgroundSessionManager(parent, router, store, plugins=plugins, bundle=bundle, clock=clock) as manager,
        purging(store, clock, Retention(keep=5, max_size=bound)),
    ):
        ended: list[str] = []
        manager._engine.observers.append(lambda activity: ended.append(activity.kind))
        manager._engine.lease = 1e9  # the clock is ahead of the disk
        manager._engine.poll = 60.0  # no other process writes: a look each second is all that a day would be
        await manager.start(TICKED)
        await manager.start(CHAINED)
        for _ in range(DAYS):
            for _ in range(TICKS):
                await clock.advance(24 / TICKS * 3600)
                finished += 2
                async with asyncio.timeout(60):
                    while ended.count("completed") < finished:
                        await asyncio.sleep(0.001)
            size, free = await asyncio.to_thread(administration.size)
            sizes.append(size - free)
    kept = await store.sessions(limit=10**6)
    await parent.cleanup()
    await store.close()

    growth = (sizes[1] - empty) / 2  # bytes a day, before anything is forgotten
    assert max(sizes) <= bound + 2 * growth / TICKS + 2 * PAGE  # a tick comes at a purge, or just after it
    assert growth * DAYS > ROOM
    assert "larger than retention.max_size" not in caplog.text
    assert {record.name for record in kept} >= {"ticked", "chained"}
    sys.stdout.write(f"{finished} deliveries in {DAYS} days: at most {max(sizes):,} bytes, bound {bound:,}\n")
