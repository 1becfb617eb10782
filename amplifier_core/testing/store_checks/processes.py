"""Open one store in several processes, for checks of what they do to each other."""

from __future__ import annotations

import asyncio
import builtins
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from ... import errors
from ..wire_values import read_json, write_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Mapping

    from ...storage import Delivery

_MODULE = "amplifier_core.testing.store_process"
_SHIFTED = Path(__file__).parents[1] / "shifted_clock.py"


class StoreProcess:
    """A process with a store object of its own; its methods are those of the store, and all are coroutines."""

    def __init__(
        self, factory: str, config: Mapping[str, Any], patience: float, *, shift: float = 0.0, host: str = "host"
    ) -> None:
        self.name = f"{uuid4().hex[:8]}@{host}"
        """The name of this process, for claims and leases."""
        self._patience = patience
        program = ["-P", str(_SHIFTED), str(shift)] if shift else ["-m", _MODULE]  # -P: its folder hides no module
        self._process = subprocess.Popen(
            [sys.executable, *program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self._lock = Lock()
        self._opening: str | None = write_json({"factory": factory, "config": dict(config)})

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        return self.fenced(None).__getattr__(method)

    def fenced(self, delivery: Delivery | None) -> _View:
        """Return the store of that process, fenced by a claim."""
        return _View(self, delivery)

    async def run(self, routine: Callable[..., Awaitable[Any]], *arguments: object, **named: object) -> Any:
        """Run a function of a module in that process, with its store as the first argument; return the result."""
        return await self.fenced(None).run(routine, *arguments, **named)

    def freeze(self) -> None:
        """Stop the process with SIGSTOP, whatever it does."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen process go on."""
        self._process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        """End the process with SIGKILL, whatever it does."""
        self._process.kill()
        await asyncio.to_thread(self._process.wait)

    async def close(self) -> None:
        """End the process in order: it closes its store."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(OSError):  # a command that a killed process did not read
            self._process.stdin.close()
        try:
            await asyncio.to_thread(self._process.wait, self._patience)
        finally:
            await self.kill()
            self._process.stdout.close()

    async def ask(self, what: str, command: Mapping[str, Any]) -> Any:
        """Return the result of a command. Raises its error, and `AssertionError` without an answer in time."""
        try:
            answer = await asyncio.wait_for(asyncio.to_thread(self._exchange, write_json(command)), self._patience)
        except TimeoutError:
            self._process.kill()
            raise AssertionError(f"{what} must return; it did not within {self._patience:g} s") from None
        if "error" in answer:
            raise make_error(answer["error"], answer["message"])
        return answer["result"]

    def _exchange(self, command: str) -> Any:
        with self._lock:
            if self._opening is not None:
                opened = self._exchange_line(self._opening)
                if "error" in opened:
                    return opened
                self._opening = None
            return self._exchange_line(command)

    def _exchange_line(self, line: str) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(line, file=self._process.stdin, flush=True)
            answer = self._process.stdout.readline()
        except (OSError, ValueError):
            answer = ""
        if not answer:
            raise ConnectionAbortedError("the process with the store has ended")
        return read_json(answer)


class _View:
    """The store of a process, fenced or not."""

    def __init__(self, process: StoreProcess, fence: Delivery | None) -> None:
        self._process, self._fence = process, fence

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        def call(*arguments: object, **named: object) -> Awaitable[Any]:
            return self._ask(method, {"call": method}, arguments, named)

        return call

    async def run(self, routine: Callable[..., Awaitable[Any]], *arguments: object, **named: object) -> Any:
        """Run a function of a module with this store as the first argument."""
        name = f"{routine.__module__}:{routine.__qualname__}"
        return await self._ask(routine.__name__, {"run": name}, arguments, named)

    def _ask(
        self, what: str, command: Mapping[str, Any], arguments: tuple[object, ...], named: Mapping[str, object]
    ) -> Awaitable[Any]:
        whole = {**command, "arguments": arguments, "named": named, "fence": self._fence}
        return _Call(self._process, what, whole)


@dataclass(eq=False)
class _Call:
    """A command that is sent when it is awaited."""

    process: StoreProcess
    what: str
    command: Mapping[str, Any]

    def __await__(self) -> Generator[Any, None, Any]:
        return self.process.ask(self.what, self.command).__await__()


async def run_together(*steps: Coroutine[Any, Any, Any]) -> list[Any]:
    """Return the results of steps that run at once; raise the first error alone, when all have ended."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(step) for step in steps]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


class Stores:
    """One store, opened by two processes and more; `size` is the number of events that a check of many writes.

    Every check takes a `mark` of its own for projects, sessions and names: what others stored does not matter.
    """

    def __init__(self, factory: str, config: Mapping[str, Any], *, size: int = 400, patience: float = 60.0) -> None:
        self.size = size
        self.patience = patience
        self._factory, self._config = factory, config
        self._pair: dict[str, StoreProcess] = {}

    @property
    def left(self) -> StoreProcess:
        """The process on the host `left`; it lives longer than a check."""
        return self._on("left")

    @property
    def right(self) -> StoreProcess:
        """The process on the host `right`."""
        return self._on("right")

    @property
    def mark(self) -> str:
        """A new name."""
        return uuid4().hex[:12]

    @asynccontextmanager
    async def another(self, host: str = "third", *, shift: float = 0.0) -> AsyncIterator[StoreProcess]:
        """Open the store in one more process, whose clock is wrong by `shift` seconds; killed at the end."""
        process = StoreProcess(self._factory, self._config, self.patience, shift=shift, host=host)
        try:
            yield process
        finally:
            await process.kill()
            await process.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End all processes."""
        while self._pair:
            await self._pair.popitem()[1].close()

    def _on(self, host: str) -> StoreProcess:
        if host not in self._pair:
            self._pair[host] = StoreProcess(self._factory, self._config, self.patience, host=host)
        return self._pair[host]


def make_error(name: str, message: str) -> Exception:
    """Return the error that another process told by the name of its class."""
    kind = getattr(errors, name, None) or getattr(builtins, name)
    error: Exception = kind.__new__(kind)  # without its `__init__`, which takes facts and no message
    error.args = (message,)
    return error
