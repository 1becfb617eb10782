"""A watcher on a real folder, and what it yields."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from amplifier_core.clock import SystemClock
from amplifier_core.triggers import TriggerContext, TriggerEvent
from amplifier_trigger_file_watcher import FileChangeTrigger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from amplifier_core.clock import Clock

LAST = "zz-last.txt"
"""A file that is written last: what has not fired before it does not fire at all."""


@dataclass
class Watcher:
    """A trigger that is consumed, the last state that a store would hold, and the keys it has seen."""

    folder: Path
    state: Mapping[str, Any] = field(default_factory=dict)
    trigger: FileChangeTrigger = field(default_factory=FileChangeTrigger)
    events: asyncio.Queue[TriggerEvent] = field(default_factory=asyncio.Queue)
    problems: list[str | None] = field(default_factory=list)

    async def save(self, state: Mapping[str, Any], *, merge: bool = False) -> None:
        """Store a state, or changes of some of its keys; None deletes one."""
        changes = json.loads(json.dumps(state))
        kept = {**self.state, **changes} if merge else changes
        self.state = {key: value for key, value in kept.items() if value is not None}

    async def consume(self) -> None:
        async for event in self.trigger.watch():
            if event.state_changes is not None:
                await self.save(event.state_changes, merge=True)
            self.events.put_nowait(event)

    async def next(self) -> TriggerEvent:
        return await asyncio.wait_for(self.events.get(), 60)

    async def until_noticed(self, *paths: str) -> None:
        """Return when changes of all these paths wait until they are due."""
        async with asyncio.timeout(60):
            while not self.trigger._detector._debounce._first.keys() >= set(paths):
                await asyncio.sleep(0.001)

    async def next_change(self) -> tuple[str | None, str | None]:
        event = await self.next()
        return event.change_type, event.file_path

    async def changes(self) -> list[tuple[str | None, str | None]]:
        """Write the last file; return what fired before it did."""
        (self.folder / LAST).write_text(uuid4().hex)
        found = []
        while (change := await self.next_change())[1] != LAST:
            found.append(change)
        return found


class Capabilities(ctypes.Structure):
    """The argument of `capget` and `capset`: effective, permitted and inheritable ones, 32 bits each, low and high."""

    _fields_ = (("bits", ctypes.c_uint32 * 6),)


@pytest.fixture
def plain_user() -> Iterator[None]:
    """Take the right to read everything, as root has it, from this thread and those started by it."""
    if os.geteuid() != 0:
        yield
        return
    libc, header, held = ctypes.CDLL(None), (ctypes.c_uint32 * 2)(0x20080522, 0), Capabilities()
    assert libc.capget(header, ctypes.byref(held)) == 0
    fewer = Capabilities((ctypes.c_uint32 * 6)(*held.bits))
    fewer.bits[0] &= ~0b110  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH
    assert libc.capset(header, ctypes.byref(fewer)) == 0
    yield
    assert libc.capset(header, ctypes.byref(held)) == 0


@pytest.fixture
def watching(tmp_path: Path) -> Callable[..., AbstractAsyncContextManager[Watcher]]:
    """Return what watches a folder, the temporary one, with a configuration."""

    @asynccontextmanager
    async def watch(
        folder: Path = tmp_path,
        state: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
        own_writes: Mapping[str, str] | None = None,
        **config: Any,
    ) -> AsyncIterator[Watcher]:
        watcher = Watcher(folder, state or {})
        watcher.trigger.bind(
            TriggerContext(
                "tests/watcher#0",
                working_dir=folder,
                state=watcher.state,
                clock=clock or SystemClock(),
                saver=watcher.save,
                reporter=watcher.problems.append,
                own_writes=own_writes if own_writes is not None else {},
            )
        )
        watcher.trigger.configure({"debounce_ms": 20, **config})
        task = asyncio.create_task(watcher.consume())
        await watcher.trigger.ready()
        yield watcher
        await watcher.trigger.stop()
        await asyncio.wait_for(task, 60)

    return watch
