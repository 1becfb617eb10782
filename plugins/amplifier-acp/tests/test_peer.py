"""Questions to the editor."""

from __future__ import annotations

import asyncio
import os

from amplifier_acp.peer import Peer


async def test_an_answer_that_comes_just_before_the_cancellation_is_taken_and_nothing_is_withdrawn() -> None:
    (reading, answering), (reader, writing) = os.pipe(), os.pipe()
    peer, late = Peer({}, {}), list[dict[str, str]]()
    serving = asyncio.create_task(peer.serve(reading, writing, asyncio.Event().wait()))
    await asyncio.sleep(0)
    asking = asyncio.create_task(peer.request("terminal/create", {}, take_late=late.append))
    await asyncio.sleep(0)

    peer._take(b'{"jsonrpc": "2.0", "id": "amplifier-1", "result": {"terminalId": "t"}}')
    asking.cancel()
    await asyncio.wait({asking})

    assert asking.cancelled()
    assert late == [{"terminalId": "t"}]
    serving.cancel()
    await asyncio.wait({serving})
    peer.close()
    assert os.read(reader, 4_096).count(b"\n") == 1  # the question alone
    for descriptor in (answering, reader, writing, reading):
        os.close(descriptor)
