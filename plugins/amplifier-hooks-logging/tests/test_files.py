"""The files: full at exactly their size, nothing lost between them, whole lines whatever happens."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.cli import invoke
from amplifier_hooks_logging.files import RotatingFile


def line(number: int, length: int = 10) -> bytes:
    return f"{number:0{length - 1}d}\n".encode()


def contents(path: Path, keep: int) -> list[bytes | None]:
    """Return what the files hold, the present one first."""
    paths = [path, *(path.with_name(f"{path.name}.{number}") for number in range(1, keep + 2))]
    return [each.read_bytes() if each.exists() else None for each in paths]


def test_a_line_that_would_make_the_file_larger_begins_a_new_one(log: Path) -> None:
    file = RotatingFile(log, max_bytes=30, keep=2)
    file.append([line(0), line(1)])
    file.append([line(2)])
    assert contents(log, 2) == [line(0) + line(1) + line(2), None, None, None]
    file.append([line(3, 1 + 9)])
    assert contents(log, 2) == [line(3), line(0) + line(1) + line(2), None, None]
    file.append([line(4), line(5, 11)])
    assert contents(log, 2) == [line(5, 11), line(3) + line(4), line(0) + line(1) + line(2), None]


def test_one_append_may_fill_many_files_and_the_oldest_are_deleted(log: Path) -> None:
    RotatingFile(log, max_bytes=20, keep=2).append([line(number) for number in range(9)])
    assert contents(log, 2) == [line(8), line(6) + line(7), line(4) + line(5), None]


@pytest.mark.parametrize("keep", [0, 1])
def test_few_or_no_full_files_may_be_kept(keep: int, log: Path) -> None:
    RotatingFile(log, max_bytes=10, keep=keep).append([line(1), line(2), line(3)])
    assert contents(log, 1) == [line(3), line(2) if keep else None, None]


def test_a_line_longer_than_a_file_has_one_of_its_own(log: Path) -> None:
    RotatingFile(log, max_bytes=15, keep=3).append([line(1), line(2, 40), line(3)])
    assert contents(log, 3) == [line(3), line(2, 40), line(1), None, None]


def test_a_file_of_exactly_the_size_is_not_full(log: Path) -> None:
    file = RotatingFile(log, max_bytes=20, keep=1)
    file.append([line(1), line(2)])
    assert contents(log, 1) == [line(1) + line(2), None, None]


def test_half_a_line_that_a_kill_left_is_cut_away(log: Path) -> None:
    log.write_bytes(line(1) + b"0000")
    RotatingFile(log, 1000, 1).append([line(2)])
    assert log.read_bytes() == line(1) + line(2)


def test_a_file_that_is_nothing_but_half_a_line_is_begun_anew(log: Path) -> None:
    log.write_bytes(b"{")
    RotatingFile(log, 1000, 1).append([line(2)])
    assert log.read_bytes() == line(2)


def test_an_endless_line_of_another_program_is_ended_and_kept(log: Path) -> None:
    log.write_bytes(b"x" * 100_000)
    RotatingFile(log, 1_000_000, 1).append([line(2)])
    assert log.read_bytes() == b"x" * 100_000 + b"\n" + line(2)


def test_a_folder_that_is_deleted_in_between_is_made_again(work: Path) -> None:
    file = RotatingFile(work / "deep" / "log", 1000, 1)
    file.append([line(1)])
    file.path.unlink()
    file.path.parent.rmdir()
    file.append([line(2)])
    assert file.path.read_bytes() == line(2)


async def test_a_session_loses_no_line_between_its_files(session: Any, log: Path, work: Path, read: Any) -> None:
    made = session(*(("tool:pre", {"n": n, "text": "x" * (n * 7 % 90)}) for n in range(200)), max_bytes=2000, keep=99)
    await made.execute("hello")
    await made.cleanup()
    files = [log, *(work / f"events.jsonl.{number}" for number in range(1, len(list(work.iterdir()))))]
    assert len(files) > 10
    first_lines = [len(path.read_bytes().partition(b"\n")[0]) + 1 for path in files]
    sizes = [path.stat().st_size for path in files]
    assert max(sizes) <= 2000
    assert all(size + following > 2000 for size, following in zip(sizes[1:], first_lines, strict=False))
    lines = [each for path in reversed(files) for each in read(path)]
    assert [each["data"]["n"] for each in lines if each["event"] == "tool:pre"] == list(range(200))
    assert (lines[0]["event"], lines[-1]["event"]) == ("session:start", "session:end")


def test_nobody_else_may_write_while_a_file_is_written(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []

    def write(file: int, data: bytes) -> int:
        with log.open() as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        written.append(data)
        return write_to(file, data)

    write_to = os.write
    monkeypatch.setattr(os, "write", write)
    RotatingFile(log, 1000, 1).append([line(1), line(2)])
    assert written == [line(1) + line(2)]


def test_a_file_that_another_process_rotates_before_it_is_locked_is_let_go(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rotate_first(file: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        log.rename(f"{log}.1")
        lock(file, operation)

    lock = fcntl.flock
    log.write_bytes(line(1))
    monkeypatch.setattr(fcntl, "flock", rotate_first)
    RotatingFile(log, 1000, 1).append([line(2)])
    assert contents(log, 1) == [line(2), line(1), None]


APPENDING = """
import json, sys
from pathlib import Path
from amplifier_hooks_logging.files import RotatingFile

