"""Run the program in processes that are forked from one that has imported it.

Imports are most of a short run. A fork is a process like any other: it begins with what lies on the disk, has a number
of its own, and can be killed. Tests of the start itself, of signals and of terminals begin a new interpreter instead.
"""

from __future__ import annotations

import atexit
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
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock
from typing import Any

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
_LOCK = Lock()
_CODES: list[int] = []
"""In a fork: the exit code of the program, once that is known."""


def run(
    arguments: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    input: str = "",
    imports: Sequence[str] = (),
    timeout: float = 120.0,
) -> subprocess.CompletedProcess[str]:
    """Run `amplifier ARGUMENTS` and return how it ended, as `subprocess.run` does.

    The server imports the modules `imports` first: they stay imported for later runs. Raises `TimeoutExpired` after
    `timeout` seconds, and kills the process. A system where a fork is unsafe begins a new interpreter.
    """
    if sys.platform != "linux":
        command = [sys.executable, "-m", "amplifier_foundation", *arguments]
        return subprocess.run(
            command, cwd=cwd, env=env, input=input, capture_output=True, text=True, timeout=timeout, check=False
        )
    given = {"arguments": arguments, "cwd": str(cwd or Path.cwd()), "env": dict(env or os.environ), "imports": imports}
    ours, theirs = socket.socketpair()
    with ours, TemporaryFile() as stdin, TemporaryFile() as out, TemporaryFile() as err:
        stdin.write(input.encode())
        stdin.seek(0)
        with theirs, _LOCK:
            descriptors = [theirs.fileno(), stdin.fileno(), out.fileno(), err.fileno()]
            socket.send_fds(_start_server()[0], [b"."], descriptors)
        ours.sendall(json.dumps(given).encode())
        ours.shutdown(socket.SHUT_WR)
        code = _wait(ours, arguments, timeout)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(arguments, code, out.read().decode(), err.read().decode())


@cache
def _start_server() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start the server of this process; it ends when the socket is closed."""
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-P", __file__, str(theirs.fileno())]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        server = subprocess.Popen(
            command, cwd="/", env=environment, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
        )
    atexit.register(_stop_server, ours, server)
    return ours, server


def _stop_server(connection: socket.socket, server: subprocess.Popen[bytes]) -> None:
    connection.close()
    server.wait()


def _wait(connection: socket.socket, arguments: Sequence[str], timeout: float) -> int:
    """Return the exit code of the process, negative for a signal."""
    ends, lines, pid = time.monotonic() + timeout, b"", 0
    while lines.count(b"\n") < 2:
        connection.settimeout(max(0.001, ends - time.monotonic()))
        try:
            received = connection.recv(100)
        except TimeoutError:
            if pid:
                os.kill(pid, 9)
            raise subprocess.TimeoutExpired(arguments, timeout) from None
        assert received, "the server of forks has ended"
        lines += received
        pid = int(lines.partition(b"\n")[0]) if b"\n" in lines else 0
    return int(lines.split()[1])


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
            _become(given, streams)
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
    sys.path[:0] = [given["cwd"], *filter(None, given["env"].get("PYTHONPATH", "").split(os.pathsep))]


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
