"""What one event costs with callbacks, by how many are called: a signal of blinker, an emitter of pyee."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from answering import answer, seconds_of
from blinker import Signal
from pyee import EventEmitter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

READERS = (1, 10, 1_000)


def _with_blinker(readers: int) -> Callable[[], Awaitable[float]]:
    signal = Signal()
    connected = [partial(_receive, number) for number in range(readers)]
    for receiver in connected:
        signal.connect(receiver, weak=False)

    async def send() -> None:
        signal.send("session-1", data={"task_id": "123", "n": 1})

    return lambda: seconds_of(send)


def _with_pyee(readers: int) -> Callable[[], Awaitable[float]]:
    emitter = EventEmitter()
    for number in range(readers):
        emitter.on("work:done", partial(_receive, number))

    async def emit() -> None:
        emitter.emit("work:done", "session-1", data={"task_id": "123", "n": 1})

    return lambda: seconds_of(emit)


def _receive(number: int, sender: str, data: dict[str, Any]) -> None:
    """Take an event, and do nothing with it."""


PEERS = {"blinker": _with_blinker, "pyee": _with_pyee}

answer(**{f"{name}_{readers}": make(readers) for name, make in PEERS.items() for readers in READERS})
