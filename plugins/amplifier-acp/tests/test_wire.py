"""Lines on descriptors."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from amplifier_acp import wire as wires
from amplifier_acp.wire import LineTooLong, Wire

if TYPE_CHECKING:
    import pytest


async def test_a_sender_goes_on_when_all_was_written_before_it_began_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wires, "HIGH_WATER", 100)
    (reading, writing), (nothing, other) = os.pipe(), os.pipe()
    wire = Wire(nothing, writing, lambda _: None)
    wire.start()
    wire.send({"text": "x" * 200})
    while wire.is_full:  # this loop is busy, as with another message
        os.sched_yield()
    await asyncio.wait_for(wire.drain(), 60)
    wire.close()
    for descriptor in (other, reading, writing):
        os.close(descriptor)


async def test_pipes_that_do_not_block_carry_everything() -> None:
    (reading, theirs), (their_reading, writing) = os.pipe(), os.pipe()
    for descriptor in (reading, writing):
        os.set_blocking(descriptor, False)
    taken: asyncio.Queue[bytes | LineTooLong | None] = asyncio.Queue()
    wire = Wire(reading, writing, taken.put_nowait)
    wire.start()
    wire.send({"text": "x" * 1_000_000})
    with os.fdopen(their_reading, "rb") as reader:
        line = await asyncio.to_thread(reader.readline)  # the pipe was full in between
        os.write(theirs, b"{}\n")
        assert await asyncio.wait_for(taken.get(), 60) == b"{}"
        os.close(theirs)
        assert await asyncio.wait_for(taken.get(), 60) is None
        wire.close()
    assert len(line) == len('{"text":""}\n') + 1_000_000
    for descriptor in (reading, writing):
        os.close(descriptor)
