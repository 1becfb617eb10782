"""Carry lines between the editor and this process, and keep everything else off stdout.

A thread reads, so that files and pipes serve alike; another writes, so that an editor that does not read holds up no
session.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import threading
from contextlib import suppress
from select import select
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

LONGEST_LINE = 64 * 1024 * 1024
"""Bytes of a message; images come in messages."""
MOST_WAITING = 1_000
"""Lines that are read before the first of them is handled."""
HIGH_WATER = 4 * 1024 * 1024
"""Bytes that wait to be written before a sender waits, too."""
_CHUNK = 1 << 16


class LineTooLong(ValueError):
    """A line is longer than `LONGEST_LINE`; it is dropped."""


def take_stdio() -> tuple[int, int]:
    """Return descriptors of stdin and stdout for the protocol alone.

    From here on, whatever else reads stdin finds its end, and whatever writes to stdout writes to stderr: prints of
    plugins, and of programs that they start.
    """
    reading, writing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return reading, writing


class Wire:
    """Lines of JSON on two descriptors. `take` is called in the event loop with each line, and with None at the end."""

    def __init__(self, reading: int, writing: int, take: Callable[[bytes | LineTooLong | None], None]) -> None:
        self._reading = reading
        self._writing = writing
        self._take = take
        self.loop = asyncio.get_running_loop()
        self._room = threading.Semaphore(MOST_WAITING)
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._waiting = 0
        self._drained = asyncio.Event()
        self._drained.set()
        self._is_broken = False
        self._writer = threading.Thread(target=self._write, name="protocol writer", daemon=True)

    def start(self) -> None:
        """Begin to read and to write."""
        self._writer.start()
        threading.Thread(target=self._read, name="protocol reader", daemon=True).start()

    def send(self, message: dict[str, Any]) -> None:
        """Write a message after all sent before; any thread may call this. Half a surrogate pair becomes `?`."""
        line = _encode(message) + b"\n"
        with self._lock:
            self._waiting += len(line)
            self._outgoing.put(line)
            is_full = self._waiting > HIGH_WATER
        if is_full:
            self._call(self._hold)

    def _hold(self) -> None:
        """Have senders wait, unless all is written meanwhile: nothing would wake them up."""
        with self._lock:
            if self._waiting > HIGH_WATER:
                self._drained.clear()

    async def drain(self) -> None:
        """Wait until the editor has read most of what was sent; call this in the event loop of the wire."""
        await self._drained.wait()

    @property
    def is_full(self) -> bool:
        """Whether a sender should wait."""
        return self._waiting > HIGH_WATER

    def close(self, patience: float = 2.0) -> None:
        """Write what was sent, as long as the editor reads it."""
        self._outgoing.put(None)
        self._writer.join(patience)

    def handled(self) -> None:
        """Tell that a line is handled: another one may come."""
        self._room.release()

    def _read(self) -> None:
        """Hand over lines; a line without an end is no message."""
        pending, searched, is_dropped = bytearray(), 0, False
        while piece := self._read_piece():
            pending += piece
            while (end := pending.find(b"\n", searched)) >= 0:
                line = bytes(pending[:end])
                del pending[: end + 1]
                searched = 0
                if line.strip() or is_dropped:
                    self._hand_over(LineTooLong() if is_dropped else line)
                is_dropped = False
            searched = len(pending)
            if searched > LONGEST_LINE:
                pending.clear()
                searched, is_dropped = 0, True
        self._hand_over(None)

    def _read_piece(self) -> bytes:
        while True:
            try:
                return os.read(self._reading, _CHUNK)
            except BlockingIOError:  # the editor may have set `O_NONBLOCK` for both sides
                select((self._reading,), (), ())
            except OSError:
                return b""

    def _hand_over(self, line: bytes | LineTooLong | None) -> None:
        self._room.acquire()
        self._call(self._take, line)

    def _write(self) -> None:
        while (line := self._outgoing.get()) is not None:
            try:
                left = memoryview(line)
                while left and not self._is_broken:
                    try:
                        left = left[os.write(self._writing, left) :]
                    except BlockingIOError:  # the editor reads slowly
                        select((), (self._writing,), ())
            except OSError:  # the editor is gone
                self._is_broken = True
                self._call(self._take, None)
            with self._lock:
                self._waiting -= len(line)
                is_low = self._waiting <= HIGH_WATER // 2 and not self._drained.is_set()
            if is_low:
                self._call(self._drained.set)

    def _call(self, function: Callable[..., Any], *arguments: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(function, *arguments)


def _encode(message: dict[str, Any]) -> bytes:
    try:
        text = json.dumps(message, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:  # NaN and infinity are no JSON; the arguments of a model's call may hold them
        text = json.dumps(_without_nan(message), ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _without_nan(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(each) for each in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value
