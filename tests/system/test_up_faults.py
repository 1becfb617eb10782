"""The whole program in bad company: its folder removed, signals too early, connections that say nothing."""

from __future__ import annotations

import asyncio
import http.client
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from amplifier_core import load_plugins
from amplifier_foundation import open_inbox
from tests.programs import require

pytestmark = pytest.mark.slow

PROGRAM = [sys.executable, "-m", "amplifier_foundation"]
PATIENCE = 60
CONNECTIONS = int(os.environ.get("CONNECTIONS", "1100"))
BURST = int(os.environ.get("BURST", "200"))
"""Files of a checkout, with an event chained to each."""

BUNDLE = """---
bundle: {name: hooked}
providers: [{module: provider-playbook, config: {otherwise: {say: fine}}}]
background_sessions:
  - name: hook
    triggers: [{module: trigger-webhook, config: {port: 0}}]
---
"""


CHAINED = """---
bundle: {name: chained}
providers: [{module: provider-playbook, config: {otherwise: {say: fine}}}]
background_sessions:
  - name: files
    pool_size: 8
    on_complete_emit: file:done
    triggers: [{type: file_change, config: {patterns: ["src/**"], debounce_ms: 50}}]
  - name: events
    pool_size: 8
    triggers: [{type: session_event, config: {event_names: ["file:done"]}}]
---
"""


LEAVE = """
import os

class Leave:
    name, description = "leave", "Changes the working folder of the process."
    input_schema = {"type": "object", "properties": {}}

    async def execute(self, input):
        os.chdir("/")
        return "gone"

async def mount(coordinator, config):
    await coordinator.mount("tools", Leave())
"""
LEAVING = """---
bundle: {name: leaving}
providers:
  - module: provider-playbook
    config:
      rules:
        - {when: {user: "leave"}, call: {tool: leave, input: {}}}
        - {when: {tool: leave}, say: "It is {result}."}
      otherwise: {say: of the bundle}
tools: [{module: leave, source: ./leave.py}]
background_sessions:
  - {name: leaving, instruction: leave}
  - {name: asked, instruction: say}
---
"""


class Up:
    """`amplifier up` in a process of its own, and the lines of its log."""

    def __init__(self, folder: Path, descriptors: int | None, bundle: str, home: Path | None) -> None:
        (folder / "bundle.md").write_text(bundle)
        self.folder = folder
        self.home = home or folder / "home"
        self.log = self.home.parent / f"{folder.name}.log"
        self.environment = {**os.environ, "AMPLIFIER_HOME": str(self.home)}

        def limit() -> None:
            if descriptors is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*PROGRAM, "up"],
                cwd=folder,
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=limit,
            )

    def until(self, pattern: str) -> re.Match[str]:
        """Return the match of a pattern in the log, once there is one."""
        ends = time.monotonic() + PATIENCE
        while time.monotonic() < ends:
            found = re.search(pattern, self.log.read_text())
            if found is not None:
                return found
            time.sleep(0.02)
        raise AssertionError(f"{pattern!r} did not come: {self.log.read_text()}")

    def fire(self, name: str) -> None:
        """Wake a background session."""
        command = [*PROGRAM, "trigger", "fire", name]
        subprocess.run(command, cwd=self.folder, env=self.environment, check=True, timeout=PATIENCE)

    def ignores(self, number: signal.Signals) -> bool:
        """Return whether the program ignores a signal now."""
        found = re.search(r"SigIgn:\s*([0-9a-f]+)", Path(f"/proc/{self.process.pid}/status").read_text())
        return found is not None and bool(int(found[1], 16) & 1 << number - 1)

    def port(self) -> int:
        """Return the port of its webhook."""
        return int(self.until(r"listens at http://127\.0\.0\.1:(\d+)/hook")[1])


@contextmanager
def up(folder: Path, descriptors: int | None = None, bundle: str = BUNDLE, home: Path | None = None) -> Iterator[Up]:
    """Run the program while the block runs."""
    program = Up(folder, descriptors, bundle, home)
    try:
        yield program
    finally:
        program.process.kill()
        program.process.wait()


