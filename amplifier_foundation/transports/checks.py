"""Check the contract of a transport; its author runs the check.

    async def test_the_contract(broker):
        await check_transport(lambda: MyTransport({"address": broker.address}))

The broker is empty. A broken rule raises `AssertionError` with a sentence about it. Nothing here needs a test runner.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from amplifier_core.testing.store_checks.rules import require

from ..hookspecs import Message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ..hookspecs import Transport

COUNT = 20
"""Messages of one check."""


async def check_transport(make: Callable[[], Transport], *, patience: float = 10.0) -> None:
    """Publish from one site, receive at another, and break off in between. `patience` is the most seconds for a step.

    Raises `AssertionError`, and the errors of the transport.
    """
    async with asyncio.timeout(8 * patience):
        await _check_delivery(make)
        await _check_order_after_a_break(make)
        await _check_repetition(make)
        await _check_close(make)


async def _check_delivery(make: Callable[[], Transport]) -> None:
    """Messages that were published before anybody received them come as they are, names and bodies included."""
    sent = [
        _message("berlin", "check:a", "1", b'{"n": 1}'),
        _message("berlin", "check:b:c", "2", "\N{SNOWMAN} \0".encode()),
        _message("berlin", "check:ü. *>%", "3", b""),
    ]
    async with _opened(make, "berlin") as berlin, _opened(make, "oslo", "check:*") as oslo:
        refused = await berlin.publish(sent)
        require(not refused, f"publish must send all messages: {refused}")
        received = await _receive(oslo, len(sent))
        require(received == sent, f"receive must yield messages as they were sent, in their order: {received}")


async def _check_order_after_a_break(make: Callable[[], Transport]) -> None:
    """What was received and not acknowledged comes first on the next connection."""
    sent = [_message("berlin", "check:order", f"o{number}") for number in range(COUNT)]
    async with _opened(make, "berlin") as berlin:
        await berlin.publish(sent)
    async with _opened(make, "oslo", "check:*") as oslo:
        first = await _receive(oslo, COUNT // 2, unacknowledged=3)
    require(first == sent[: COUNT // 2], "receive must yield messages in the order in which they were published")
    async with _opened(make, "oslo", "check:*") as oslo:
        rest = await _receive(oslo, COUNT - COUNT // 2 + 3)
    expected = sent[COUNT // 2 - 3 :]
    require(rest == expected, f"unacknowledged messages must come again, before those behind them: {rest}")


async def _check_repetition(make: Callable[[], Transport]) -> None:
    """A message published again harms nothing, and those behind it come."""
    again, last = _message("berlin", "check:again", "again"), _message("berlin", "check:last", "last")
    async with _opened(make, "berlin") as berlin, _opened(make, "oslo", "check:*") as oslo:
        for messages in ([again], [again], [last]):
            await berlin.publish(messages)
        received = await _receive(oslo, 3, until=last)
        require(set(received) == {again, last}, f"only what was published may come: {received}")


async def _check_close(make: Callable[[], Transport]) -> None:
    """A closed transport publishes nothing, and says so; closing is idempotent, also before `open`."""
    transport = make()
    await transport.close()
    transport = make()
    await transport.open("berlin", ())
    await transport.close()
    await transport.close()
    try:
        await transport.publish([_message("berlin", "check:closed", "closed")])
    except Exception:
        return
    raise AssertionError("publish must raise an error when the connection is closed")


def _message(site: str, name: str, event_id: str, body: bytes = b"{}") -> Message:
    return Message(f"{site}.{event_id}", site, name, body)


async def _receive(
    transport: Transport, count: int, *, unacknowledged: int = 0, until: Message | None = None
) -> list[Message]:
    """Return the next messages, at most up to `until`, and acknowledge all but the last ones."""
    received: list[Message] = []
    messages = transport.receive()
    async for message, acknowledge in messages:
        received.append(message)
        if len(received) <= count - unacknowledged:
            await acknowledge()
        if len(received) == count or message == until:
            break
    if (aclose := getattr(messages, "aclose", None)) is not None:
        await aclose()
    return received


@asynccontextmanager
async def _opened(make: Callable[[], Transport], site: str, *names: str) -> AsyncIterator[Transport]:
    transport = make()
    await transport.open(site, names)
    try:
        yield transport
    finally:
        await transport.close()
