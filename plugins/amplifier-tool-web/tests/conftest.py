"""A web server on this machine that answers as a test says, and a session's tool."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from amplifier_core import ModuleCoordinator
from amplifier_tool_web import mount

Answer = bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Answers each request by its path; `seen` has the lines and headers of all of them."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.seen: list[str] = []
        self.port = 0
        self.connections = 0

    def url(self, path: str = "/", host: str = "pages.test") -> str:
        return f"http://{host}:{self.port}{path}"

    def put(
        self, path: str, body: bytes | str, kind: str = "text/html", status: str = "200 OK", more: str = ""
    ) -> None:
        data = body if isinstance(body, bytes) else body.encode()
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n{more}\r\n"
        self.answers[path] = head.encode() + data

    def redirect(self, path: str, location: str) -> None:
        self.put(path, "", status="302 Found", more=f"Location: {location}\r\n")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.seen.append(head)
            answer = self.answers.get(head.split()[1], b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            if callable(answer):
                await answer(writer)
            else:
                writer.write(answer)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """A server on 127.0.0.1."""
    made = Server()
    listening = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = listening.sockets[0].getsockname()[1]
    yield made
    listening.close()


class Names(dict[str, list[str]]):
    """The addresses of names; `asked` has the names in the order of the questions."""

    asked: list[str]


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    """The only names there are; no question leaves this machine. No proxy of the environment is used."""
    found, resolve = Names({"pages.test": ["127.0.0.1"], "other.test": ["127.0.0.1"]}), socket.getaddrinfo
    found.asked = []

    def look_up(host: Any, port: Any, *args: Any, **more: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else str(host)
        if not name[-1].isdecimal() and ":" not in name:
            found.asked.append(name)
            if name not in found:
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            addresses = found[name] if len(found[name]) < 2 or name != "rebind.test" else [found[name].pop(0)]
            return [each for address in addresses for each in resolve(address, port, *args, **more)]
        return resolve(host, port, *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return found


Fetch = Callable[..., Awaitable[Any]]


@pytest.fixture
async def coordinator() -> ModuleCoordinator:
    return ModuleCoordinator(session_id="test")


@pytest.fixture
def fetch(coordinator: ModuleCoordinator) -> Fetch:
    """Fetch with a configuration of the test; `pages.test` and `other.test` may be asked."""

    async def fetch(url: Any, offset: Any = 0, **config: Any) -> Any:
        if coordinator.get("tools", "web_fetch") is None:
            await mount(coordinator, {"internal": ["pages.test", "other.test"], **config})
        return await coordinator.get("tools", "web_fetch").execute({"url": url, "offset": offset})

    return fetch