def post(port: int, timeout: float = PATIENCE) -> tuple[int, str | None]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("POST", "/hook", b"{}", {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.getheader("Retry-After")
    finally:
        connection.close()


def test_a_data_folder_that_is_moved_away_and_back_is_used_on(tmp_path: Path) -> None:
    with up(tmp_path) as program:
        port = program.port()
        program.until("Watching")
        assert post(port)[0] == 202
        program.until("✓ hook")
        program.home.rename(tmp_path / "elsewhere")
        assert post(port) == (503, "1")
        program.until(f"{program.home} is gone")
        assert not program.home.exists()
        (tmp_path / "elsewhere").rename(program.home)
        program.until(f"{program.home} is back")
        while (status := post(port)[0]) != 202:
            assert status == 503
        program.until("(?s)✓ hook.*✓ hook")
        program.process.send_signal(signal.SIGTERM)
        assert program.process.wait(PATIENCE) == 143
        assert "Traceback" not in program.log.read_text()


@pytest.mark.parametrize("removal", ["removed", "replaced"])
def test_a_data_folder_that_is_gone_ends_it_with_75_and_the_reason(removal: str, tmp_path: Path) -> None:
    with up(tmp_path) as program:
        port = program.port()
        program.until("Watching")
        assert post(port)[0] == 202
        if removal == "removed":
            shutil.rmtree(program.home)
        else:
            program.home.rename(tmp_path / "elsewhere")
            program.home.mkdir()
        with suppress(OSError):  # it may have ended already
            assert post(port) == (503, "1")
        assert program.process.wait(PATIENCE) == 75
        last = program.log.read_text().strip().splitlines()[-1]
    assert last.startswith(f"amplifier: {program.home}: the data folder was removed or replaced")


def test_a_read_only_data_folder_shows_what_runs_and_lets_it_be_stopped(tmp_path: Path) -> None:
    """The commands see the folder so in a mount namespace of their own."""
    unshare = [require("unshare"), "--user", "--map-root-user", "--mount"]
    with up(tmp_path) as program:
        program.until("Watching")
        home = program.home
        read_only = f"mount --bind '{home}' '{home}' && mount -o remount,bind,ro '{home}'"
        if subprocess.run([*unshare, "sh", "-c", read_only], capture_output=True, check=False).returncode:
            pytest.skip("no mounts in user namespaces here")

        def run(*arguments: str) -> subprocess.CompletedProcess[str]:
            command = [*unshare, "sh", "-c", f'{read_only} && exec "$@"', "-", *PROGRAM, *arguments]
            return subprocess.run(
                command,
                cwd=tmp_path,
                env=program.environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=PATIENCE,
            )

        assert f"Process {program.process.pid} since" in run("ps").stderr
        assert "ports" in run("doctor").stdout
        refused = run("run", "hello")
        assert refused.returncode == 75
        assert "cannot be used (Read-only file system). Make it writable, or set AMPLIFIER_HOME" in refused.stderr
        stopped = run("stop", "--all")
        assert (stopped.returncode, f"Process {program.process.pid} has ended." in stopped.stderr) == (0, True)


def test_a_project_folder_that_is_removed_and_put_back_is_taken_up_again(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    with up(folder, home=tmp_path / "home") as program:
        program.until("Watching")
        shutil.rmtree(folder)
        program.until("has changed and is not taken up: ")
        folder.mkdir()
        (folder / "bundle.md").write_text(BUNDLE.replace("name: hook\n", "name: again\n"))
        program.until("has changed: again")
        assert program.process.poll() is None
        program.process.send_signal(signal.SIGTERM)
        assert program.process.wait(PATIENCE) == 143
        assert "Traceback" not in program.log.read_text()


def test_a_reload_reads_the_settings_of_the_folder_of_the_start(tmp_path: Path) -> None:
    """A tool has changed the folder of the process; `up` shows what its model says."""
    (tmp_path / ".amplifier").mkdir()
    said = "overrides: {provider-playbook: {config: {otherwise: {say: of the settings}}}}\n"
    (tmp_path / ".amplifier" / "settings.yaml").write_text(said)
    (tmp_path / "leave.py").write_text(LEAVE)
    with up(tmp_path, bundle=LEAVING) as program:
        program.until("Watching")
        program.fire("leaving")
        program.until("✓ leaving")
        assert "was / after the tool 'leave'; it was put back to " in program.log.read_text()
        (tmp_path / "bundle.md").write_text(f"{LEAVING}More.\n")
        program.until("has changed: ")
        program.fire("asked")
        assert "of the settings" in program.until("✓ asked .*")[0]


def test_a_hangup_at_any_moment_of_the_start_does_not_end_it(tmp_path: Path) -> None:
    with up(tmp_path) as program:
        while not program.ignores(signal.SIGHUP):  # Python itself starts
            time.sleep(0.001)
        while "Watching" not in program.log.read_text():
            assert program.process.poll() is None
            program.process.send_signal(signal.SIGHUP)
            time.sleep(0.01)
        assert post(program.port())[0] == 202
        program.process.send_signal(signal.SIGTERM)
        assert program.process.wait(PATIENCE) == 143


@pytest.mark.parametrize("descriptors", [None, 80])
def test_connections_that_say_nothing_leave_descriptors_for_others(descriptors: int | None, tmp_path: Path) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    with up(tmp_path, descriptors) as program, ExitStack() as stack:
        port = program.port()
        program.until("Watching")
        for _ in range(min(CONNECTIONS, most - 100)):
            silent = socket.socket()
            stack.callback(silent.close)
            silent.setblocking(False)
            silent.connect_ex(("127.0.0.1", port))
        program.fire("hook")
        program.until("✓ hook")
        stack.close()
        ends = time.monotonic() + PATIENCE
        answer: tuple[int, str | None] = (0, None)
        while answer[0] != 202 and time.monotonic() < ends:
            try:
                answer = post(port, timeout=5)  # one of a full queue may stay unanswered for a minute
            except OSError:
                time.sleep(0.1)
        log = program.log.read_text()
        program.process.send_signal(signal.SIGTERM)
        program.process.wait(PATIENCE)
    assert answer[0] == 202
    assert "Traceback" not in log
    assert "no file descriptor is free" not in log
    assert "Too many open files" not in log


def test_a_start_clears_what_killed_processes_left_and_nothing_of_running_ones(tmp_path: Path) -> None:
    home, old = tmp_path / "home", time.time() - 3600
    folders = [tmp_path / name for name in ("killed", "running", "next")]
    for folder in folders:
        folder.mkdir()

    def left() -> set[Path]:
        return {path for part in ("run", "processes") for path in (home / part).iterdir()}

    with up(folders[0], home=home) as killed:
        killed.until("Watching")
    with up(folders[1], home=home) as running:
        running.until("Watching")
        (of_running, of_killed) = (set(), set())
        for path in left():
            (of_running if str(running.process.pid) in path.name else of_killed).add(path)
            os.utime(path, (old, old))
        assert (len(of_running), len(of_killed)) == (2, 2)
        with up(folders[2], home=home) as last:
            last.until("Watching")
            assert left() & (of_running | of_killed) == of_running


def test_idle_connections_to_the_socket_of_the_process_cost_one_line(tmp_path: Path) -> None:
    with up(tmp_path, 100) as program, ExitStack() as stack:
        program.until("Watching")
        [path] = map(str, (program.home / "run").glob(f"{program.process.pid}-*.sock"))
        for _ in range(200):
            silent = socket.socket(socket.AF_UNIX)
            stack.callback(silent.close)
            silent.setblocking(False)
            with suppress(BlockingIOError):  # its queue is full
                silent.connect(path)
        program.until("no file descriptor is free: connections wait")
        program.process.send_signal(signal.SIGTERM)
        assert program.process.wait(PATIENCE) == 143
        log = program.log.read_text()
    assert "Traceback" not in log
    assert (
        log.count("no file descriptor is free: connections wait") == 1
    )  # the store may need one meanwhile, and say so


async def test_a_checkout_of_many_files_with_a_chained_event_each_is_handled_to_the_last(tmp_path: Path) -> None:
    environment = {**os.environ, "AMPLIFIER_HOME": str(tmp_path / "home")}
    (tmp_path / "bundle.md").write_text(CHAINED)

    def run_once() -> None:
        command = [*PROGRAM, "-q", "up", "--once"]
        subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=PATIENCE + BURST)

    await asyncio.to_thread(run_once)
    for number in range(BURST):
        path = tmp_path / "src" / str(number % 20) / f"{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number}")
    await asyncio.to_thread(run_once)
    store = open_inbox(load_plugins(environ={}), path=tmp_path / "home" / "amplifier.db")
    states = Counter((each.queue, each.state) for each in await store.deliveries(limit=10 * BURST))
    await store.close()
    assert states == {("chained/files", "done"): BURST, ("chained/events", "done"): BURST}
