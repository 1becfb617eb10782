"""The page of a running `up`, and of the command, as real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from socket import create_server
from typing import TYPE_CHECKING

import pytest

from amplifier_dashboard.running import noted
from amplifier_foundation.cli import exits, invoke

from .test_guard import Client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

PROGRAM = [sys.executable, "-m", "amplifier_foundation"]
BUNDLE = """---
bundle: {name: shop}
providers: [{module: provider-playbook, config: {otherwise: {say: done}}}]
background_sessions:
  - name: worker
    triggers: [{module: trigger-manual}]
---
"""
FOLDERS = ("one", "two", "three")


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[str]:
    """Run a command that serves the page; give the address that it prints. It ends in order."""
    environment = {**os.environ, "AMPLIFIER_HOME": str(folder / "home"), "AMPLIFIER_TRUST": "1", "NO_COLOR": "1"}
    with subprocess.Popen(
        [*PROGRAM, *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            lines: list[str] = []
            for line in process.stdout:
                lines.append(line)
                if "http://127.0.0.1:" in line:
                    break
            assert lines, process.wait()
            yield "http" + lines[-1].rpartition("http")[2].strip()
            process.send_signal(signal.SIGTERM)
            rest = process.stdout.read()
            assert process.wait() == 128 + signal.SIGTERM, rest
            assert "Traceback" not in rest
        finally:
            process.kill()


def ask_links(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Ask the command for a link to each page that runs."""
    environment = {**os.environ, "AMPLIFIER_HOME": str(folder / "home")}
    command = [*PROGRAM, "dashboard", "--link", *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def make_link(folder: Path, client: Client) -> str:
    """Return a link, as the command makes it while one page runs."""
    asked = ask_links(folder)
    assert asked.stdout.startswith(f"http://127.0.0.1:{client.place.port}/?token="), asked
    return asked.stdout.strip()


def prepare(folder: Path) -> None:
    """Write a bundle in each of the folders, and the setting of a free port."""
    with create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / "home").mkdir(mode=0o700)
    (folder / "home" / "settings.yaml").write_text(f"servers: {{dashboard: {{port: {port}}}}}\n", encoding="utf-8")
    for name in FOLDERS:
        (folder / name).mkdir()
        (folder / name / "bundle.md").write_text(BUNDLE, encoding="utf-8")


def test_a_running_up_serves_the_page(tmp_path: Path) -> None:
    (tmp_path / "bundle.md").write_text(BUNDLE, encoding="utf-8")
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "home" / "settings.yaml").write_text("servers: {dashboard: {port: 0}}\n", encoding="utf-8")
    with running(tmp_path, "up", "--serve", "dashboard", "bundle.md", "--trust") as address:
        assert "token" not in address  # it may go to a log
        client = Client(address)
        link = make_link(tmp_path, client)
        assert client.enter(link).status == 303
        assert client.ask("GET", "/").status == 200


def test_one_page_serves_all_that_run_with_a_data_folder_and_the_next_takes_over(tmp_path: Path) -> None:
    prepare(tmp_path)
    with ExitStack() as second:
        with running(tmp_path, "up", "one/bundle.md") as address:
            shared = second.enter_context(running(tmp_path, "up", "two/bundle.md"))
            client = Client(address)
            assert client.enter(make_link(tmp_path, client)).status == 303
            assert shared.startswith(f"{address}, served by process ")
            ps = [*PROGRAM, "ps"]
            environment = {**os.environ, "AMPLIFIER_HOME": str(tmp_path / "home")}
            listed = subprocess.run(ps, env=environment, capture_output=True, text=True, check=True).stdout
            assert listed.count("running") == 2
        ends = time.monotonic() + 30
        while time.monotonic() < ends:
            with suppress(OSError):
                if client.ask("GET", "/").status == 200:  # by the second one
                    break
            time.sleep(0.05)
        else:
            raise AssertionError("nobody serves the page any more")
        with running(tmp_path, "up", "--serve", "dashboard", "three/bundle.md") as third:
            assert third == f"{address}, served by process {second_pid(tmp_path)}"


def second_pid(folder: Path) -> int:
    """Return the process of the folder `two`."""
    environment = {**os.environ, "AMPLIFIER_HOME": str(folder / "home")}
    listed = subprocess.run([*PROGRAM, "ps", "--json"], env=environment, capture_output=True, text=True, check=False)
    owners = json.loads(listed.stdout)["data"]["processes"]
    return next(int(each["pid"]) for each in owners if str(folder / "two") in each["projects"])


def test_of_processes_that_start_together_one_serves_the_page(tmp_path: Path) -> None:
    prepare(tmp_path)
    with ExitStack() as stack, ThreadPoolExecutor(3) as pool:
        starts = [running(tmp_path, "up", "--serve", "dashboard", f"{name}/bundle.md") for name in FOLDERS]
        addresses = sorted(pool.map(stack.enter_context, starts))
    assert [each.startswith(f"{addresses[0]}, served by process ") for each in addresses] == [False, True, True]


