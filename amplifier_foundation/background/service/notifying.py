"""Notify the service manager, by systemd's protocol of datagrams."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping

logger = logging.getLogger(__name__)

ALIVE = "WATCHDOG=1"


class Notifier:
    """Sends states to the service manager; does nothing without `NOTIFY_SOCKET`.

    The variables are taken out of `environ`: child processes must not speak in this one's name.
    """

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        self._address = environ.pop("NOTIFY_SOCKET", "")
        period, process = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
        watched = self._address and period.isdecimal() and process in ("", str(os.getpid()))
        self._period = int(period) / 1_000_000 if watched else 0.0

    def tell(self, state: str) -> None:
        """Send a state such as `READY=1`; the log tells of a manager that does not listen, or is behind.

        A sign of life that finds the queue full is dropped: earlier ones are still in it.
        """
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.connect(address)
                sender.send(state.encode())
        except OSError as error:
            if not (isinstance(error, BlockingIOError) and state == ALIVE):
                logger.warning("the service manager cannot be told %s: %s", state, error)

    @contextmanager
    def ready(self, status: str) -> Iterator[None]:
        """Send `READY` when the block begins, and `STOPPING` when it ends."""
        self.tell(f"READY=1\nSTATUS={status}")
        try:
            yield
        finally:
            self.tell("STOPPING=1")

    async def pings(self) -> None:
        """Send a sign of life twice in each period of the watchdog, until cancelled."""
        while self._period > 0:
            self.tell(ALIVE)
            await asyncio.sleep(self._period / 2)
