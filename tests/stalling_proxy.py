"""Stand between a client and a server of 127.0.0.1 (or a unix socket), and be a bad network on demand.

with StallingProxy(("127.0.0.1", 5432)) as proxy:      # or StallingProxy("/tmp/x/.s.PGSQL.5432")
    connect(port=proxy.port)
    proxy.stall()            # bytes are taken and kept: neither side sees an error
    proxy.stall(to="client") # only the answers are kept
    proxy.resume()           # kept bytes are delivered
    proxy.cut()              # connections are closed, kept bytes are lost; new ones are made again
    proxy.refuse()           # … and new ones are closed at once, until `resume`
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Literal, Self

Side = Literal["client", "server"]


class StallingProxy:
    """Forward connections with two threads each; usable from any thread."""

    def __init__(self, server: tuple[str, int] | str, address: str = "127.0.0.1") -> None:
        self._server = server
        self._changed = threading.Condition()
        self._stalled: frozenset[Side] = frozenset()
        self._refuses = self._closed = False
        self._sockets: set[socket.socket] = set()
        self.seen = {"client": 0, "server": 0}
        """Bytes that came for each side so far."""
        self._listener = socket.create_server((address, 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def stall(self, to: Side | None = None) -> None:
        """Keep the bytes for one side, or for both."""
        self._set(frozenset({to}) if to else frozenset({"client", "server"}))

    def resume(self) -> None:
        """Deliver what was kept, and take connections."""
        self._refuses = False
        self._set(frozenset())

    def cut(self) -> None:
        """Close all connections; what was kept is lost."""
        with self._changed:
            sockets, self._sockets = self._sockets, set()
            self._changed.notify_all()
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def refuse(self) -> None:
        """Close all connections, and new ones at once."""
        self._refuses = True
        self.cut()

    def wait_for(self, side: Side, size: int, timeout: float = 30.0) -> None:
        """Wait until so many bytes came for a side, forwarded or kept."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.seen[side] >= size, timeout), f"{self.seen} for {side}"

    def close(self) -> None:
        """End everything."""
        self._closed = True
        self._listener.close()
        self.cut()

    def _set(self, stalled: frozenset[Side]) -> None:
        with self._changed:
            self._stalled = stalled
            self._changed.notify_all()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                if self._refuses or self._closed:
                    client.close()
                    continue
                family = socket.AF_UNIX if isinstance(self._server, str) else socket.AF_INET
                server = socket.socket(family)
                try:
                    server.connect(self._server)
                except OSError:
                    client.close()
                    server.close()
                    continue
                with self._changed:
                    self._sockets |= {client, server}
                open_ways: list[Side] = ["client", "server"]
                for source, target, side in ((client, server, "server"), (server, client, "client")):
                    threading.Thread(target=self._forward, args=(source, target, side, open_ways), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, side: Side, open_ways: list[Side]) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                with self._changed:
                    self.seen[side] += len(data)
                    self._changed.notify_all()
                    self._changed.wait_for(lambda: side not in self._stalled or source not in self._sockets)
                    if source not in self._sockets:
                        break
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)
        with self._changed:
            open_ways.remove(side)
            if not open_ways:
                self._sockets -= {source, target}
                source.close()
                target.close()
