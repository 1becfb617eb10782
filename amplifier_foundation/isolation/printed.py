"""Read what a process prints: count it, keep its end, and end a process that prints too much."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

logger = logging.getLogger(__name__)

TAIL = 4_096
"""Bytes of the end of its output that are kept for an error."""
QUOTED = 500
"""Characters of them that the error shows."""


class Printed:
    """The output of one process, as it comes from a socket."""

    def __init__(self, name: str, most: int | None, kill: Callable[[], None]) -> None:
        self.size = 0
        """Bytes so far."""
        self._name = name
        self._most = most
        self._kill = kill
        self._tail = b""

    @property
    def is_too_much(self) -> bool:
        """Whether the process printed more than it may."""
        return self._most is not None and self.size > self._most

    async def drain(self, own: socket.socket) -> None:
        """Read until the other end is closed."""
        loop = asyncio.get_running_loop()
        with suppress(ConnectionResetError, BrokenPipeError):
            while chunk := await loop.sock_recv(own, 2**16):
                self.size += len(chunk)
                if logger.isEnabledFor(logging.DEBUG):
                    logger.debug("%s: %s", self._name, _redact(chunk))
                self._tail = (self._tail + chunk)[-TAIL:]
                if self.is_too_much:
                    self._kill()

    def quote_end(self) -> str:
        """Return the end of the output in one line, with secrets redacted."""
        text = " ".join(_redact(self._tail).split())
        return text if len(text) <= QUOTED else f"… {text[-QUOTED:].partition(' ')[2] or text[-QUOTED:]}"


def _redact(data: bytes) -> str:
    from amplifier_core.utils.secrets import redact_text

    return redact_text(data.decode(errors="replace"))
