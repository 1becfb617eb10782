"""The output of a process, as an error quotes it."""

from __future__ import annotations

import asyncio
import socket

from amplifier_foundation.isolation.printed import QUOTED, Printed


async def test_the_quoted_end_of_an_output_begins_with_a_word() -> None:
    printed = Printed("process", None, lambda: None)
    own, other = socket.socketpair()
    with own, other:
        own.setblocking(False)
        other.sendall(b"remarkable " * 99)
        other.shutdown(socket.SHUT_WR)
        await asyncio.wait_for(printed.drain(own), 60)
    quoted = printed.quote_end()
    assert len(quoted) <= QUOTED + 2
    assert set(quoted.split()) == {"…", "remarkable"}