path, name = sys.argv[1:]
file = RotatingFile(Path(path), max_bytes=5000, keep=200)
print("ready", flush=True)
sys.stdin.readline()
for number in range(0, 600, 3):
    lines = [{"of": name, "n": n, "fill": "x" * (n % 80)} for n in range(number, number + 3)]
    file.append([json.dumps(line).encode() + b"\\n" for line in lines])
"""


def test_processes_that_write_one_file_lose_and_mix_nothing(log: Path, read: Any) -> None:
    command = [sys.executable, "-c", APPENDING, str(log)]
    pipe = subprocess.PIPE
    processes = [subprocess.Popen([*command, name], stdin=pipe, stdout=pipe, text=True) for name in "abc"]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.communicate("go\n", timeout=60)
        assert process.returncode == 0
    files = list(log.parent.glob("events.jsonl*"))
    assert max(path.stat().st_size for path in files) <= 5000
    files.sort(key=lambda path: -int(path.suffix[1:]) if path.suffix != ".jsonl" else 0)
    found = [(each["of"], each["n"]) for path in files for each in read(path)]
    assert sorted(found) == [(name, n) for name in "abc" for n in range(600)]
    for name in "abc":
        assert [n for of, n in found if of == name] == list(range(600))


ON_A_SMALL_DISK = """
import resource, sys
from pathlib import Path
from amplifier_hooks_logging.files import RotatingFile

path = Path(sys.argv[1])
file = RotatingFile(path, 1_000_000, 1)
file.append([b"first\\n"])
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    file.append([b"x" * 200 + b"\\n"])
except OSError as error:
    print(error.strerror, path.read_bytes())
file.append([b"third\\n"])
"""


def test_a_line_that_the_disk_takes_half_of_is_not_written(log: Path) -> None:
    done = subprocess.run([sys.executable, "-c", ON_A_SMALL_DISK, str(log)], capture_output=True, text=True, check=True)
    assert done.stdout == "File too large b'first\\n'\n"
    assert log.read_bytes() == b"first\nthird\n"


KILLED = """
import asyncio, json, sys
from amplifier_core import AmplifierSession
from amplifier_core.loader import ModuleLoader

async def main():
    plan, modules = json.loads(sys.argv[1]), sys.argv[2]
    session = AmplifierSession(plan, ModuleLoader(search_paths=[modules]), "s")
    await session.execute("hello")
    await session.coordinator.hooks.emit("tool:pre", {"n": "of a turn that is cut"})
    print("told", flush=True)
    sys.stdin.read()

asyncio.run(main())
"""


async def test_a_killed_process_leaves_the_whole_lines_of_its_turns(
    session: Any, tmp_path: Path, log: Path, read: Any
) -> None:
    made = session(*(("tool:post", {"result": "x" * 5000}) for _ in range(20)), path=str(log))
    command = [sys.executable, "-c", KILLED, json.dumps(made.config), str(tmp_path / "modules")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "told\n"
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    events = [each["event"] for each in read(log)]
    assert events == ["session:start", "prompt:submit", *["tool:post"] * 20, "orchestrator:complete"]


def test_a_deleted_session_has_no_log_and_those_of_others_stay(
    home: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "bundle.md").write_text(
        "---\nbundle: {name: b}\nproviders:\n  - {module: provider-playbook, config: {otherwise: {say: hi}}}\nhooks:\n"
        "  - {module: hooks-logging, config: {max_bytes: 1000}}\n---\nHello.\n"
    )
    monkeypatch.chdir(work)
    monkeypatch.setenv("AMPLIFIER_TRUST", "1")
    for _ in range(2):
        assert invoke(["run", "a prompt with a secret"]) == 0
    [one, other] = sorted(home.glob("projects/*/sessions/*"))
    assert {"events.jsonl", "events.jsonl.1"} <= {each.name for each in one.iterdir()}
    assert invoke(["session", "delete", one.name, "--yes"]) == 0
    assert list(home.glob("projects/*/sessions/*")) == [other]
    (other / "transcript.jsonl").write_text("of another program")
    assert invoke(["session", "delete", other.name, "--yes"]) == 0
    assert {"events.jsonl", "transcript.jsonl"} <= {each.name for each in other.iterdir()}
