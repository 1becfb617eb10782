"""Damage the embedded store: kill at each system call, cut, flip bits, run out of space, fail the disk.

`make test` takes a small share, `make faults` all of it. `SEED` chooses other bits.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import resource
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from amplifier_core.errors import InvalidSessionId, SessionConflict, StoreDamaged, StoreUnavailable
from amplifier_core.storage import SessionRecord
from amplifier_foundation.sessions.lock import owner_lock, session_lock
from amplifier_storage_sqlite import open_sqlite, opening

from .faults import (
    CUTS,
    FAIL_SYNC,
    FAIL_WRITE,
    FAILS_AND_WORKS_AGAIN,
    FLIPS,
    KILL,
    KILLED_AT_EACH_CALL,
    SEED,
    STRIDE,
    TEAR,
    two_processes,
    under,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from amplifier_storage_sqlite.store import SqliteStore

    Sessions = dict[str, tuple[SessionRecord, list[dict[str, Any]]]]

pytestmark = pytest.mark.slow

T = TypeVar("T")

SQLITE = """
from amplifier_storage_sqlite import open_sqlite
open_store = lambda: open_sqlite({"path": f"{place}/store.db"})
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    return tmp_path / "store" / "store.db"


# killed


@pytest.mark.parametrize("turns", [0, 1, 20], ids=["the first turn", "the second turn", "a later turn"])
@pytest.mark.parametrize("mode", [KILL, TEAR], ids=["before each call", "in the middle of each write"])
def test_a_turn_killed_at_any_call_is_there_whole_when_it_was_acknowledged(
    mode: int, turns: int, shim: Path, path: Path
) -> None:
    calls = int(under(shim, SQLITE + KILLED_AT_EACH_CALL, path.parent, mode, turns, STRIDE))
    assert calls > 10


# a disk that fails


@pytest.mark.parametrize(
    ("mode", "said"),
    [(FAIL_WRITE, "the disk is full; what was acknowledged is kept"), (FAIL_SYNC, "cannot be read or written")],
    ids=["no space", "no fsync"],
)
def test_a_disk_that_fails_loses_nothing_acknowledged_and_is_used_again(
    mode: int, said: str, shim: Path, path: Path
) -> None:
    output = under(shim, SQLITE + FAILS_AND_WORKS_AGAIN, path.parent, mode)
    assert output.startswith(f"{path}: {said}")
    store = open_sqlite({"path": path})
    messages = asyncio.run(_closing(store, store.read("s")))
    assert messages == [{"n": n} for n in range(len(messages))]
    assert len(messages) >= 4


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a file system can only be mounted by root")
    yield folder
    subprocess.run(["umount", folder], check=True)


async def test_a_full_disk_loses_nothing_acknowledged_and_is_used_again(small_disk: Path) -> None:
    (small_disk / "ballast").write_bytes(bytes(300_000))
    path = small_disk / "store.db"
    store = open_sqlite({"path": path})
    await store.create(SessionRecord("s"))
    count = await _append_until_it_fails(store, "the disk is full; what was acknowledged is kept")
    assert count > 0
    (small_disk / "ballast").unlink()
    assert await store.append("s", [_message(count)], at=count) == count + 1
    await store.close()
    again = open_sqlite({"path": path})
    assert await again.read("s") == [_message(n) for n in range(count + 1)]
    await again.close()


async def test_a_disk_without_any_room_is_told_as_full(small_disk: Path) -> None:
    path = small_disk / "store.db"
    store = open_sqlite({"path": path})
    await store.create(SessionRecord("s"))
    await store.close()
    disk = os.statvfs(small_disk)
    (small_disk / "ballast").write_bytes(bytes(disk.f_bavail * disk.f_bsize))
    with pytest.raises(StoreUnavailable, match="the disk is full; what was acknowledged is kept"):
        open_sqlite({"path": path})


def test_a_lock_on_a_full_disk_is_named(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMPLIFIER_HOME", str(small_disk))
    (small_disk / "locks" / "sessions").mkdir(mode=0o700, parents=True)
    (small_disk / "locks").chmod(0o700)
    disk = os.statvfs(small_disk)
    (small_disk / "ballast").write_bytes(bytes(disk.f_bavail * disk.f_bsize))
    for lock in (session_lock("s"), owner_lock({"projects": ["/p"], "bundles": []})):
        with pytest.raises(OSError, match="No space left on device") as raised, lock:
            pass
        assert str(raised.value.filename).startswith(str(small_disk / "locks"))


@pytest.mark.parametrize("free", range(100_000, 900_000, 50_000))
async def test_a_disk_too_full_for_a_new_store_leaves_none(small_disk: Path, free: int) -> None:
    disk = os.statvfs(small_disk)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(disk.f_bavail * disk.f_bsize - free))
    path = small_disk / "store.db"
    try:
        store = open_sqlite({"path": path})
        await store.create(SessionRecord("early"))
        await store.close()
    except StoreUnavailable as error:
        assert "the disk is full" in str(error)
    assert {each.name for each in small_disk.iterdir()} <= {"ballast", "store.db", "store.db-wal", "store.db-shm"}
    ballast.unlink()
    store = open_sqlite({"path": path})
    await store.create(SessionRecord("s"))
    assert store.administration.check() == []
    await store.close()


