"""Servers beside `up`: how they start, fail and end."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from amplifier_core.errors import UnknownName
from amplifier_core.hookspecs import hookimpl
from amplifier_core.plugins import Plugins
from amplifier_core.storage import DurableStore
from amplifier_core.testing import VirtualClock
from amplifier_foundation.background import servers
from amplifier_foundation.background.servers import ServerHost, ServerNotStarted
from amplifier_foundation.background.tasks import given_up
from amplifier_foundation.hookspecs import ServerContext
from tests import forks
from tests.odd_errors import PanicException, Unreadable

PLUGIN = '''
"""A server that tells the ids of all sessions."""

import asyncio
from contextlib import asynccontextmanager

from amplifier_core.hookspecs import hookimpl


@hookimpl
def amplifier_register_server(register):
    register("greeter", serve)


@asynccontextmanager
async def serve(config, context):
    async def answer(reader, writer):
        sessions = await context.store.sessions()
        writer.write(f"{config['greeting']} {len(sessions)}".encode())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", config.get("port", 0))
    async with server:
        yield "http://127.0.0.1:%d" % server.sockets[0].getsockname()[1]
'''
BUNDLE = "---\nbundle: {name: b}\nproviders: [{module: provider-playbook}]\nbackground_sessions: [{name: s}]\n---\n"


class Greeters:
    """Offers `greeter`, a server that fails when told so."""

    def __init__(self) -> None:
        self.fails_at_start: Exception | None = None
        self.fail = asyncio.Event()
        self.steps: list[str] = []

    @hookimpl
    def amplifier_register_server(self, register: Any) -> None:
        register("greeter", self.serve)

    @asynccontextmanager
    async def serve(self, config: Mapping[str, Any], context: ServerContext) -> AsyncIterator[str]:
        self.steps.append("starts")
        if self.fails_at_start is not None:
            raise self.fails_at_start

        async def work() -> None:
            await self.fail.wait()
            self.fail.clear()
            raise RuntimeError("the disk is on fire")

        async with asyncio.TaskGroup() as group:
            working = group.create_task(work())
            try:
                yield f"http://127.0.0.1:{config.get('port', 80)}"
            finally:
                self.steps.append("ends")
                working.cancel()


class Bench:
    """A host of servers, with what it reports."""

    def __init__(self, plugins: Plugins, store: DurableStore) -> None:
        self.clock, self.greeters = VirtualClock(), Greeters()
        self.reports: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self.notes: list[str] = []
        self._context = ServerContext(store, plugins)
        plugins.register(self.greeters, "greeters")

    def host(self, *, first: Mapping[str, Any] | None = None, later: Mapping[str, Any] | None = None) -> ServerHost:
        """Return a host of these servers."""
        return ServerHost(
            first or {}, later or {}, self._context, self.clock, lambda *told: self.reports.put_nowait(told),
            self.notes.append,
        )  # fmt: skip


@pytest.fixture
def bench(plugins: Plugins, store: DurableStore) -> Bench:
    return Bench(plugins, store)


async def test_a_server_that_was_asked_for_answers_when_the_block_begins(bench: Bench) -> None:
    async with bench.host(first={"greeter": {"port": 81}}).run_first() as addresses:
        assert addresses == {"greeter": "http://127.0.0.1:81"}
        assert bench.notes == ["greeter: http://127.0.0.1:81"]
        assert bench.greeters.steps == ["starts"]
    assert bench.greeters.steps == ["starts", "ends"]
    assert addresses == {}


async def test_a_failure_at_its_start_is_an_error_with_the_remedy(bench: Bench) -> None:
    bench.greeters.fails_at_start = OSError(errno.EADDRINUSE, "port 81 is taken; choose another with: port: 82")
    with pytest.raises(ServerNotStarted, match=r"'greeter' did not start: .*port 81 is taken; .*--serve greeter$"):
        async with bench.host(first={"greeter": {}}).run_first():
            raise AssertionError
    with pytest.raises(UnknownName, match="did you mean 'greeter'"):
        async with bench.host(first={"greter": {}}).run_first():
            raise AssertionError


async def test_a_server_that_ends_its_program_at_the_start_ends_itself_alone(bench: Bench) -> None:
    @asynccontextmanager
    async def serve(config: Mapping[str, Any], context: ServerContext) -> AsyncIterator[str]:
        sys.exit(1)
        yield ""

    bench._context.plugins.registry_of("server").add("leaver", serve, "a test")
    with pytest.raises(ServerNotStarted, match=r"'leaver' did not start: .*test_servers.py, line \d+: it called exit"):
        async with bench.host(first={"leaver": {}}).run_first():
            raise AssertionError


@pytest.mark.parametrize("asked", ["first", "later"])
async def test_a_server_that_does_not_end_is_given_up_and_named(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, asked: str
) -> None:
    serves, goes_on = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def serve(config: Mapping[str, Any], context: ServerContext) -> AsyncIterator[str]:
        try:
            serves.set()
            yield "http://127.0.0.1:80"
        finally:
            await goes_on.wait()

    monkeypatch.setattr(servers, "ENDING", 0.01)
    bench._context.plugins.registry_of("server").add("stayer", serve, "a test")
    host = bench.host(**{asked: {"stayer": {}}})
    async with host.run_first() if asked == "first" else host.run_later():
        await serves.wait()
    [left] = given_up
    [told] = [each for each in caplog.messages if each.startswith("server stayer goes on although it was cancelled")]
    assert f"serve ({__file__}:" in told
    goes_on.set()
    await asyncio.wait({left})


async def test_a_failure_later_is_a_problem_and_it_starts_again_after_growing_pauses(bench: Bench) -> None:
    async with bench.host(first={"greeter": {}}).run_first():
        assert await bench.reports.get() == ("server greeter", "")
        bench.greeters.fail.set()
        assert (await bench.reports.get())[1].startswith("RuntimeError: the disk is on fire (")
        bench.greeters.fails_at_start = OSError("still burning")
        for pause in (1, 2, 4):
            await bench.clock.advance(pause - 0.1)
            assert bench.reports.empty()
            await bench.clock.advance(0.1)
            assert (await bench.reports.get())[1].startswith("OSError: still burning (")
        bench.greeters.fails_at_start = None
        await bench.clock.advance(8)
        assert await bench.reports.get() == ("server greeter", "")
        await bench.clock.advance(60)
        bench.greeters.fail.set()
        assert (await bench.reports.get())[1].startswith("RuntimeError: the disk is on fire (")
        await bench.clock.advance(1)
        assert await bench.reports.get() == ("server greeter", "")


@pytest.mark.parametrize("error", [PanicException("in Rust"), Unreadable(), SystemExit(3)])
async def test_a_server_starts_again_after_any_error(bench: Bench, error: BaseException) -> None:
    starts = 0

    @asynccontextmanager
    async def serve(config: Mapping[str, Any], context: ServerContext) -> AsyncIterator[str]:
        nonlocal starts
        starts += 1
        if starts == 1:
            raise error
        yield "http://127.0.0.1:80"

    bench._context.plugins.registry_of("server").add("odd", serve, "a test")
    async with bench.host(later={"odd": {}}).run_later():
        name, problem = await bench.reports.get()
        assert (name, type(error).__name__ in problem or "called exit(3)" in problem) == ("server odd", True)
        await bench.clock.advance(1)
        assert await bench.reports.get() == ("server odd", "")


async def test_a_server_of_the_settings_that_is_not_installed_is_a_problem(bench: Bench) -> None:
    async with bench.host(later={"missing": {}, "greeter": {}}).run_later():
        reports = [await bench.reports.get(), await bench.reports.get()]
        assert sorted(reports)[0] == ("server greeter", "")
        assert sorted(reports)[1][1].startswith("unknown server 'missing'")


async def test_a_secret_of_its_config_comes_from_the_kept_keys(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path))
    with pytest.raises(ServerNotStarted, match="there is no key NOT_KEPT"):
        async with bench.host(first={"greeter": {"password": "secret://NOT_KEPT"}}).run_first():
            raise AssertionError


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a bundle, and a package with a server."""
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))
    packages, folder = tmp_path / "packages", tmp_path / "project"
    about = packages / "amplifier_greeter-1.0.dist-info"
    for each in (about, folder, tmp_path / "home"):
        each.mkdir(parents=True)
    (packages / "amplifier_greeter.py").write_text(PLUGIN)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: amplifier-greeter\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[amplifier]\ngreeter = amplifier_greeter\n")
    (folder / "bundle.md").write_text(BUNDLE)
    monkeypatch.setenv("PYTHONPATH", str(packages))
    monkeypatch.chdir(folder)
    return folder


