"""Run the program in processes that are forked from one that has imported it.

Imports are most of a short run. A fork is a process like any other: it begins with what lies on the disk, has a number
of its own, takes signals and terminals, and can be killed. Tests of the start itself begin a new interpreter instead.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock
from typing import Any, TextIO

FOUNDATION = (
    "background",
    "bundle",
    "cli",
    "events",
    "flows",
    "hookspecs",
    "mentions",
    "sessions",
    "settings",
    "spawning",
)
PACKAGES = (
    *(f"amplifier_foundation.{name}" for name in FOUNDATION),
    *(f"amplifier_foundation.packages.{name}" for name in ("gate", "listing", "report")),
    *(f"amplifier_core.{name}" for name in ("credentials", "mounting", "preloading", "session", "utils")),
    *("amplifier_context_simple", "amplifier_loop_basic", "amplifier_provider_playbook", "amplifier_storage_sqlite"),
    *("amplifier_tool_delegate", "amplifier_tool_filesystem", "amplifier_tool_issue", "amplifier_trigger_issue"),
    *("amplifier_trigger_manual", "amplifier_trigger_session_event", "amplifier_trigger_timer"),
    *("amplifier_acp.plugin", "amplifier_bundle_foreman", "amplifier_dashboard.plugin", "amplifier_hooks_otel.plugin"),
    *("amplifier_runner_subprocess", "amplifier_sandbox.plugin", "amplifier_trigger_file_watcher.trigger"),
    *("amplifier_trigger_webhook.trigger", "importlib_metadata", "urllib.request", "yaml"),
)
"""What the server imports at its start, with all modules."""
SDKS = ("anthropic", "google.genai", "openai")
"""What the providers import for a turn."""
AT_TERMINAL = """
import fcntl, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from amplifier_foundation.cli import main
main()
"""
PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
PIPES_AT = 10
"""Where these stand among the parameters of `Popen._execute_child`, in each Python since 3.9."""
_LOCK = Lock()
_ERRORS = TemporaryFile()  # noqa: SIM115 - it lives as long as this process
"""What the server says: the reason of its end."""
_CODES: list[int] = []
"""In a fork: the exit code of the program, once that is known."""


class Popen(subprocess.Popen[Any]):
    """`amplifier ARGUMENTS` as `subprocess.Popen` starts it, forked from a server that has imported the program.

    The server imports the modules `imports` first: they stay imported for later runs. A new session takes the terminal
    `stdin` as its own with `at_terminal`. Of the other parameters it takes the streams and how they are read, `cwd`,
    `env` and `start_new_session`. A system where a fork is unsafe begins a new interpreter.
    """

    def __init__(
        self, arguments: Sequence[str], *, imports: Sequence[str] = (), at_terminal: bool = False, **given: Any
    ) -> None:
        self._request = {
            "arguments": list(arguments),
            "cwd": str(given.get("cwd") or Path.cwd()),
            "env": dict(given.get("env") or os.environ),
            "imports": list(imports),
            "is_leader": given.get("start_new_session", False),
            "at_terminal": at_terminal,
        }
        program = ["-c", AT_TERMINAL] if at_terminal else ["-m", "amplifier_foundation"]
        super().__init__([sys.executable, *program, *arguments], **given)

    if sys.platform == "linux":

        def _execute_child(self, *given: Any) -> None:
            pipes = dict(zip(PIPES, given[PIPES_AT : PIPES_AT + len(PIPES)], strict=True))
            theirs = [pipes["p2cread"], pipes["c2pwrite"], pipes["errwrite"]]
            streams = [number if each == -1 else each for number, each in enumerate(theirs)]
            self._connection, connection = socket.socketpair()
            with connection, _LOCK:
                socket.send_fds(_start_server()[0], [b"."], [connection.fileno(), *streams])
            self._connection.sendall(json.dumps(self._request).encode())
            self._connection.shutdown(socket.SHUT_WR)
            self._told = b""
            while b"\n" not in self._told:
                self._receive(None)
            self.pid = int(self._told.partition(b"\n")[0])
            self._child_created = True
            self._close_pipe_fds(*pipes.values())  # type: ignore[attr-defined]

        def _receive(self, timeout: float | None) -> None:
            """Receive more of what the server tells, at most so many seconds later."""
            self._connection.settimeout(timeout)
            with suppress(BlockingIOError, TimeoutError):
                told = self._connection.recv(100)
                assert told, _tell_end_of_server()
                self._told += told

        def _internal_poll(self, *_: Any, **__: Any) -> int | None:
            return self._wait(0.0)

        def _wait(self, timeout: float | None) -> int | None:
            """Return the exit code, negative for a signal; None: it runs after so many seconds."""
            ends = None if timeout is None else time.monotonic() + timeout
            while self.returncode is None:
                left = None if ends is None else max(0.0, ends - time.monotonic())
                self._receive(left)
                if self._told.count(b"\n") == 2:
                    self._connection.close()
                    self.returncode = int(self._told.split()[1])
                elif left == 0.0:
                    break
            return self.returncode

        def wait(self, timeout: float | None = None) -> int:
            """Return the exit code. Raises `subprocess.TimeoutExpired`."""
            code = self._wait(timeout)
            if code is None:
                assert timeout is not None
                raise subprocess.TimeoutExpired(self.args, timeout)
            return code


def run(
    arguments: Sequence[str],
    *,
    input: str = "",
    imports: Sequence[str] = (),
    timeout: float = 120.0,
    **given: Any,
) -> subprocess.CompletedProcess[str]:
    """Run `amplifier ARGUMENTS` and return how it ended, as `subprocess.run` does.

    What it prints goes to files, so that this ends with the process and not with one that it leaves behind. Raises
    `TimeoutExpired` after `timeout` seconds, and kills the process.
    """
    with TemporaryFile() as stdin, TemporaryFile() as out, TemporaryFile() as err:
        stdin.write(input.encode())
        stdin.seek(0)
        with Popen(arguments, imports=imports, stdin=stdin, stdout=out, stderr=err, **given) as process:
            try:
                code = process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(list(arguments), code, out.read().decode(), err.read().decode())


@cache
def _start_server() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start the server of this process; it ends when the socket is closed."""
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-P", __file__, str(theirs.fileno())]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        server = subprocess.Popen(
            command, cwd="/", env=environment, stdin=subprocess.DEVNULL, stderr=_ERRORS, pass_fds=[theirs.fileno()]
        )
    atexit.register(_stop_server, ours, server)
    return ours, server