@pytest.mark.parametrize(
    ("command", "file"),
    [("session list", "amplifier.db"), ("trust --yes", "trust"), ("config set retention.keep 3", "settings.yaml")],
)
def test_a_full_disk_ends_a_command_with_its_path(small_disk: Path, project: Path, command: str, file: str) -> None:
    (project / "bundle.md").write_text("---\nbundle:\n  name: any\n---\nYou help.\n")
    (small_disk / "home").mkdir()
    with (small_disk / "ballast").open("wb", buffering=0) as ballast, suppress(OSError):
        while ballast.write(bytes(4_096)):
            pass
    done = subprocess.run(
        [sys.executable, "-m", "amplifier_foundation", *command.split()],
        cwd=project,
        env={**os.environ, "AMPLIFIER_HOME": str(small_disk / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 75
    assert re.search(rf"^amplifier: {small_disk}/home/{file}\S* .*Free some space", done.stderr, re.MULTILINE)
    assert "Traceback" not in done.stderr


async def test_a_file_that_may_not_grow_loses_nothing_acknowledged(path: Path) -> None:
    store = open_sqlite({"path": path})
    await store.create(SessionRecord("s"))
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, before[1]))
    try:
        count = await _append_until_it_fails(store, "this process may write no larger file")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert await store.append("s", [_message(count)], at=count) == count + 1
    assert await store.read("s") == [_message(n) for n in range(count + 1)]
    await store.close()


def _message(number: int) -> dict[str, Any]:
    return {"n": number, "content": "x" * 5000}


async def _append_until_it_fails(store: SqliteStore, said: str) -> int:
    """Append message by message and return how many were acknowledged before the disk was full."""
    count = 0
    with pytest.raises(StoreUnavailable, match=rf"store\.db: ({said})"):
        while count < 1000:
            count = await store.append("s", [_message(count)], at=count)
    return count


# cut and flipped


async def _closing(store: SqliteStore, work: Awaitable[T]) -> T:
    try:
        return await work
    finally:
        await store.close()


async def _filled(path: Path) -> Sessions:
    """Make a store of some sessions, forks and long messages, and return what is in it."""
    store = open_sqlite({"path": path})
    for number in range(12):
        await store.create(
            SessionRecord(f"session-{number}", name=f"name {number}", project="/p", config={"a": number})
        )
        turns = [{"role": "user", "content": f"{n} {'text ' * 40}"} for n in range(number * 3)]
        await store.append(f"session-{number}", [*turns, {"role": "tool", "content": "long" * 3000}], at=0)
        await store.create(SessionRecord(f"fork-{number}", fork_of=f"session-{number}", fork_at=number))
        await store.append(f"fork-{number}", [{"role": "user", "content": "own"}], at=number)
    return await _closing(store, _contents(store))


async def _contents(store: SqliteStore) -> Sessions:
    found = {}
    for record in await store.sessions():
        try:
            found[record.session_id] = record, await store.read(record.session_id)
        except InvalidSessionId:  # a bit of the id was flipped: the list says so
            assert record.error is not None
            raise StoreDamaged(store.path, record.error) from None
    return found


async def _seen(path: Path, expected: Sessions) -> Sessions:
    """Return what the store says it holds, asked in every way; also by the ids that it should know."""
    store = open_sqlite({"path": path})
    try:
        listed = await _contents(store)
        for session_id, found in expected.items():
            assert found == (await store.get(session_id), await store.read(session_id))
        return listed
    finally:
        await store.close()


async def _is_said_or_harmless(path: Path, content: bytes, expected: Sessions) -> bool:
    """Return whether damage was said; assert that what was not said did no harm."""
    for each in path.parent.glob("store.db*"):
        each.unlink()
    path.write_bytes(content)
    try:
        assert await _seen(path, expected) == expected
    except (StoreDamaged, StoreUnavailable) as error:
        assert str(path) in str(error)
        return True
    return False


@pytest.mark.parametrize("checked", [True, False], ids=["a small file", "a file too large to be checked when opened"])
async def test_a_flipped_bit_is_said_or_harmless(checked: bool, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = await _filled(path)
    whole = path.read_bytes()
    if not checked:
        monkeypatch.setattr(opening, "CHECKED_AT_OPEN", 0)
    chosen, said = random.Random(SEED), 0
    for _ in range(FLIPS):
        content, bit = bytearray(whole), chosen.randrange(len(whole) * 8)
        content[bit // 8] ^= 1 << bit % 8
        said += await _is_said_or_harmless(path, bytes(content), expected)
    assert said > FLIPS / 4, "most of the file is messages"


async def test_a_store_cut_within_its_last_bytes_is_said(path: Path) -> None:
    expected = await _filled(path)
    whole = path.read_bytes()
    for missing in range(1, 4097, 4096 // CUTS):
        assert await _is_said_or_harmless(path, whole[:-missing], expected), f"{missing} bytes are missing"


async def test_a_log_cut_anywhere_is_never_a_half_turn(path: Path) -> None:
    """What the log lost was never acknowledged, unless somebody cut it: what is left is whole all the same."""
    store = open_sqlite({"path": path})
    await store.create(SessionRecord("s"))
    for turn in range(6):
        await store.append("s", [{"turn": turn}, {"turn": turn}], at=turn * 2)
    files = {each.name: each.read_bytes() for each in path.parent.glob("store.db*") if not each.name.endswith("-shm")}
    await store.close()
    log = files.pop("store.db-wal").rstrip(b"\0")  # the room behind it holds nothing
    for missing in range(1, 4097, 4096 // CUTS):
        path.with_name("store.db-wal").write_bytes(log[:-missing])
        path.write_bytes(files["store.db"])
        left = open_sqlite({"path": path})
        messages = await _closing(left, left.read("s"))
        assert messages == [{"turn": n // 2} for n in range(len(messages))]
        assert len(messages) in (10, 12)


# two processes, hostile ids, hostile values


async def test_of_two_processes_on_one_session_one_wins_each_turn(path: Path) -> None:
    store = open_sqlite({"path": path})
    await store.create(SessionRecord("s"))
    won = two_processes(SQLITE, path.parent)
    messages = await store.read("s")
    turns = [messages[at : at + 3] for at in range(0, len(messages), 3)]
    assert (sum(won), len(messages)) == (20, 60)
    for turn in turns:
        assert [message["n"] for message in turn] == [0, 1, 2]
        assert len({message["by"] for message in turn}) == 1
    with pytest.raises(SessionConflict, match="has 60 messages, not 57: somebody else wrote it"):
        await store.append("s", [], at=57)
    await store.close()


# fmt: off
HOSTILE_IDS = [
    "", ".", "..", "../up", "a/b", "/etc/passwd", "a\\b", "C:\\x", "~", "~root", "-a", "--help", "_a", "a b", " a",
    "a ", "a\0b", "\0", "a\n", "\ra", "a\tb", "\x1b[31m", "a\x7f", "a\x85", "\u2028", "\u202eabc", "\ufeffa", "é",
    "日本", "\uff41", "a'--", "' OR 1=1", '"', "a;DROP TABLE sessions", "a%", "a*", "a?", "[a]", "{a}", "$HOME",
    "`id`", "$(id)", "a|b", "a&b", "a<b", "a>b", "a:b", "a=b", "a,b", "a.b", "a@b", "a#b", "a!b", "a+b", "a^b",
    "(a)", "NUL", "nul", "CON", "PRN", "AUX", "COM1", "com9", "LPT1", "x" * 129, "x" * 10_000_000, "\ud800",
    "a\udcff", "\u0661", "%2e%2e", "file:x",
]
# fmt: on


@pytest.mark.parametrize("session_id", HOSTILE_IDS, ids=range(len(HOSTILE_IDS)))
async def test_a_hostile_id_is_refused_by_everything_and_leaves_nothing(session_id: str, path: Path) -> None:
    store = open_sqlite({"path": path})
    before = sorted(each.name for each in path.parent.iterdir())
    uses: list[Callable[[], Any]] = [
        lambda: store.create(SessionRecord(session_id)),
        lambda: store.create(SessionRecord("fork", fork_of=session_id)),
        lambda: store.create(SessionRecord("child", parent_id=session_id)),
        lambda: store.append(session_id, [{}], at=0),
        lambda: store.update(session_id, name="x"),
        lambda: store.get(session_id),
        lambda: store.read(session_id),
        lambda: store.delete(session_id),
        lambda: store.examine(session_id),
        lambda: store.repair(session_id),
    ]
    for use in uses:
        with pytest.raises(InvalidSessionId) as refused:
            await use()
        assert len(str(refused.value)) < 300
        assert str(refused.value).isprintable()
    assert await store.sessions() == []
    assert sorted(each.name for each in path.parent.iterdir()) == before
    await store.close()


async def test_a_message_of_ten_megabytes_is_stored_and_read(path: Path) -> None:
    store = open_sqlite({"path": path})
    message = {"role": "tool", "content": "\N{PARTY POPPER}ä" * 1_700_000}
    await store.create(SessionRecord("s"))
    await store.append("s", [message], at=0)
    assert await store.read("s") == [message]
    await store.delete("s")
    assert await store.sessions() == []
    await store.close()
