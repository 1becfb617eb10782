"""Keep one server connected: start it, list what it offers, start it again when it is lost, and end it.

starting ──listed──▶ ready ──lost──▶ starting (after a pause that doubles, up to a minute) … ──▶ closed

One task holds the connection from its beginning to its end. Calls come from any task of the same event loop; they wait
for a server that is starting, and fail when theirs is lost.
"""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, TypeVar

from .errors import EFFECT, UNREADABLE, CallRefused, InvalidAnswer, ServerError, ServerLost, describe_error
from .listing import Listing, plain, read_listing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from mcp import Client, MCPError

    from .servers import Server
    from .stdio import Program

    T = TypeVar("T")
    Update = Callable[["Connection"], Awaitable[None]]

DISCOVERING = 3.0
"""Seconds for a server to answer the newest protocol's first request; then the older protocol is spoken.

The SDK waits 10 seconds, as long as a session waits for its servers.
"""
CONNECTING = 60.0
"""Seconds to start a server and to read its lists."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0
"""Seconds before a lost server is started again."""
WHOLE = 30.0
"""Seconds that a connection holds before the pauses begin anew."""
BETWEEN_LISTS = 0.5
"""Seconds between two readings of a server's lists."""
ANSWERS_WITHIN = 5.0
"""Seconds to answer a ping after a call that took too long; a server that does not is started again."""
ENDING = 4.0
"""Seconds to end a connection in order."""


