"""Run tests in several processes that are forked from the one that has collected them.

    python -m pytest -p tests.parallel --processes 4

Collecting these tests takes longer than starting a hundred processes: here it is done once. A process takes one file at
a time, with what its tests share. Half of the processes take the slow files first, the others the quick ones, so that
small files are left for the end. Each process has its own folder for temporary files, in memory where there is room,
and its own fixtures of the scope `session`.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NoReturn

import pytest

SLOW = (
    *("tests/system/", "plugins/amplifier-dashboard/", "plugins/amplifier-acp/", "plugins/amplifier-hooks-otel/"),
    *("tests/foundation/isolation/", "tests/packaging/", "tests/test_", "plugins/amplifier-storage-", "tests/cli/"),
)
"""The files that are taken first begin with one of these, in this order."""
ROOM = 4 * 1024**3
"""Bytes that the files of all tests take at most."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the number of processes."""
    parser.addoption("--processes", type=int, default=0, metavar="N", help="run the tests in N forked processes")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in processes, if so many are asked for."""
    option = session.config.option
    if not option.processes or option.collectonly or (session.testsfailed and not option.continue_on_collection_errors):
        return None
    # a killed process loses nothing in memory, and each commit of a store waits for a disk
    if (memory := _ram_disk()) is not None:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))
    folder: Path = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    pool = Pool(session)
    try:
        pool.run(option.processes)
    finally:
        pool.kill()
        if not session.testsfailed and memory in folder.parents:
            shutil.rmtree(folder, ignore_errors=True)
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
    return True


class Worker:
    """A process, as the one that started it knows it."""

    def __init__(self, pid: int, connection: Connection, *, takes_slow: bool) -> None:
        self.pid = pid
        self.takes_slow = takes_slow
        self.connection = connection
        self.tests: deque[int] = deque()
        """The tests that it was given and has not ended; it runs the first one."""
        self.last: int | None = None
        """The test that it ended last."""


class Pool:
    """The processes, and the files that none of them has taken."""

    def __init__(self, session: pytest.Session) -> None:
        self.session = session
        self.files = deque(_files(session.items))
        self.workers: dict[Connection, Worker] = {}
        self.started = 0

    def run(self, processes: int) -> None:
        """Run all tests, at most until one of them ends the run."""
        gc.collect()
        gc.freeze()  # a process shares what no collection touches
        for _ in range(min(processes, len(self.files))):
            self.start([])
        while self.workers and not (self.session.shouldfail or self.session.shouldstop):
            for connection in wait(list(self.workers)):
                worker = self.workers[connection]  # type: ignore[index]
                if (told := _receive(worker.connection)) is None:
                    self.bury(worker)
                else:
                    self.handle(worker, *told)

    def start(self, tests: Sequence[int]) -> None:
        """Start a process that runs `tests` first."""
        ours, theirs = Pipe()
        self.started += 1
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            ours.close()
            for connection in self.workers:
                connection.close()
            _work(self.session, theirs, self.started)
        theirs.close()
        worker = self.workers[ours] = Worker(pid, ours, takes_slow=self.started % 2 == 1)
        if tests:
            self.give(worker, tests)

    def give(self, worker: Worker, tests: Sequence[int]) -> None:
        """Have a process run tests after those that it has; none end it."""
        worker.tests.extend(tests)
        with suppress(BrokenPipeError):  # it has ended: the next look at its connection tells
            worker.connection.send(tests)

    def handle(self, worker: Worker, kind: str, told: Any) -> None:
        """Do what a process asks for, or report what it tells."""
        hook, config = self.session.config.hook, self.session.config
        if kind == "report":
            hook.pytest_runtest_logreport(report=hook.pytest_report_from_serializable(config=config, data=told))
        elif kind == "begun":
            hook.pytest_runtest_logstart(**told)
        elif kind == "ended":
            worker.last = worker.tests.popleft()
            hook.pytest_runtest_logfinish(**told)
        else:
            assert kind == "next"
            # the slow ones wait for processes and clocks: the quick ones have the processor meanwhile
            take = self.files.popleft if worker.takes_slow else self.files.pop
            self.give(worker, take() if self.files else [])

    def bury(self, worker: Worker) -> None:
        """Report the test in which a process ended, and start another one for those that it had before it."""
        del self.workers[worker.connection]
        worker.connection.close()
        code = os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])
        if code != 0:
            item = self.session.items[worker.tests.popleft() if worker.tests else worker.last or 0]
            text = f"the process of this test, or of what follows its end, ended with {code}"
            report = pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")
            self.session.config.hook.pytest_runtest_logreport(report=report)
        if worker.tests:
            self.start(list(worker.tests))

    def kill(self) -> None:
        """Kill the processes that are left."""
        for worker in self.workers.values():
            os.kill(worker.pid, signal.SIGKILL)
            os.waitpid(worker.pid, 0)


def _receive(connection: Connection) -> tuple[str, Any] | None:
    """Return what a process tells, or None once it has ended."""
    try:
        told: tuple[str, Any] = connection.recv()
    except (EOFError, ConnectionError):
        return None
    return told


def _ram_disk() -> Path | None:
    """Return a folder in memory with room for the files of all tests, where programs may be run; or None."""
    folder = Path("/dev/shm")
    if not folder.is_dir():
        return None
    disk, memory = os.statvfs(folder), os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    fits = os.access(folder, os.W_OK) and not disk.f_flag & os.ST_NOEXEC
    return folder if fits and min(disk.f_bavail * disk.f_frsize, memory) >= ROOM else None


def _files(items: Sequence[pytest.Item]) -> list[list[int]]:
    """Return the numbers of the tests of each file, the slow ones first."""
    found: dict[str, list[int]] = {}
    for number, item in enumerate(items):
        found.setdefault(item.nodeid.partition("::")[0], []).append(number)
    order = {name: next((n for n, slow in enumerate(SLOW) if name.startswith(slow)), len(SLOW)) for name in found}
    return [found[name] for name in sorted(found, key=order.__getitem__)]


def _work(session: pytest.Session, connection: Connection, number: int) -> NoReturn:
    """Run tests in this process until there are none, and end it."""
    code = 1
    try:
        _become_a_worker(session.config, number)
        session.config.pluginmanager.register(Reporter(session.config, connection))
        tests = _tests(connection)
        given = next(tests, None)
        while given is not None and not session.shouldfail:
            item, given = session.items[given], next(tests, None)
            following = None if given is None else session.items[given]
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        code = 0
    except BaseException as error:
        if not isinstance(error, (BrokenPipeError, EOFError, KeyboardInterrupt)):
            sys.__excepthook__(type(error), error, error.__traceback__)
    finally:
        os._exit(code)


def _become_a_worker(config: pytest.Config, number: int) -> None:
    """Take what two processes cannot share: the files of captured output, the terminal and temporary folders."""
    captured: Any = config.pluginmanager.getplugin("capturemanager")._global_capturing
    for capture in (captured.out, captured.err):
        if hasattr(capture, "targetfd"):  # the objects stay: libraries hold the `sys.stderr` of their import
            with TemporaryFile(buffering=0) as file:
                os.dup2(file.fileno(), capture.tmpfile.fileno(), inheritable=False)
                os.dup2(file.fileno(), capture.targetfd)
    config.pluginmanager.unregister(name="terminalreporter")
    factory = config._tmp_path_factory  # type: ignore[attr-defined]
    folder = factory.getbasetemp() / f"process{number}"
    folder.mkdir()
    factory._basetemp = folder


def _tests(connection: Connection) -> Iterator[int]:
    """Yield the numbers of tests; the next file is taken when the last test of one is about to run."""
    given: deque[int] = deque()
    while True:
        if not given:
            connection.send(("next", None))
            given.extend(connection.recv())
        if not given:
            return
        yield given.popleft()


class Reporter:
    """A plugin that tells the first process what happens in this one."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self.config = config
        self.connection = connection

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self.connection.send(("begun", {"nodeid": nodeid, "location": location}))

    def pytest_runtest_logfinish(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self.connection.send(("ended", {"nodeid": nodeid, "location": location}))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
        self.connection.send(("report", data))