def test_a_port_that_another_program_has_is_told_with_the_setting(tmp_path: Path) -> None:
    with create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (tmp_path / "home").mkdir(mode=0o700)
        settings = f"servers: {{dashboard: {{port: {port}}}}}\n"
        (tmp_path / "home" / "settings.yaml").write_text(settings, encoding="utf-8")
        (tmp_path / "bundle.md").write_text(BUNDLE, encoding="utf-8")
        environment = {**os.environ, "AMPLIFIER_HOME": str(tmp_path / "home"), "AMPLIFIER_TRUST": "1"}
        command = [*PROGRAM, "up", "--serve", "dashboard", "bundle.md"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == exits.FAILED
    assert "Choose another with the setting servers.dashboard.port; 0 takes any" in done.stderr


def test_the_command_serves_it_and_makes_further_links(tmp_path: Path) -> None:
    with running(tmp_path, "dashboard", "--port", "0") as link:
        first = Client(link)
        assert first.enter(link).status == 303
        assert first.ask("GET", "/").status == 200
        assert Client(link).enter(make_link(tmp_path, first)).status == 303


def test_each_page_that_runs_has_a_link_and_no_other(tmp_path: Path) -> None:
    asked = ask_links(tmp_path)
    assert (asked.returncode, asked.stdout) == (exits.NOT_FOUND, "")
    assert asked.stderr.endswith("no page runs with this data folder. Start one with: amplifier dashboard\n")
    with running(tmp_path, "dashboard", "--port", "0") as one, running(tmp_path, "dashboard", "--port", "0") as two:
        addresses = [one.partition("/?")[0], two.partition("/?")[0]]
        assert [line.partition("/?")[0] for line in ask_links(tmp_path).stdout.splitlines()] == addresses
        port = addresses[1].rpartition(":")[2]
        assert ask_links(tmp_path, "--port", port).stdout.startswith(f"{addresses[1]}/?token=")
        wrong = ask_links(tmp_path, "--host", "127.0.0.2")
        assert (wrong.returncode, wrong.stdout) == (exits.NOT_FOUND, "")
        assert f"no page runs at 127.0.0.2. Those that run: {', '.join(addresses)}\n" in wrong.stderr
    assert ask_links(tmp_path).returncode == exits.NOT_FOUND


@pytest.mark.parametrize(
    ("options", "places"),
    [
        ([], ["http://127.0.0.1:5", "http://[::1]:6", "https://192.0.2.1:7", "http://127.0.0.1:8"]),
        (["--port", "6"], ["http://[::1]:6"]),
        (["--port", "7"], ["https://192.0.2.1:7"]),
        (["--host", "localhost"], ["http://127.0.0.1:5", "http://127.0.0.1:8"]),
        (["--host", "127.0.0.1", "--port", "8"], ["http://127.0.0.1:8"]),
        (["--host", "192.0.2.1"], ["https://192.0.2.1:7"]),
    ],
)
def test_a_page_is_found_by_its_port_or_host_wherever_it_listens(
    options: list[str], places: list[str], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ExitStack() as pages:
        for address in ("http://127.0.0.1:5", "http://[::1]:6", "https://192.0.2.1:7", "http://127.0.0.1:8"):
            pages.enter_context(noted(address))
        assert invoke(["dashboard", "--link", *options]) == exits.OK
        assert [line.partition("/?")[0] for line in capsys.readouterr().out.splitlines()] == places
        assert invoke(["dashboard", "--link", *options, "--host", "127.0.0.1", "--port", "6"]) == exits.NOT_FOUND
        assert "no page runs at 127.0.0.1, port 6. Those that run: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "content", ["[]", "5", '{"http://127.0.0.1:5": null}', '{"x": "y"}', '{"http://h:x": "1"}', "{"]
)
def test_an_odd_note_of_pages_is_none(content: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "dashboard").mkdir(mode=0o700, parents=True)
    (home / "dashboard" / "pages").write_text(content, encoding="utf-8")
    assert invoke(["dashboard", "--link"]) == exits.NOT_FOUND
    assert "no page runs with this data folder" in capsys.readouterr().err
    with noted("http://127.0.0.1:5"):
        assert invoke(["dashboard", "--link"]) == exits.OK


def test_a_page_that_was_killed_has_no_link(tmp_path: Path) -> None:
    environment = {**os.environ, "AMPLIFIER_HOME": str(tmp_path / "home")}
    command = [*PROGRAM, "dashboard", "--port", "0"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None and process.stdout.readline()
        assert ask_links(tmp_path).returncode == exits.OK
        process.kill()
    assert ask_links(tmp_path).returncode == exits.NOT_FOUND


def test_a_session_makes_no_link(tmp_path: Path) -> None:
    environment = {**os.environ, "AMPLIFIER_HOME": str(tmp_path / "home"), "AMPLIFIER_SESSION": "1"}
    for options in (["--link"], ["--port", "0"]):
        command = [*PROGRAM, "dashboard", *options]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, done.stdout) == (exits.WAITING, "")
        assert "is for a person" in done.stderr