async def test_up_serves_and_stops_and_a_project_names_no_server(project: Path) -> None:
    (project.parent / "home" / "settings.yaml").write_text("servers: {greeter: {greeting: hello}}\n")
    (project / ".amplifier").mkdir()
    (project / ".amplifier" / "settings.yaml").write_text("servers: {greeter: {greeting: no}}\n")
    up = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "amplifier_foundation", "up", "--serve", "greeter", stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        assert up.stdout is not None
        shown = ""
        while (found := re.search(r"greeter: http://127.0.0.1:(\d+)", shown)) is None:
            line = await asyncio.wait_for(up.stdout.readline(), 60)
            assert line, shown
            shown += line.decode()
        reader, writer = await asyncio.open_connection("127.0.0.1", int(found[1]))
        assert re.fullmatch(rb"hello \d", await reader.read())
        writer.close()
        up.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(up.wait(), 60) == 143
    finally:
        if up.returncode is None:
            up.kill()
            await up.wait()


def test_a_taken_port_ends_up_before_it_begins_and_an_unknown_server_is_not_found(project: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        servers = {"greeter": {"greeting": "hi", "port": taken.getsockname()[1]}}
        (project.parent / "home" / "settings.yaml").write_text(json.dumps({"servers": servers}))
        ended = [
            forks.run(["up", "--once", "--serve", name], timeout=60, env={**os.environ, "NO_COLOR": "1"})
            for name in ("greeter", "nobody")
        ]
    assert [each.returncode for each in ended] == [1, 5]
    assert "server 'greeter' did not start" in ended[0].stderr
    assert "leave out: --serve greeter" in ended[0].stderr
    assert "unknown server 'nobody'. Installed: dashboard, greeter" in ended[1].stderr
    assert not any("Traceback" in each.stderr for each in ended)
