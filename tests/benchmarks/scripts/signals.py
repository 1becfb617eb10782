"""What one signal of blinker costs, by how many receivers are connected to it."""

from __future__ import annotations

from functools import partial
from typing import Any

from answering import answer, seconds_of
from blinker import Signal


def _sending(receivers: int) -> Any:
    signal = Signal()
    connected = [partial(_receive, number) for number in range(receivers)]
    for receiver in connected:
        signal.connect(receiver, weak=False)

    async def send() -> None:
        signal.send("session-1", data={"task_id": "123", "n": 1})

    return lambda: seconds_of(send)


def _receive(number: int, sender: str, data: dict[str, Any]) -> None:
    """Take an event, and do nothing with it."""


answer(**{f"send_{receivers}": _sending(receivers) for receivers in (1, 10, 1_000)})
