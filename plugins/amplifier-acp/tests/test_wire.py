"""Lines on descriptors."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from amplifier_acp import wire as wires
from amplifier_acp.wire import Wire

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