class Connection:
    """The connection to one server; `update` is called whenever it has listed what the server offers."""

    def __init__(self, server: Server, update: Update | None = None) -> None:
        self.server = server
        self.listing = Listing()
        self.problem = ""
        """Why it is not connected."""
        self.is_settled = asyncio.Event()
        """Set once the first attempt has succeeded or failed."""
        self._update = update
        self._client: Client | None = None
        self._ready = asyncio.Event()
        self._lost = asyncio.Event()
        self._closing = asyncio.Event()
        self._failures = 0
        self._failing = asyncio.Event()
        """Set while it was started again in vain: no call waits for it."""
        self._program: Program | None = None
        self._sieve: Any = None
        self._http: Any = None
        self._scripts: dict[Path, str] | None = None
        """The digests of the scripts of its command at the first start."""

    @property
    def is_ready(self) -> bool:
        """Whether it can be asked now."""
        return self._client is not None

    @property
    def client(self) -> Client:
        """The SDK's client. Raises `ServerError` while it is not connected."""
        if self._client is None:
            raise ServerError(f"the MCP server '{self.server.name}' is not connected: {self.problem or 'it starts'}")
        return self._client

    def describe_missing(self, seconds: float) -> str:
        """Return that the server is not connected after so many seconds, and why."""
        why = self.problem or f"it is not ready after {seconds:g} seconds"
        return f"the MCP server '{self.server.name}' is missing: {why}"

    async def run(self) -> None:
        """Hold the connection until `close`."""
        loop = asyncio.get_running_loop()
        while not self._closing.is_set():
            begun = loop.time()
            try:
                await self._hold()
            except Exception as error:
                self.problem = self._describe(error)
            finally:
                self._client = None
                self._ready.clear()
                self.is_settled.set()
            if self._closing.is_set():
                return
            self._failures = 1 if loop.time() - begun > WHOLE else self._failures + 1
            if self._failures > 1:
                self._failing.set()
            pause = min(FIRST_PAUSE * 2 ** min(self._failures - 1, 10), LONGEST_PAUSE) * random.uniform(0.75, 1.0)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._closing.wait()

    async def close(self, task: asyncio.Task[None]) -> None:
        """End the connection, whose `run` is `task`; one that does not end in order is cut."""
        is_orderly = self._client is not None
        self._closing.set()
        self._lost.set()
        for seconds in (ENDING if is_orderly else 0, ENDING, ENDING):
            await asyncio.wait({task}, timeout=seconds)
            task.cancel()

    async def _hold(self) -> None:
        """Connect once, and return when the connection is lost."""
        self._lost.clear()
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(CONNECTING):
                client = await self._connect(stack)
                await self._read_listing(client)
            if self._update is not None:
                await self._update(self)  # no call is made before the tools that have changed are refused
            self._client, self.problem = client, ""
            self._ready.set()
            self._failing.clear()
            self.is_settled.set()
            try:
                async with asyncio.TaskGroup() as tasks:
                    listening = tasks.create_task(self._listen(client))
                    await self._follow(client)
                    listening.cancel()
            finally:
                self._client = None
                self._ready.clear()
        if not self._closing.is_set():
            self.problem = self._describe(None)

    async def _connect(self, stack: AsyncExitStack) -> Client:
        await asyncio.to_thread(import_sdk)  # it takes a second
        from mcp import Client
        from mcp.client import session
        from mcp_types import Implementation

        from .sieve import Sieve

        session.DISCOVER_TIMEOUT_SECONDS = DISCOVERING  # no argument sets it
        self._sieve = Sieve()
        transport = await self._open()
        about = Implementation(name="amplifier", version=version("amplifier"))
        client = await stack.enter_async_context(Client(transport, client_info=about, cache=None))
        self._sieve.version = client.protocol_version
        return client

    async def _read_listing(self, client: Client) -> None:
        self._sieve.left_out.clear()
        found = await read_listing(client)
        self.listing = replace(found, left_out=(*self._sieve.left_out, *found.left_out))

    async def _open(self) -> Any:
        """Return the transport to the server, not entered yet."""
        from .servers import expand, make_environment

        config = self.server.config
        given = await expand({"argv": [config.command, *config.args], "env": config.env, "cwd": config.cwd})
        if config.command is not None:
            from .stdio import Program

            folder = self.server.folder / (given["cwd"] or ".")
            await asyncio.to_thread(self._check_scripts, given["argv"], folder)
            self._program = Program()
            return self._program.run(given["argv"], make_environment(given["env"]), str(folder), self._sieve.keeps)
        from .http import BoundedTransport, open_http
        from .oauth import find_auth

        asked = await expand({"url": config.url, "headers": config.headers})
        self._http = BoundedTransport()
        auth = await find_auth(self.server.name, asked["url"])
        return open_http(asked["url"], asked["headers"], self._http, self._sieve.keeps, auth)

    def _check_scripts(self, argv: list[str], folder: Path) -> None:
        """Raise `ServerError` for a script that has changed since the first start: a tool may have written it."""
        from .servers import read_scripts

        found = read_scripts(argv, folder)
        if self._scripts is None:
            self._scripts = found
        if changed := next((path for path, digest in found.items() if self._scripts.get(path) != digest), None):
            raise ServerError(f"{changed} has changed since the session began. Begin a new session")

    async def _follow(self, client: Client) -> None:
        """Read the lists again whenever the server says that they have changed; return when it is lost."""
        ends = [self._lost, *([self._program.lost] if self._program is not None else [])]
        while True:
            await _wait_for_any([*ends, self._sieve.changed])
            if any(each.is_set() for each in ends):
                return
            self._sieve.changed.clear()
            async with asyncio.timeout(CONNECTING):
                await self._read_listing(client)
            if self._update is not None:
                await self._update(self)
            with suppress(TimeoutError):  # a server may say so all the time
                async with asyncio.timeout(BETWEEN_LISTS):
                    await _wait_for_any(ends)

    async def _listen(self, client: Client) -> None:
        """Ask to hear of changed lists, as the newest protocol wants it; older servers refuse it, and tell anyway."""
        with suppress(Exception):
            async with client.listen(tools_list_changed=True, prompts_list_changed=True) as changes:
                self._sieve.changed.set()  # what has changed since the lists were read
                async for _ in changes:  # the sieve hears of them
                    pass

    async def call(self, ask: Callable[[Client], Awaitable[T]], seconds: float) -> T:
        """Return the answer to a request, within a time limit. Raises `ServerError`.

        A cancelled call cancels its request. A server that answers nothing more after a call that took too long is
        started again.
        """
        from mcp import MCPError

        from .http import statuses

        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self._wait_until_ready()
        client = self.client
        own: list[int] = []
        mark = statuses.set(own)
        try:
            async with asyncio.timeout_at(deadline):
                return await ask(client)
        except TimeoutError:
            await self._check_alive(client)
            raise ServerError(f"the MCP server '{self.server.name}' has not answered for {seconds:g} seconds") from None
        except MCPError as error:
            if self._client is not client or self._is_lost():
                self._lose(client)
                raise ServerLost(
                    f"the MCP server '{self.server.name}' was lost during the call: {self._describe(error)}. {EFFECT}"
                ) from None
            if self._has_broken_off(error):
                raise ServerLost(
                    f"the answer of the MCP server '{self.server.name}' broke off: {error}. {EFFECT}"
                ) from None
            if (problem := _find_no_answer(error)) is not None:
                if own and 400 <= own[-1] < 500 and own[-1] != 408:  # a 408 may come while the server works
                    raise CallRefused(self.server.name, own[-1]) from None
                raise InvalidAnswer(self.server.name, f"HTTP {own[-1]}: {problem}" if own else problem) from None
            raise
        finally:
            statuses.reset(mark)

    async def _wait_until_ready(self) -> None:
        """Wait for a server that starts for the first time, or again after its first loss."""
        if self._client is None and self._failures <= 1:
            await _wait_for_any([self._ready, self._failing, self._closing])

    async def _check_alive(self, client: Client) -> None:
        from mcp import MCPError
        from mcp_types import EmptyResult, PingRequest

        try:
            async with asyncio.timeout(ANSWERS_WITHIN):
                await client.session.send_request(PingRequest(), EmptyResult)
        except MCPError:
            if self._is_lost():
                self._lose(client)
        except Exception:
            self._lose(client)

    def _lose(self, client: Client) -> None:
        """Note that nothing more can be asked over a connection, unless there is a newer one."""
        if self._client is client:
            self._client = None
            self._ready.clear()
            self._lost.set()

    def _is_lost(self) -> bool:
        """Return whether nothing more can be asked over this connection.

        Its transport tells; the SDK's code for a closed connection, -32000, is an ordinary error of many servers.
        """
        if self._program is not None:
            return self._program.lost.is_set()
        return self._http is not None and self._http.status in (0, 401, 403, 404)

    def _has_broken_off(self, error: MCPError) -> bool:
        """Return whether the stream of an answer has ended before it: the SDK tells that by an error of its own."""
        from mcp_types import CONNECTION_CLOSED

        return self._http is not None and error.code == CONNECTION_CLOSED and str(error).startswith("SSE stream")

    def _describe(self, error: BaseException | None) -> str:
        """Return why the server is not connected, and what to do."""
        from mcp import MCPError
        from pydantic import ValidationError

        from amplifier_core.utils.secrets import redact_text

        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, ServerError):
            return str(error)
        name = self.server.name
        if self._http is not None and self._http.status in (401, 403):
            return f"it asks for a login (HTTP {self._http.status}). Log in with: amplifier mcp login {name}"
        if isinstance(error, TimeoutError):
            return f"it did not start within {CONNECTING:g} seconds"
        if isinstance(error, ValidationError):
            problem = error.errors(include_url=False)[0]
            return f"it answers against the protocol: {'.'.join(map(str, problem['loc']))}: {problem['msg']}"
        if isinstance(error, MCPError) and (found := _find_no_answer(error)) is not None:
            status = f" ({self._http.shown_status})" if self._http is not None else ""
            return f"it answers against the protocol: {found}{status}"
        if isinstance(error, RuntimeError) and str(error).startswith("Unsupported protocol version"):
            return f"it speaks the protocol {plain(str(error).rpartition(' ')[2], 40)}, which is not known"
        if self._program is not None and (error is None or self._is_lost()):
            return redact_text(self._program.describe_end())
        status = f" ({self._http.shown_status})" if self._http is not None and self._http.status >= 400 else ""
        return redact_text(f"{describe_error(error)}{status}" if error is not None else "it was lost")


def _find_no_answer(error: MCPError) -> str | None:
    """Return what came in place of an answer; None: the server has refused the request.

    Transports make the error themselves, and only its code and its words differ from a server's.
    """
    from mcp_types import INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR

    words = str(error)
    for code, beginning in (
        (PARSE_ERROR, UNREADABLE),
        (PARSE_ERROR, "Failed to parse SSE message"),
        (INTERNAL_ERROR, "Server returned an error response"),
        (INVALID_REQUEST, "server answered a request with 202 Accepted"),
        (INVALID_REQUEST, "Unexpected content type"),
    ):
        if error.code == code and words.startswith(beginning):
            return beginning
    return None


async def _wait_for_any(events: list[asyncio.Event]) -> None:
    """Return when one of the events is set."""
    tasks = [asyncio.ensure_future(each.wait()) for each in events]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def import_sdk() -> None:
    """Import the SDK, and keep its tracebacks from the person: what matters of them is in the errors."""
    import mcp  # noqa: F401 - for later

    if logging.getLogger().getEffectiveLevel() > logging.DEBUG:
        for name in ("mcp", "client", "httpx2"):  # `client` is of mcp.client.session
            logging.getLogger(name).setLevel(logging.CRITICAL)