def _tell_end_of_server() -> str:
    server = _start_server()[1]
    _ERRORS.seek(0)
    return f"the server of forks, process {server.pid}, has ended with {server.poll()}: {_ERRORS.read().decode()}"


def _stop_server(connection: socket.socket, server: subprocess.Popen[bytes]) -> None:
    connection.close()
    server.wait()


def _serve(server: socket.socket) -> list[str] | None:
    """Serve until the client ends. Returns None then, and in each fork its arguments."""
    for package in PACKAGES:
        for name in _walk(package):
            importlib.import_module(name)
    ended, told = socket.socketpair()
    told.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
    running: dict[int, int] = {}
    while True:
        readable, _, _ = select.select([server, ended], [], [])
        if ended in readable:
            ended.recv(4096)
            _tell_ends(running)
        if server not in readable:
            continue
        _, descriptors, _, _ = socket.recv_fds(server, 1, 4)
        if not descriptors:
            return None
        connection, *streams = descriptors
        with open(connection, "rb", closefd=False) as request:
            given = json.loads(request.read())
        for name in given["imports"]:
            importlib.import_module(name)
        gc.freeze()  # a fork shares what no collection touches
        program = os.fork()
        if program == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for ours in (server, ended, told):
                ours.close()
            for descriptor in (connection, *running.values()):
                os.close(descriptor)
            if given.get("is_leader"):
                os.setsid()
            _become(given, streams)
            if given.get("at_terminal"):
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            return list(given["arguments"])
        running[program] = connection
        os.write(connection, f"{program}\n".encode())
        for stream in streams:
            os.close(stream)


def _tell_ends(running: dict[int, int]) -> None:
    """Tell the exit codes of the forks that have ended, and forget them."""
    while running:
        program, status = os.waitpid(-1, os.WNOHANG)
        if program == 0:
            return
        connection = running.pop(program)
        with suppress(BrokenPipeError):  # nobody waits for it any more
            os.write(connection, f"{os.waitstatus_to_exitcode(status)}\n".encode())
        os.close(connection)


def _walk(package: str) -> Iterator[str]:
    yield package
    for found in pkgutil.iter_modules(getattr(importlib.import_module(package), "__path__", ()), f"{package}."):
        yield from _walk(found.name)


def _become(given: Mapping[str, Any], streams: Sequence[int]) -> None:
    """Take the folder, the environment and the standard streams of a new process."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(given["cwd"])
    os.environ.clear()
    os.environ.update(given["env"])
    # the first ones stay in `sys.__stdin__` and so on: their end would close the descriptors
    sys.stdin = open(0, encoding=sys.stdin.encoding, errors=sys.stdin.errors, closefd=False)  # noqa: SIM115
    sys.stdout = _open_output(1, sys.stdout, is_immediate="PYTHONUNBUFFERED" in os.environ)
    sys.stderr = _open_output(2, sys.stderr, is_immediate=True)
    sys.path[:0] = [given["cwd"], *filter(None, given["env"].get("PYTHONPATH", "").split(os.pathsep))]


def _open_output(number: int, like: Any, *, is_immediate: bool) -> TextIO:
    """Open a standard stream as a new interpreter does."""
    return open(number, "w", 1 if is_immediate else -1, encoding=like.encoding, errors=like.errors, closefd=False)


def _run_program(arguments: Sequence[str]) -> None:
    """Run the program to its end, which spares taking the interpreter apart: a fork would copy each page of it first.

    What it has registered for its end still runs, and its threads are waited for.
    """
    sys.argv = ["amplifier", *arguments]
    try:
        runpy.run_module("amplifier_foundation", run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        _CODES.append(ended.code if isinstance(ended.code, int) else int(ended.code is not None))
        raise
    _CODES.append(0)


def _leave() -> None:
    if _CODES:
        with suppress(Exception):  # what cannot be written is told by the interpreter
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(_CODES[0] & 0xFF)


if __name__ == "__main__":
    atexit.register(_leave)  # the first one that is registered runs last
    asked = _serve(socket.socket(fileno=int(sys.argv[1])))
    if asked is not None:
        _run_program(asked)
