"""Files on a real disk: whole or not at all, private, and tried again."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.bundle import UnreadableBundle
from amplifier_foundation.documents.files import (
    TRANSIENT,
    back_up,
    parse_frontmatter,
    read_with_retry,
    read_yaml,
    write_whole,
    write_with_backup,
    write_with_retry,
    write_yaml,
)

NO_MEMORY_THERE = Path("/proc/self/mem")
"""A file that answers EIO when it is read."""

linux = pytest.mark.skipif(not NO_MEMORY_THERE.exists(), reason="there is no file here that fails when it is read")


class Waiting:
    """A clock that waits for nothing; what `meanwhile` does happens while somebody sleeps."""

    def __init__(self, meanwhile: Callable[[int], None] = lambda _: None) -> None:
        self.slept: list[float] = []
        self._meanwhile = meanwhile

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return sum(self.slept)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self._meanwhile(len(self.slept))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "notes.txt"


# retries


@linux
async def test_reading_is_tried_again_until_it_works(file: Path) -> None:
    file.symlink_to(NO_MEMORY_THERE)

    def mend(times: int) -> None:
        if times == 2:
            file.unlink()
            file.write_bytes("né\r\nzwei\n".encode())

    clock = Waiting(mend)
    assert await read_with_retry(file, clock=clock) == "né\r\nzwei\n"
    assert clock.slept == [0.1, 0.2]


@linux
async def test_what_never_works_is_the_last_error(file: Path) -> None:
    clock = Waiting()
    with pytest.raises(OSError, match="Input/output error") as caught:
        await read_with_retry(NO_MEMORY_THERE, max_retries=4, initial_delay=1, clock=clock)
    assert caught.value.errno == errno.EIO
    assert clock.slept == [1, 2, 4, 8]


async def test_what_another_try_cannot_mend_is_told_at_once(file: Path, tmp_path: Path) -> None:
    clock = Waiting()
    with pytest.raises(FileNotFoundError):
        await read_with_retry(file, clock=clock)
    with pytest.raises(IsADirectoryError):
        await read_with_retry(tmp_path, clock=clock)
    file.write_bytes(b"ab\xff")
    with pytest.raises(ValueError, match=r"notes\.txt: byte 2 \(0xff\) is not UTF-8; save the file as UTF-8"):
        await read_with_retry(file, clock=clock)
    with pytest.raises(OSError, match="not a regular file"):
        await write_with_retry(tmp_path, "x", clock=clock)
    with pytest.raises(FileExistsError):
        await write_with_retry(file / "below", "x", clock=clock)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="symbolic link"):
        await write_with_backup(tmp_path / "loop", "x", clock=clock)
    assert clock.slept == []


WRITING = """
import asyncio, os, tempfile
from pathlib import Path
from amplifier_foundation.documents.files import write_whole, write_with_backup

class Clock:
    slept = []
    async def sleep(self, seconds):
        self.slept.append(seconds)
        if len(self.slept) == 2:
            folder.chmod(0o700)

async def write():
    await write_with_backup(file, "written", clock=Clock())

with tempfile.TemporaryDirectory() as warm:
    file = Path(warm) / "a.txt"
    asyncio.run(write())
if os.getuid() == 0:  # root is refused nothing
    os.setuid(65534)
with tempfile.TemporaryDirectory() as place:
    folder = Path(place)
    folder.chmod(0o500)
    file = folder / "a.txt"
    asyncio.run(write())
    print(Clock.slept, file.read_text())
"""


def test_writing_is_tried_again_until_it_works() -> None:
    done = subprocess.run([sys.executable, "-c", WRITING], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[0.1, 0.2] written\n", "")


def test_only_what_passes_by_itself_is_tried_again() -> None:
    assert {errno.EBUSY, errno.EACCES, errno.ETXTBSY, errno.EIO, errno.EAGAIN} <= TRANSIENT
    assert TRANSIENT.isdisjoint({errno.ENOENT, errno.ENOSPC, errno.EROFS, errno.EISDIR})


# writing


async def test_a_new_file_is_private_and_its_folders_are_made(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "c.txt"
    await write_with_retry(path, "one\r\ntwo é\n")
    assert path.read_bytes() == "one\r\ntwo é\n".encode()
    assert mode(path) == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["c.txt"]


@pytest.mark.parametrize("permissions", [0o644, 0o600, 0o755])
async def test_a_file_keeps_its_permissions_and_so_does_its_backup(file: Path, permissions: int) -> None:
    file.write_text("old")
    file.chmod(permissions)
    await write_with_backup(file, "new")
    backup = file.with_name("notes.txt.backup")
    assert (file.read_text(), backup.read_text()) == ("new", "old")
    assert (mode(file), mode(backup)) == (permissions, permissions)


async def test_the_first_version_has_no_backup_and_the_backup_is_always_the_last_one(file: Path) -> None:
    backup = file.with_name("notes.txt.old")
    await write_with_backup(file, "1", ".old")
    assert not backup.exists()
    await write_with_backup(file, "2", ".old")
    await write_with_backup(file, "3", ".old")
    assert (file.read_text(), backup.read_text()) == ("3", "2")


def test_a_symlink_stays_one_and_its_target_is_written(tmp_path: Path) -> None:
    target, link = tmp_path / "kept" / "real.txt", tmp_path / "link.txt"
    target.parent.mkdir()
    target.write_text("old")
    link.symlink_to(target)
    back_up(link)
    write_whole(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert (tmp_path / "kept" / "real.txt.backup").read_text() == "old"


def test_a_pipe_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="not a regular file"):
        write_whole(pipe, "x")
    with pytest.raises(OSError, match="not a regular file"):
        write_whole(tmp_path, "x")
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old")
    code = """
