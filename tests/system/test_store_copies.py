"""Kill, fill and fail while a store is backed up, restored, salvaged and compacted: store and backups stay whole.

`make test` takes a small share of the system calls, `make faults` a third.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from amplifier_core.errors import StoreUnavailable
from amplifier_core.storage import SessionRecord
from amplifier_storage_sqlite import administer_sqlite, open_sqlite

from .faults import KILL, STRIDE, TEAR, under

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

TURN = [{"role": role, "content": "x" * 3000} for role in ("user", "assistant", "tool")]

KILLED_WHILE_COPYING = """
from pathlib import Path
from amplifier_storage_sqlite import administer_sqlite, open_sqlite

verb, mode, stride = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
store = Path(place) / "store.db"
VERBS = {
    "backup": lambda it: it.backup(keep=2),
    "restore": lambda it: it.restore(),
    "salvage": lambda it: it.salvage(),
    "compact": lambda it: it.compact(),
    "compact all": lambda it: it.compact(wait=True),
}

def in_child(work):
    child = os.fork()
    if not child:
        work()
        os._exit(0)
    return os.waitpid(child, 0)[1]

def killed(call):
    def work():
        administration = administer_sqlite({"path": store})
        shim.fault_arm(mode, call, place.encode())
        VERBS[verb](administration)
    return in_child(work)

async def sessions(path):
    opened = open_sqlite({"path": path})
    found = {record.session_id: len(await opened.read(record.session_id)) for record in await opened.sessions()}
    await opened.close()
    return found

def whole(path):
    assert administer_sqlite({"path": path}).check() == [], path
    return asyncio.run(sessions(path))

def survivors():
    now, backed_up = {"s": 6}, {"s": 3, "deleted-later": 3}
    assert whole(store) in ([now, backed_up] if verb == "restore" else [now])
    backups = administer_sqlite({"path": store}).backups()
    assert backups and all(whole(each) in (now, backed_up) for each in backups)
    for each in [*store.parent.glob("*.replaced-*Z"), *store.parent.glob("*.salvaged-*Z.db")]:
        if not each.name.startswith("."):
            assert whole(each) in (now, backed_up), each
    asyncio.run(go_on())

async def go_on():
    opened = open_sqlite({"path": store})
    await opened.append("s", [{}], at=(await opened.get("s")).message_count)
    await opened.close()

shutil.copytree(place, place + "-before")
call = 1 - stride
while True:
    call += stride
    shutil.rmtree(place)
    shutil.copytree(place + "-before", place)
    status = killed(call)
    assert in_child(survivors) == 0, (verb, call)
    if status == 0:
        break
    assert status == signal.SIGKILL, (call, status)
print(call)
"""


async def _fill(path: Path) -> None:
    """Make a store and a backup of an older state of it."""
    store = open_sqlite({"path": path})
    for name in ("s", "deleted-later"):
        await store.create(SessionRecord(name))
        await store.append(name, TURN, at=0)
    store.administration.backup()
    await store.delete("deleted-later")
    await store.append("s", TURN, at=3)
    await store.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    return tmp_path / "store" / "store.db"


@pytest.mark.parametrize("mode", [KILL, TEAR], ids=["before each call", "in the middle of each write"])
@pytest.mark.parametrize("verb", ["backup", "restore", "salvage", "compact", "compact all"])
async def test_a_store_killed_at_any_call_while_it_is_copied_stays_whole(
    verb: str, mode: int, shim: Path, path: Path
) -> None:
    await _fill(path)
    calls = int(await asyncio.to_thread(under, shim, KILLED_WHILE_COPYING, path.parent, verb, mode, max(STRIDE, 3)))
    assert calls > 3


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a file system can only be mounted by root")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("verb", ["backup", "restore", "salvage"])
async def test_a_full_disk_ends_a_copy_and_leaves_the_store(verb: str, small_disk: Path) -> None:
    path = small_disk / "store.db"
    await _fill(path)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_bsize - 60_000))
    before = sorted(each.name for each in small_disk.rglob("*"))
    administration = administer_sqlite({"path": path})
    with pytest.raises(StoreUnavailable, match="disk is full|No space left"):
        getattr(administration, verb)()
    assert sorted(each.name for each in small_disk.rglob("*")) == before
    ballast.unlink()
    assert administration.check() == []
    getattr(administration, verb)()
    assert administration.check() == []
