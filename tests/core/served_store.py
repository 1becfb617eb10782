"""Serve one store in memory to several processes, by a unix socket: a shared store without a database."""

from __future__ import annotations

import asyncio
import socket
import socketserver
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from amplifier_core.documents import DocumentStore
from amplifier_core.shared_stores import ReceivingStore, SharedStore
from amplifier_core.testing import SharedMemoryStore
from amplifier_core.testing.store_checks.processes import make_error
from amplifier_core.testing.store_process import execute_command
from amplifier_core.testing.wire_values import read_json, write_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

METHODS = {
    name
    for contract in (SharedStore, DocumentStore, ReceivingStore)
    for name in dir(contract)
    if not name.startswith("_") and name not in ("fenced", "listen", "read_sync", "close")
}


class StoreServer(socketserver.ThreadingUnixStreamServer):
    """Execute the commands of all connections on `store`, one at a time; a test may replace the store."""

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), _Connection)
        self.store = SharedMemoryStore()
        self.lock = threading.Lock()


class _Connection(socketserver.StreamRequestHandler):
    server: StoreServer

    def handle(self) -> None:
        for line in self.rfile:
            command = read_json(line.decode())
            if command["call"] == "listen":
                self._tell_news()
                return
            with self.server.lock:
                answer = asyncio.run(execute_command(self.server.store, command))
            self._say(answer)

    def _tell_news(self) -> None:
        end = self.server.store.listen(lambda: self._say("news"))
        self._say("listening")
        with suppress(OSError):
            self.rfile.read()  # until the listener ends
        end()

    def _say(self, line: str) -> None:
        with suppress(OSError):  # the other process is gone
            self.wfile.write(f"{line}\n".encode())


@contextmanager
def serve_store(folder: Path) -> Iterator[StoreServer]:
    """Serve a store at `folder / "store"` until the block ends."""
    with StoreServer(folder / "store") as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class ServedStore:
    """One process's object of the store; each of its methods is one command."""

    def __init__(self, path: str, fence: Any = None) -> None:
        self._path, self._fence = path, fence
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._lines = self._socket.makefile("rw")

    def fenced(self, delivery: Any) -> ServedStore:
        return type(self)(self._path, delivery)

    def listen(self, told: Callable[[], None]) -> Callable[[], None]:
        hearing = ServedStore(self._path)
        hearing._exchange({"call": "listen"})

        def hear() -> None:
            for _ in hearing._lines:
                told()

        def end() -> None:
            with suppress(OSError):
                hearing._socket.shutdown(socket.SHUT_RDWR)

        threading.Thread(target=hear, daemon=True).start()
        return end

    def read_sync(self, *arguments: Any) -> Any:
        return self.call("read_sync", *arguments)

    async def close(self) -> None:
        self._lines.close()
        self._socket.close()

    def call(self, method: str, *arguments: Any, **named: Any) -> Any:
        command = {"call": method, "arguments": arguments, "named": named, "fence": self._fence}
        answer = read_json(self._exchange(command))
        if "error" in answer:
            raise make_error(answer["error"], answer["message"])
        return answer["result"]

    def _exchange(self, command: Mapping[str, Any]) -> str:
        print(write_json(command), file=self._lines, flush=True)
        return self._lines.readline()


def _method(name: str) -> Any:
    async def method(self: ServedStore, *arguments: Any, **named: Any) -> Any:
        await asyncio.sleep(0)  # other tasks of the process come between
        return self.call(name, *arguments, **named)

    return method


for _name in METHODS:
    setattr(ServedStore, _name, _method(_name))


def open_served(config: Mapping[str, Any]) -> ServedStore:
    """Open the store that is served at `config["path"]`."""
    return ServedStore(config["path"])
