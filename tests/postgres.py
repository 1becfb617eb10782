"""Run a real PostgreSQL server for tests, as an unprivileged user and in a temporary folder.

A test module imports the fixtures that it needs: `from tests.postgres import database, postgres`. `postgres` is one
server for all tests of the process, without `fsync`; `database` is the dsn of an empty database on it. A test that
kills its server takes one of its own: `with running(fsync=True) as server`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests import programs

USER = "postgres"
"""The role of the dsns, a superuser without a password."""

PATIENCE = 60.0
"""Seconds that a server has to start or to stop."""


def _program(name: str) -> str:
    """Return the path of a program of PostgreSQL, the newest; skips the test without one, fails it with `CI`."""
    installed = Path("/usr/lib/postgresql").glob(f"*/bin/{name}")
    newest = sorted(installed, key=lambda path: int(path.parts[-3].partition(".")[0]))
    return str(newest[-1]) if newest and shutil.which(name) is None else programs.require(name)


def _account() -> str | None:
    """Return the user that runs the server; None: the one of this process, who is not root."""
    if os.geteuid() != 0:
        return None
    return "postgres" if "postgres" in {entry.pw_name for entry in pwd.getpwall()} else "nobody"


def _environment() -> dict[str, str]:
    """Return the environment without what names another server."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")} | {"LC_ALL": "C.UTF-8"}


def free_port() -> int:
    """Return a port of 127.0.0.1 where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Postgres:
    """A server on a unix socket in `folder` and, with a `port`, on 127.0.0.1, too.

    `settings` are options of postgresql.conf. The folder belongs to the user that runs the server; its path is short.
    """

    def __init__(
        self, folder: Path, *, fsync: bool = False, port: int | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.port = port
        self._fsync = fsync
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        self._names = (f"test{number}" for number in itertools.count(1))
        account = _account()
        if account is not None:
            shutil.chown(folder, account)
        self._as_user: dict[str, str] = {} if account is None else {"user": account}
        self.run("initdb", "-D", str(self.data), "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "-N")

    @property
    def pid(self) -> int:
        """The id of the server's first process."""
        assert self._process is not None, "the server does not run"
        return self._process.pid

    def dsn(self, name: str = "postgres", *, port: int | None = None) -> str:
        """Return the dsn of a database on the unix socket or, with a `port` of 127.0.0.1 (of a proxy, say), there."""
        place = f"host={self.folder}" if port is None else f"host=127.0.0.1 port={port}"
        return f"{place} user={USER} dbname={name}"

    def start(self) -> None:
        """Start the server, or start it again, and return when it takes connections."""
        assert self._process is None, "the server runs"
        options = {
            "listen_addresses": "127.0.0.1" if self.port else "",
            "unix_socket_directories": str(self.folder),
            "fsync": "on" if self._fsync else "off",
            "full_page_writes": "on" if self._fsync else "off",
            "max_connections": "200",
            "shared_buffers": "32MB",
            **({"port": str(self.port)} if self.port else {}),
            **self._settings,
        }
        settings = [f"--{name}={value}" for name, value in options.items()]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [_program("postgres"), "-D", str(self.data), *settings],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=_environment(),
                start_new_session=True,  # Ctrl-C at the tests is not for the server
                **self._as_user,  # type: ignore[call-overload]
            )
            # a run of tests that is killed leaves no server: its end of the pipe is closed then
            self._watcher = subprocess.Popen(
                ["sh", "-c", 'read -r _; kill -QUIT "$0"', str(self.pid)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._as_user,  # type: ignore[call-overload]
            )
        self._wait_until_ready()

    def stop(self, *, in_order: bool = True) -> None:
        """Stop the server and close its connections, in order or as a crash would. Nothing happens if it is stopped."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT if in_order else signal.SIGQUIT)
            self._process.wait(PATIENCE)
            self._end()

    def kill(self) -> None:
        """Kill every process of the server with SIGKILL, as a power cut would end them."""
        processes = [self.pid, *self._children()]
        for pid in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert self._process is not None
        self._process.wait(PATIENCE)
        self._end()
        end = time.monotonic() + PATIENCE
        while any(_is_running(pid) for pid in processes) and time.monotonic() < end:
            time.sleep(0.005)

    def create(self, name: str | None = None, *, template: str = "template0") -> str:
        """Create a database, a copy of `template`, and return its dsn."""
        name = name or next(self._names)
        self.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return self.dsn(name)

    def drop(self, name: str) -> None:
        """Drop a database, with the connections to it."""
        self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def execute(self, statement: str, *, database: str = "postgres") -> str:
        """Execute SQL as the superuser and return the rows, as psql prints them without a frame."""
        return self.run("psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-d", self._own_dsn(database), "-c", statement)

    def _end(self) -> None:
        assert self._watcher is not None
        self._watcher.kill()
        self._watcher.communicate()
        self._process = self._watcher = None

    def _own_dsn(self, database: str) -> str:
        return self.dsn(database) + (f" port={self.port}" if self.port else "")

    def _children(self) -> list[int]:
        rows = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
        pairs = [tuple(map(int, row.split())) for row in rows.splitlines()]
        return [pid for pid, parent in pairs if parent == self.pid]

    def _wait_until_ready(self) -> None:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            assert self._process is not None and self._process.poll() is None, (self.folder / "log").read_text()
            with contextlib.suppress(RuntimeError):
                self.execute("SELECT 1")
                return
            time.sleep(0.02)
        raise TimeoutError((self.folder / "log").read_text())

    def run(self, program: str, *arguments: str) -> str:
        """Run a program of PostgreSQL in the server's folder and return its output. Raises `RuntimeError`."""
        done = subprocess.run(
            [_program(program), *arguments],
            cwd=self.folder,
            env=_environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            **self._as_user,  # type: ignore[call-overload]
        )
        if done.returncode != 0:
            raise RuntimeError(f"{program}: {done.stderr.strip()}")
        return str(done.stdout).strip()


@contextlib.contextmanager
def running(
    *, fsync: bool = False, port: int | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[Postgres]:
    """Run a new server until the block ends; nothing is left of it."""
    _program("initdb")
    folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))  # the path of a unix socket has at most 107 bytes
    try:
        server = Postgres(folder, fsync=fsync, port=port, settings=settings)
        server.start()
        try:
            yield server
        finally:
            server.stop(in_order=False)  # nobody reads its files again
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One server for all tests of this process."""
    with running() as server:
        yield server


@pytest.fixture
def database(postgres: Postgres) -> str:
    """The dsn of an empty database; it goes with the server."""
    return postgres.create()