import resource, signal
from amplifier_foundation.documents.files import write_whole
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_whole("a.txt", "x" * 5000)
except OSError as error:
    print(error.strerror, error.filename.rpartition("/")[2])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "File too large a.txt\n"
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.txt": "old"}


async def test_writers_at_the_same_time_leave_one_whole_text(file: Path) -> None:
    texts = [letter * 100_000 for letter in "abcdef"]
    await asyncio.gather(*(write_with_retry(file, text) for text in texts))
    assert file.read_text() in texts
    assert [each.name for each in file.parent.iterdir()] == [file.name]


def test_text_that_cannot_be_encoded_leaves_the_old_file(file: Path) -> None:
    file.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(file, "\ud800")
    assert file.read_text() == "old"


# YAML

SURPRISING = {
    "text": ["12:30", "2024-01-31", "yes", "null", "1", "1.0", "", " a ", "a: b", "# c", "@x", "é\U0001f600", "a\nb"],
    "on": {"no": None, "1": True},
    "numbers": [1, -1, 1.5, 1e30, True, False, None],
    "empty": [{}, [], ""],
    "long": "word " * 100,
}


def test_what_is_written_as_yaml_is_what_is_read(file: Path) -> None:
    write_yaml(file, SURPRISING)
    assert read_yaml(file) == SURPRISING
    assert list(read_yaml(file) or ()) == list(SURPRISING)


def test_what_is_used_twice_is_written_twice(file: Path) -> None:
    shared = {"a": [1]}
    write_yaml(file, {"one": shared, "two": shared})
    assert file.read_text() == "one:\n  a:\n  - 1\ntwo:\n  a:\n  - 1\n"


def circle() -> dict[str, Any]:
    data: dict[str, Any] = {}
    data["me"] = data
    return data


@pytest.mark.parametrize("data", [{"a": object()}, circle()])
def test_what_is_no_plain_data_is_not_written(file: Path, data: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="cannot be written as YAML"):
        write_yaml(file, data)
    assert not file.exists()


def test_a_missing_file_is_none_and_an_empty_one_is_empty(file: Path) -> None:
    assert read_yaml(file) is None
    file.write_text("# nothing\n")
    assert read_yaml(str(file)) == {}
    file.write_bytes(b"\xef\xbb\xbfa: 1\r\nb: x\r\n")
    assert read_yaml(file) == {"a": 1, "b": "x"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [1\n", "notes.txt:2:1: error[AMP203]"),
        ("a: 1\na: 2\n", "notes.txt:2:1: error[AMP206] a: this key stands here twice; first at notes.txt:1:1"),
        ("- a\n", "notes.txt:1:1: error[AMP212] must be a mapping such as 'name: value'"),
        ("a: &x 1\nb: *x\n", "notes.txt:1:4: error[AMP204]"),
        ("a: !!python/object:os.system x\n", "notes.txt:1:4: error[AMP205]"),
    ],
)
def test_what_is_wrong_with_a_yaml_file_is_told_by_its_line(
    file: Path, text: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    file.write_text(text)
    with pytest.raises(ValueError) as caught:
        read_yaml(file)
    assert isinstance(caught.value, UnreadableBundle)
    assert str(caught.value).startswith(problem)


# front matter


@pytest.mark.parametrize(
    ("text", "front", "body"),
    [
        ("---\nname: a\n---\nBody\n", {"name": "a"}, "Body\n"),
        ("---\r\nname: a\r\n---\r\nBody\r\n", {"name": "a"}, "Body\r\n"),
        ("\ufeff---\nname: a\n---", {"name": "a"}, ""),
        ("---\n---\nBody\n---\nmore", {}, "Body\n---\nmore"),
        ("---  \nname: '---'\n--- \n\n# Title\n", {"name": "---"}, "\n# Title\n"),
        ("Just text\n---\nname: a\n---\n", {}, "Just text\n---\nname: a\n---\n"),
        ("---\nno end\n", {}, "---\nno end\n"),
        ("---name: a\n---\n", {}, "---name: a\n---\n"),
        ("", {}, ""),
    ],
)
def test_front_matter_is_parted_from_its_body(text: str, front: dict[str, Any], body: str) -> None:
    assert parse_frontmatter(text) == (front, body)


def test_damaged_front_matter_names_the_line_of_the_text() -> None:
    with pytest.raises(ValueError, match=r"^front matter:3:4: error\[AMP203\]|^front matter:3:\d+: "):
        parse_frontmatter("---\na: 1\nb: c: d\n---\n")
    with pytest.raises(UnreadableBundle, match=r"^agent\.md:2:1: error\[AMP212\] must be a mapping"):
        parse_frontmatter("---\njust words\n---\n", file="agent.md")


def test_megabytes_without_an_end_are_read_in_one_go() -> None:
    text = "---\n" + "--- x\n" * 500_000
    assert parse_frontmatter(text) == ({}, text)
