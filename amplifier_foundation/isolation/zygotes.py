"""Start a zygote, and have it fork children; one zygote serves all event loops of a process."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import weakref
from collections import deque
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from amplifier_core.errors import SessionProcessEnded
from amplifier_core.process_forks import close_in_forks
from amplifier_core.utils.interpreters import PYTHON

from ..settings.layer import DEFAULTS
from .fresh import BEGIN

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from .jobs import Job

MAX_SUBPROCESS: int = DEFAULTS["max_subprocess"]
"""Sessions in processes of their own at a time; the others wait."""
PATIENCE = 30.0
"""Seconds for a first child to start."""
Way = Literal["fork", "fresh", "bare"]
"""How a zygote starts children; `bare` is a fresh interpreter as on systems that have no `/proc`."""
_OWN = ("amplifier_core", "amplifier_foundation", "pydantic", "pydantic_core")


class Ends(NamedTuple):
    """The parent's ends of the sockets of one child."""

    link: socket.socket
    blocking: socket.socket
    output: socket.socket
    watch: socket.socket

    def close(self) -> None:
        """Close all; the zygote kills the child."""
        for each in self:
            each.close()


class Zygotes:
    """At most one living zygote, started when it is first needed; a dead one is replaced.

    Where a fork is unsafe, it starts each child by a fresh interpreter; other ways than `fork` have it do so anywhere.
    """

    def __init__(self, most: int = MAX_SUBPROCESS, way: Way = "fork", environ: Mapping[str, str] | None = None) -> None:
        self.places = Places(most)
        self.environ = environ
        """The environment of the zygote; None: that of this process."""
        self._way = way
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._ends: list[weakref.finalize[..., Zygotes]] = []
        self._unsafe: set[str] = set()
        self._learnt: set[str] = set()
        self._spares: deque[Ends] = deque()
        weakref.finalize(self, _close_all, self._spares)

    def fork(self, session_id: str) -> Ends:
        """Return the sockets to a child that waits for its job. Raises `SessionProcessEnded`."""
        try:
            with self._lock:
                return self._spares.popleft() if self._spares else self._ask()
        except OSError as error:
            reason = f"cannot be started: {error.strerror or error}"
            raise SessionProcessEnded(session_id, reason) from error

    def try_start(self) -> str:
        """Start a child, and have it end; return the reason for a fresh interpreter, '' for a fork.

        Raises `SessionProcessEnded`.
        """
        ends = self.fork("")
        try:
            ends.watch.settimeout(PATIENCE)
            ends.link.close()
            with ends.watch.makefile("rb") as told:
                begun, ended = json.loads(told.readline()), json.loads(told.readline() or "{}")
        except (OSError, ValueError) as error:
            raise SessionProcessEnded("", f"does not start within {PATIENCE:g} s") from error
        finally:
            ends.close()
        if "pid" not in begun or ended.get("ended") != 0:
            raise SessionProcessEnded("", str(begun.get("failed") or f"ends at its start: {ended}"))
        return str(begun["fresh"])

    def prepare(self) -> None:
        """Have a child ready for the next session."""
        with self._lock, suppress(OSError):
            if not self._spares:
                self._spares.append(self._ask())

    def _ask(self) -> Ends:
        """Ask the zygote for a child."""
        pairs = [socket.socketpair() for _ in Ends._fields]
        ours, theirs = Ends(*(close_in_forks(pair[0]) for pair in pairs)), [pair[1] for pair in pairs]
        request = {"preload": sorted(self._learnt - self._unsafe)}
        try:
            self._send(json.dumps(request).encode(), [each.fileno() for each in theirs])
        except OSError:
            ours.close()
            raise
        finally:
            for each in theirs:
                each.close()
        return ours

    def describe_process(self, job: Job, paths: Iterable[str]) -> dict[str, Any]:
        """Return the folders of modules and the environment for the process of a job.

        Without folders (None) it keeps its own, and the environment is added to its own.
        """
        return {"path": [*module_folders(), *paths], "environ": dict(os.environ)}

    def command(self, control: int) -> list[str]:
        """Return the command that starts a zygote with this control socket."""
        return [*PYTHON, "-I", str(BEGIN), "zygote", json.dumps(module_folders()), str(control), self._way]

    def learn(self, imported: Iterable[Any], packages: Iterable[str]) -> None:
        """Have later children share what an ended one had to import, of our own and of these packages.

        A child may say anything, so these names alone are imported.
        """
        known = {*_OWN, *packages}
        fresh = {
            name
            for name in imported
            if isinstance(name, str) and name.partition(".")[0] in known and not name.endswith("__main__")
        }
        with self._lock:
            if not fresh <= self._learnt:
                self._learnt |= fresh
                _close_all(self._spares)

    def renounce(self, module: str) -> None:
        """Have later zygotes not import a module that starts threads."""
        with self._lock:
            self._unsafe.add(module)
            if self._control is not None:
                with suppress(OSError):
                    self._control.send(b'{"retire": true}')  # its children run on
            self._control = None
            _close_all(self._spares)

    def pids(self) -> list[int]:
        """Return the ids of the living zygotes."""
        with self._lock:
            known = [end.peek() for end in self._ends]
        return [each[2][1].pid for each in known if each is not None and each[2][1].poll() is None]

    def close(self) -> None:
        """End the zygote with all its children."""
        with self._lock:
            self._control = None
            _close_all(self._spares)
            while self._ends:
                self._ends.pop()()

    def _send(self, data: bytes, descriptors: list[int]) -> None:
        for attempt in (1, 2):
            control = self._control if self._control is not None else self._start()
            try:
                socket.send_fds(control, [data], descriptors)
            except (BrokenPipeError, ConnectionResetError):
                self._control = None  # somebody killed it
                if attempt == 2:
                    raise
            else:
                return

    def _start(self) -> socket.socket:
        kind = socket.SOCK_SEQPACKET if sys.platform == "linux" else socket.SOCK_STREAM
        own, other = socket.socketpair(socket.AF_UNIX, kind)
        with other:
            process = subprocess.Popen(
                self.command(other.fileno()),
                env=self.environ,
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._control = close_in_forks(own)
        self._ends.append(weakref.finalize(self, _end_zygote, own, process))
        return own


def module_folders() -> list[str]:
    """Return the folders that Python looks for modules in, as absolute paths."""
    return [str(Path(each).absolute()) for each in sys.path]


def _close_all(spares: deque[Ends]) -> None:
    while spares:
        spares.popleft().close()


def _end_zygote(control: socket.socket, process: subprocess.Popen[bytes]) -> None:
    control.close()
    with suppress(OSError):
        process.wait(timeout=10)


class Places:
    """A number of places for all event loops of a process, given in the order of asking."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._lock = threading.Lock()
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def take(self) -> AsyncIterator[None]:
        """Have a place while the block runs."""
        await self._wait()
        try:
            yield
        finally:
            self._give_back()

    async def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        place: asyncio.Future[None] = loop.create_future()
        with self._lock:
            if self._free:
                self._free -= 1
                return
            self._waiting.append((loop, place))
        try:
            await place
        except asyncio.CancelledError:
            with self._lock:
                is_given = (loop, place) not in self._waiting
                if not is_given:
                    self._waiting.remove((loop, place))
            if is_given:
                self._give_back()
            raise

    def _give_back(self) -> None:
        with self._lock:
            while self._waiting:
                loop, place = self._waiting.popleft()
                with suppress(RuntimeError):  # its loop is closed
                    loop.call_soon_threadsafe(_resolve, place)
                    return
            self._free += 1


def _resolve(place: asyncio.Future[None]) -> None:
    if not place.done():
        place.set_result(None)
