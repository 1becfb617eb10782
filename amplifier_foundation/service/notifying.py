"""What a process tells the service manager that started it: systemd's protocol, a datagram each."""

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


class Notifier:
    """Tells whoever started this process how it fares; nobody where `NOTIFY_SOCKET` is not set.

    The variables are taken out of `environ`, so that what this process starts does not speak in its name.
    """

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        self._address = environ.pop("NOTIFY_SOCKET", "")
        period, process = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
        watched = self._address and period.isdecimal() and process in ("", str(os.getpid()))
        self._period = int(period) / 1_000_000 if watched else 0.0

    def tell(self, state: str) -> None:
        """Send a state such as `READY=1`; nobody who hears it changes nothing."""
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.connect(address)
                sender.send(state.encode())
        except OSError as error:
            logger.warning("the service manager cannot be told %s: %s", state, error)

    @contextmanager
    def ready(self, status: str) -> Iterator[None]:
        """Tell that it is ready when the block begins, and that it stops when the block ends."""
        self.tell(f"READY=1\nSTATUS={status}")
        try:
            yield
        finally:
            self.tell("STOPPING=1")

    async def pings(self) -> None:
        """Tell twice in each period of the watchdog that the event loop runs, until cancelled."""
        while self._period > 0:
            self.tell("WATCHDOG=1")
            await asyncio.sleep(self._period / 2)
