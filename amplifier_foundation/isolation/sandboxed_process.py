"""Start one process in a sandbox, call it, hear of its end, and kill it with everything below it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from contextlib import ExitStack, suppress
from itertools import count
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import AmplifierError
from amplifier_core.process_forks import close_in_forks
from amplifier_core.utils.interpreters import PYTHON

from .fresh import BEGIN
from .link import Link, LinkClosed
from .printed import Printed
from .process_table import find_below, send_signal
from .python_folders import choose_below, find_python_folders
from .zygotes import module_folders

if TYPE_CHECKING:
    from ..hookspecs import Sandbox
    from .limits import ProcessLimits
    from .link import Serve

GRACE = 5.0
"""Seconds for a cancelled call to end, and for a process to clean up; then it is killed."""
_BEGINS = "amplifier_foundation.isolation.tool_host:begin_module"


class ToolProcessEnded(AmplifierError, RuntimeError):
    """The process of a module in a sandbox ended before its call, or cannot begin; `cause` says how."""

    def __init__(self, module: str, cause: str, said: str = "") -> None:
        self.module, self.cause = module, cause
        tail = f". It said last: {said}" if said else ""
        super().__init__(f"the process of '{module}' in its sandbox {cause}{tail}")


class SandboxedProcess:
    """One process, from `start` until `close`; both are called once."""

    def __init__(self, module: str, sandbox: Sandbox, limits: ProcessLimits, serve: Serve) -> None:
        self.calls = 0
        """Calls that run."""
        self.is_retired = False
        """Whether its last call ends it."""
        self.sandbox = sandbox
        self._module = module
        self._limits = limits
        self._printed = Printed(module, limits.output, self.kill)
        self._process: asyncio.subprocess.Process | None = None
        self._stack = ExitStack()
        own, self._theirs = self._make_pair()
        self._output, self._outlet = self._make_pair()
        self._link = Link(own, serve)
        self._is_linked = False
        self._draining: asyncio.Task[None] | None = None
        self._failed = ""
        self._numbers = count(1)
        self._gate: str | None = None
        """The rules that were sent last."""

    @property
    def is_running(self) -> bool:
        """Whether it can be called."""
        return self._process is not None and self._process.returncode is None and not self._failed

    def _make_pair(self) -> tuple[socket.socket, socket.socket]:
        ours, theirs = socket.socketpair()
        for each in (ours, theirs):
            self._stack.enter_context(close_in_forks(each))
        ours.setblocking(False)
        return ours, theirs

    async def start(self, folder: str, readable: list[str]) -> None:
        """Start Python in the sandbox. Raises the errors of the sandbox, and `OSError`."""
        needed = find_python_folders()
        path = json.dumps(choose_below(module_folders(), needed))
        argv = [*PYTHON, "-I", str(BEGIN), _BEGINS, path, str(self._theirs.fileno())]
        launch = await asyncio.to_thread(self.sandbox.launch, argv, [*needed, *readable])
        try:
            # It ends with the thread of this loop, in a sandbox that can do that.
            self._process = await asyncio.create_subprocess_exec(
                *launch.argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=self._outlet.fileno(),
                stderr=self._outlet.fileno(),
                env=dict(launch.environment),
                pass_fds=(self._theirs.fileno(), *launch.descriptors),
                start_new_session=True,
                cwd=folder,
            )
        finally:
            self._theirs.close()
            self._outlet.close()
            for descriptor in launch.descriptors:
                os.close(descriptor)
        await self._link.__aenter__()
        self._is_linked = True
        self._draining = asyncio.create_task(self._printed.drain(self._output))

    async def call(self, name: str, **arguments: Any) -> Any:
        """Return the answer to a call. Raises its error, and `ToolProcessEnded`."""
        try:
            return await self._link.call(name, **arguments)
        except LinkClosed:
            await self._wait()
            raise self.explain() from None

    async def _wait(self) -> None:
        """Wait for the end of the process, and for what it printed; kill it when it goes on without its socket."""
        assert self._process is not None and self._draining is not None  # it was called
        with suppress(TimeoutError):
            async with asyncio.timeout(0 if self._link.failure is not None else GRACE):
                await self._process.wait()
        self.kill()
        await self._process.wait()
        await asyncio.wait({self._draining}, timeout=GRACE)

    async def preview(self, tool: str, input: Any, gate: str) -> str:
        """Return what a call would change, in the words of its tool."""
        told, self._gate = (None if gate == self._gate else gate), gate
        return str(await self.call("preview", tool=tool, input=input, gate=told))

    async def execute(self, tool: str, input: Any, call: Any, gate: str) -> Any:
        """Return the answer to the call of a tool; a cancelled call is cancelled in the process, or that is killed."""
        number = next(self._numbers)
        told, self._gate = (None if gate == self._gate else gate), gate
        about = {"tool": tool, "input": input, "call": call, "gate": told}
        answer = asyncio.ensure_future(self.call("execute", number=number, **about))
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            self._link.tell("cancel", number=number)
            try:
                await asyncio.wait({answer}, timeout=GRACE)
            finally:
                if not answer.done():
                    self.fail("did not end a cancelled call, and was killed")
                await asyncio.wait({answer})
                answer.cancelled() or answer.exception()
            raise

    def fail(self, cause: str) -> None:
        """Kill the process for a reason."""
        self._failed = self._failed or cause
        self.kill()

    def kill(self) -> None:
        """Kill the process with everything below it that can be seen; idempotent."""
        if self._process is None or self._process.returncode is not None:
            return
        pid, below = self._process.pid, []
        with suppress(OSError):  # without /proc
            below = find_below([pid])
        for each in below:
            send_signal(each, signal.SIGKILL)
        send_signal(pid, signal.SIGTERM)  # the first process is the sandbox's own: it ends what has come meanwhile
        asyncio.get_running_loop().call_later(GRACE, self._kill_now)

    def _kill_now(self) -> None:
        if self._process is not None and self._process.returncode is None:
            send_signal(self._process.pid, signal.SIGKILL)

    def explain(self) -> ToolProcessEnded:
        """Return why the process has ended."""
        return ToolProcessEnded(self._module, self._find_cause(), self._printed.quote_end())

    def _find_cause(self) -> str:
        if self._failed:
            return self._failed
        if self._printed.is_too_much:
            return f"reached its limit of {self._limits.describe('output')}"
        if self._link.failure is not None:
            return f"was cut off: {self._link.failure}"
        code = self._process.returncode if self._process is not None else None
        if code is None or 0 <= code <= 128:
            return f"ended by itself with exit code {code}"
        number = -code if code < 0 else code - 128  # as a sandbox tells it
        if number == signal.SIGXCPU:
            return f"reached its limit of {self._limits.describe('cpu_seconds')}"
        return f"was ended by the signal {signal.strsignal(number) or number}"

    async def close(self) -> None:
        """Have the module clean up, then end the process."""
        try:
            await self._end()
        finally:
            self.kill()
            if self._process is not None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                await self._process.wait()
            if self._draining is not None:
                await asyncio.wait({self._draining}, timeout=GRACE)
                self._draining.cancel()
            if self._is_linked:
                await self._link.__aexit__()
            self._stack.close()
            await asyncio.to_thread(self.sandbox.close)

    async def _end(self) -> None:
        if self.is_running and self._is_linked:
            assert self._process is not None  # it runs
            self._link.tell("end")
            with suppress(TimeoutError):
                async with asyncio.timeout(GRACE):
                    await self._process.wait()
