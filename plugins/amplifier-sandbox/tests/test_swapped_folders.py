"""Folders that a program of another sandbox replaces by links, while a sandbox begins or a command is looked at."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from amplifier_sandbox.bubblewrap import Bubblewrap
from amplifier_sandbox.contracts import Run, find_bash
from amplifier_sandbox.landlock import Landlock, find_version
from amplifier_sandbox.protection import find_guarded, hold_new_repositories
from tests.programs import require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_sandbox.contracts import Launch, Sandbox

pytestmark = pytest.mark.slow

SWAP = """
import ctypes, sys
libc, swapped = ctypes.CDLL(None), [name.encode() for name in sys.argv[1:]]
print(flush=True)
while True:
    libc.renameat2(-100, swapped[0], -100, swapped[1], 2)
"""
LOOK = "echo RUNS; cat ~/key */key .ssh/key; for each in ~/key a/key .ssh/key .env; do echo x >>$each; done"

BUBBLEWRAP = Bubblewrap()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder of a person."""
    (tmp_path / "home" / ".ssh").mkdir(parents=True)
    for name in ("key", ".env", ".ssh/key"):
        (tmp_path / "home" / name).write_text("KEY\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The working folder, with guarded files, and a link beside each."""
    work = tmp_path / "work"
    (work / "a" / ".ssh").mkdir(parents=True)
    (work / "a" / ".env").write_text("MINE\n")
    (work / "b").symlink_to("../home")
    (work / ".ssh").mkdir()
    (work / "c").symlink_to("../home/.ssh")
    (work / ".env").write_text("MINE\n")
    (work / "d").symlink_to("../home/.env")
    return work


def prepare(work: Path, sandbox: Sandbox = BUBBLEWRAP, readable: Sequence[str] = ()) -> Launch:
    """Look at the working folder, and return the process that runs a command in it."""
    shell = [find_bash(), "-c", LOOK]
    return sandbox.launch(
        Run(shell, str(work), str(work), readable=readable, guarded=find_guarded(str(work)), scratch=str(work))
    )


def run(launch: Launch) -> str:
    """Return what a command says."""
    done = subprocess.run(
        launch.argv, env=launch.environment, pass_fds=launch.descriptors, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    for descriptor in launch.descriptors:
        os.close(descriptor)
    return done.stdout


def require_unchanged(home: Path) -> None:
    assert sorted(path.name for path in home.rglob("*")) == [".env", ".ssh", "key", "key"]
    assert {path.read_text() for path in home.rglob("*") if path.is_file()} == {"KEY\n"}


@pytest.mark.parametrize(("swapped", "link"), [("a", "b"), (".ssh", "c"), (".env", "d")])
def test_nothing_is_mounted_through_a_link_that_has_come_since_the_look(
    swapped: str, link: str, work: Path, home: Path
) -> None:
    require("bwrap")
    launch = prepare(work)
    (work / swapped).rename(work / "was")
    (work / link).rename(work / swapped)
    assert run(launch) == f"the sandbox does not begin: {swapped}: it has become a link just now; call again\n"
    require_unchanged(home)


def test_a_working_folder_that_was_replaced_by_a_link_is_not_mounted(work: Path, home: Path) -> None:
    require("bwrap")
    launch = prepare(work)
    work.rename(work.with_name("was"))
    work.symlink_to("home")
    assert run(launch) == f"the sandbox does not begin: {work}: it has become a link just now; call again\n"
    require_unchanged(home)


def test_a_guarded_file_that_is_gone_stops_the_command(work: Path, home: Path) -> None:
    require("bwrap")
    launch = prepare(work)
    (work / ".env").unlink()
    said = "the sandbox does not begin: .env: it has changed just now (No such file or directory); call again\n"
    assert run(launch) == said
    assert not (work / ".env").exists()


def test_nothing_runs_without_its_guards(work: Path, home: Path) -> None:
    require("bwrap")
    launch = prepare(work)
    dying = [each.replace("def _guard(", "def _guard(*_):\n    os._exit(9)\n\n\ndef _unused(") for each in launch.argv]
    assert dying != launch.argv
    assert "RUNS" not in run(launch._replace(argv=dying))


@pytest.mark.parametrize(("swapped", "link"), [("a", "b"), (".ssh", "c"), (".env", "d")])
def test_nothing_is_mounted_through_a_link_that_comes_and_goes(swapped: str, link: str, work: Path, home: Path) -> None:
    require("bwrap")
    with subprocess.Popen([sys.executable, "-c", SWAP, swapped, link], cwd=work, stdout=subprocess.PIPE) as swapping:
        assert swapping.stdout is not None
        swapping.stdout.readline()
        try:
            said = [run(prepare(work)) for _ in range(12)]
        finally:
            swapping.kill()
    assert "KEY" not in "".join(said)
    require_unchanged(home)


@pytest.mark.skipif(find_version() == 0, reason="this kernel has no Landlock")
def test_landlock_lets_nothing_be_read_for_a_link_in_the_working_folder(work: Path, home: Path) -> None:
    launch = prepare(work, Landlock(), [str(work / "a")])
    (work / "a").rename(work / "was")
    (work / "b").rename(work / "a")
    said = run(launch)
    assert "RUNS" in said and "KEY" not in said
    require_unchanged(home)


# the look afterwards

OPEN = """
import os, sys
from pathlib import Path
from amplifier_core.permissions import find_named_by_git, is_secret, read_regular, what_obeys
from amplifier_sandbox.protection import find_guarded
work = Path(sys.argv[1])
if os.geteuid() == 0:
    os.setuid(65534)  # for root, nothing is closed
before = find_guarded(str(work))
def swap(kind, path):
    if not (work / "was").exists():
        (work / "closed").rename(work / "was")
        (work / "closed").symlink_to("../theirs")
    return False
find_guarded(str(work), swap, before)
"""


@pytest.mark.parametrize("parts", [[".git"], ["HEAD", "objects", "refs"]])
def test_no_repository_outside_is_moved_aside(parts: list[str], tmp_path: Path) -> None:
    for folder in ("work/a", "theirs"):
        repository = tmp_path / folder / (".git" if parts == [".git"] else "")
        for name in ("objects", "refs"):
            (repository / name).mkdir(parents=True)
        (repository / "HEAD").write_text("ref: refs/heads/main\n")
        (repository / "config").write_text("[core]\n\tfsmonitor = ./run\n")
    (tmp_path / "work" / "b").symlink_to("../theirs")
    work = str(tmp_path / "work")
    before = find_guarded(work)._replace(obeyed=(), parts={}, identities={})
    after = find_guarded(work)
    (tmp_path / "work" / "a").rename(tmp_path / "work" / "was")
    (tmp_path / "work" / "b").rename(tmp_path / "work" / "a")
    [said] = hold_new_repositories(work, before, after)
    assert "is now behind a link, which has come just now" in said or "is now a-held-" in said
    assert {path.name for path in (tmp_path / "theirs").iterdir()} >= set(parts)


def test_no_folder_outside_is_opened(tmp_path: Path) -> None:
    for each in (tmp_path / "work" / "closed", tmp_path / "theirs"):
        each.mkdir(parents=True)
        each.chmod(0o000)
    (tmp_path / "work" / ".envrc").touch()
    if os.geteuid() == 0:
        for each in (tmp_path / "work", tmp_path / "work" / "closed", tmp_path / "theirs"):
            os.chown(each, 65534, -1)
        for above in (tmp_path, *tmp_path.parents):
            above.chmod(above.stat().st_mode | 0o011)
    done = subprocess.run(
        [sys.executable, "-c", OPEN, str(tmp_path / "work")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "work" / "closed").is_symlink()
    assert (tmp_path / "theirs").stat().st_mode & 0o777 == 0


def test_a_working_folder_with_the_shape_of_a_repository_keeps_its_guards(tmp_path: Path) -> None:
    require("bwrap")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    for name in ("objects", "refs"):
        (tmp_path / name).mkdir()
    (tmp_path / "HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / "config").write_text("[core]\n\tbare = true\n\tfsmonitor = /bin/true\n")
    (tmp_path / ".env").write_text("SECRET\n")
    guarded = [".git/config", "config", ".env"]
    before = {name: (tmp_path / name).read_text() for name in guarded}
    shell = [find_bash(), "-c", "cat .env; for each in .git/config config .env; do echo x >>$each; done; echo RUNS"]
    where = str(tmp_path)
    said = run(BUBBLEWRAP.launch(Run(shell, where, where, guarded=find_guarded(where))))
    assert "SECRET" not in said and said.endswith("RUNS\n")
    assert {name: (tmp_path / name).read_text() for name in guarded} == before


def test_the_helper_ends_with_its_bubblewrap(work: Path, home: Path) -> None:
    require("bwrap")
    launch = prepare(work)
    waiting = [
        each.replace("def _guard(", "def _guard(*_):\n    os.read(os.pipe()[0], 1)\n\n\ndef _unused(")
        for each in launch.argv
    ]
    process = subprocess.Popen(waiting, env=launch.environment, pass_fds=launch.descriptors, stdin=subprocess.DEVNULL)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while len(both := [*map(int, children.read_text().split())]) < 2:
        assert process.poll() is None
    process.kill()
    process.wait()
    for descriptor in launch.descriptors:
        os.close(descriptor)
    helper, begun = both
    while is_running(helper):
        pass
    with suppress(ProcessLookupError):  # bubblewrap may have told nothing of it yet
        os.kill(begun, signal.SIGKILL)


def test_a_sandbox_that_begins_ends_with_its_bubblewrap(work: Path, home: Path) -> None:
    require("bwrap")
    shell = [find_bash(), "-c", "echo >began; sleep 3600"]
    launch = BUBBLEWRAP.launch(Run(shell, str(work), str(work), guarded=find_guarded(str(work))))
    (waiting, going), (said, saying) = os.pipe(), os.pipe()
    guard = f"""def _guard(*given):
    os.write({saying}, b".")
    os.read({waiting}, 1)
    _do_guard(*given)
    os.write({saying}, b".")


def _do_guard("""
    argv = [each.replace("def _guard(", guard) for each in launch.argv]
    inherited = (*launch.descriptors, waiting, saying)
    process = subprocess.Popen(argv, env=launch.environment, pass_fds=inherited, stdin=subprocess.DEVNULL)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    os.read(said, 1)
    helper, begun = map(int, children.read_text().split())
    os.kill(begun, signal.SIGSTOP)  # it has not yet asked for a signal at the end of bubblewrap
    os.write(going, b".")
    os.read(said, 1)
    process.kill()
    process.wait()
    while is_running(helper):
        pass
    with suppress(ProcessLookupError):
        os.kill(begun, signal.SIGCONT)
    while is_running(begun) and not (work / "began").exists():
        pass
    for descriptor in (*inherited, going, said):
        os.close(descriptor)
    with suppress(ProcessLookupError):
        os.kill(begun, signal.SIGKILL)
    assert not (work / "began").exists()


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
