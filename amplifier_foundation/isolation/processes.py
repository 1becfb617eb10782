"""Run one child: talk to it, hear of its end, keep the end of what it prints, and kill it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from amplifier_core.errors import LimitReached, SessionProcessEnded

from .link import Link
from .printed import Printed

if TYPE_CHECKING:
    from .limits import ProcessLimits
    from .link import Serve
    from .zygotes import Ends

logger = logging.getLogger("amplifier.session")

_THREADS = re.compile(r"cannot be forked: importing '(.+)' starts")


class Child:
    """One process of a session, from its fork until nothing of it is left; `async with`."""

    def __init__(self, session_id: str, ends: Ends, limits: ProcessLimits, serve: Serve) -> None:
        self.session_id = session_id
        self.ended: dict[str, Any] | None = None
        """How the process ended: `ended`, its status as of `os.waitpid`, and the `reason` to kill it, or ''."""
        self._ends = ends
        self._limits = limits
        self._printed = Printed(session_id, limits.output, self.kill)
        self._failed = ""
        self.link = Link(ends.link, serve)
        self._blocking = Link(ends.blocking, serve)
        self._tasks: list[asyncio.Task[Any]] = []

    async def __aenter__(self) -> Self:
        for each in (self._ends.link, self._ends.blocking, self._ends.output):
            each.setblocking(False)
        await self.link.__aenter__()
        await self._blocking.__aenter__()
        self._tasks = [asyncio.create_task(self._watch()), asyncio.create_task(self._printed.drain(self._ends.output))]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.kill()
        try:
            await asyncio.wait(self._tasks)
        finally:
            for task in self._tasks:
                task.cancel()
            try:
                await self.link.__aexit__(*exc)
            finally:  # also when it is cancelled meanwhile, as at the end of the loop
                try:
                    await self._blocking.__aexit__(*exc)
                finally:
                    self._ends.close()

    def send(self, setting: dict[str, Any], packed: bytes) -> None:
        """Send the job."""
        with suppress(OSError):  # it is dead already
            if self._limits.processes is not None:
                self._ends.watch.send(b"P%d;" % self._limits.processes)
            if self._limits.of_all:
                self._ends.watch.send(b"G%d;" % (self._limits.cpu_seconds or 0))
        self.link.send(json.dumps(setting).encode())
        self.link.send(packed)

    async def wait(self) -> None:
        """Return when the process has ended, and all its calls are answered."""
        await asyncio.wait({self._tasks[0]})
        await self.link.wait_closed()
        await asyncio.wait({self._tasks[1]})

    @property
    def unsafe_module(self) -> str | None:
        """The module for whose threads the process was not forked; None for another reason."""
        found = _THREADS.match(self._failed)
        return found[1] if found else None

    def kill(self) -> None:
        """Kill the process with everything below it, at once; idempotent."""
        if self.ended is None and not self._failed:
            with suppress(OSError):
                self._ends.watch.send(b"K")

    def explain(self) -> Exception:
        """Return why the process ended without a result."""
        if self._failed:
            return SessionProcessEnded(self.session_id, self._failed)
        ended, said = self.ended or {}, self._printed.quote_end()
        if reason := ended.get("reason"):
            return LimitReached(self.session_id, reason, f"{self._limits.describe(reason)} for all its processes")
        if self._printed.is_too_much:
            return LimitReached(self.session_id, "output", self._limits.describe("output"))
        if not ended:
            return SessionProcessEnded(self.session_id, "was lost: the process that starts sessions has ended", said)
        status = ended["ended"]
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            if number == signal.SIGXCPU:
                return LimitReached(self.session_id, "cpu_seconds", self._limits.describe("cpu_seconds"))
            return SessionProcessEnded(self.session_id, f"was ended by the signal {signal.Signals(number).name}", said)
        if self.link.failure is not None:
            return SessionProcessEnded(self.session_id, f"was cut off: {self.link.failure}", said)
        return SessionProcessEnded(self.session_id, f"ended by itself with exit code {os.WEXITSTATUS(status)}", said)

    async def _watch(self) -> None:
        """Hear from the zygote: the start of the process, and its end."""
        reader, writer = await asyncio.open_connection(sock=self._ends.watch)
        try:
            while line := await reader.readline():
                told = json.loads(line)
                if "failed" in told:
                    self._failed = told["failed"]
                if "note" in told:
                    logger.warning("session %s %s", self.session_id, told["note"])
                if "ended" in told:
                    self.ended = told
        except (ConnectionResetError, BrokenPipeError):
            pass
        finally:
            writer.close()
