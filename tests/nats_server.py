"""Run the real `nats-server` with a JetStream folder of its own; tests stop it, kill it and start it again."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tests.programs import require

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATIENCE = 30.0
"""Seconds for a server to listen."""


class NatsServer:
    """A broker on 127.0.0.1; its port and its folder stay over a restart."""

    def __init__(self, folder: Path, more: str = "", *, jetstream: bool = True) -> None:
        self._program = require("nats-server")
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.port = _free_port()
        folder.mkdir(parents=True, exist_ok=True)
        kept = f'jetstream {{ store_dir: "{folder}" }}' if jetstream else ""
        (folder / "server.conf").write_text(f'listen: "127.0.0.1:{self.port}"\n{kept}\n{more}\n')

    @property
    def url(self) -> str:
        """Its address."""
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and return when it listens."""
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._program, "-c", str(self._folder / "server.conf")], stdout=log, stderr=log
            )
        end = time.monotonic() + PATIENCE
        while not _listens(self.port):
            said = (self._folder / "server.log").read_text()
            assert self._process.poll() is None, said
            assert time.monotonic() < end, said
            time.sleep(0.02)

    def stop(self) -> None:
        """End it in order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None


@contextmanager
def nats_server(folder: Path, more: str = "", *, jetstream: bool = True) -> Iterator[NatsServer]:
    """Run a server while the block runs; `more` are lines of its configuration."""
    server = NatsServer(folder, more, jetstream=jetstream)
    server.start()
    try:
        yield server
    finally:
        server.kill()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
