"""The file watcher under faults: stalled, overrun, killed, and with the ways in which real programs write files.

`make test` takes a small share; all of it: `CHANGES=50000 CHECKOUT=5000 BURSTS=10000 WATCHER_KILLS=50`. `SEED` chooses
other changes.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path

import pytest

from amplifier_core.triggers import TriggerContext, TriggerEvent
from amplifier_trigger_file_watcher import FileChangeTrigger

pytestmark = pytest.mark.slow

CHANGES = int(os.environ.get("CHANGES", "1500"))
CHECKOUT = int(os.environ.get("CHECKOUT", "200"))
BURSTS = int(os.environ.get("BURSTS", "60"))
KILLS = int(os.environ.get("WATCHER_KILLS", "2"))
SEED = int(os.environ.get("SEED", "20261121"))
QUEUE = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text()) if sys.platform == "linux" else 0
"""Events that Linux keeps for a watcher that does not read them."""
PATIENCE = 120

View = dict[str, str]


def contents(folder: Path) -> View:
    """Return what is in every file that is watched."""
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in folder.rglob("*")
        if path.is_file() and ".git" not in path.parts
    }


class Follower:
    """Knows of a folder what a session that is woken by each event would have read."""

    def __init__(self, folder: Path, trigger: FileChangeTrigger) -> None:
        self.folder, self.trigger = folder, trigger
        self.view = contents(folder)
        self.events: list[TriggerEvent] = []
        self.told = asyncio.Event()

    def stalled_reader(self) -> AbstractContextManager[object]:
        """Keep the thread that reads the system's queue from going on."""
        from amplifier_trigger_file_watcher.inotify_tree import InotifyTree

        observer = self.trigger._detector._observer
        assert isinstance(observer, InotifyTree)
        return observer._lock

    def take(self, event: TriggerEvent) -> None:
        self.events.append(event)
        for change in event.data.get("changes", [event.data]):
            try:
                self.view[change["path"]] = (self.folder / change["path"]).read_text()
            except (FileNotFoundError, NotADirectoryError):
                self.view.pop(change["path"], None)
        self.told.set()

    async def up_to_date(self) -> None:
        """Return when everything that is in the folder was seen."""
        world = contents(self.folder)
        async with asyncio.timeout(PATIENCE):
            while self.view != world:
                self.told.clear()
                await self.told.wait()

    async def quiet(self, mark: str = "zz-mark") -> None:
        """Return when no change that was made before this call is still to fire."""
        (self.folder / mark).write_text("x")
        async with asyncio.timeout(PATIENCE):
            while mark not in self.view:
                self.told.clear()
                await self.told.wait()
        (self.folder / mark).unlink()

    def fired(self) -> Counter[str]:
        """Return how often each path has fired, marks aside."""
        return Counter(str(event.file_path) for event in self.events if not str(event.file_path).startswith("zz-"))

    def fired_anew(self) -> Counter[str]:
        """Return how often each path has fired with another content than the time before, marks aside."""
        last, times = dict[str, str](), Counter[str]()
        for event in self.events:
            _, _, digest, path = str(event.dedupe_key).split(maxsplit=3)
            times[path] += not path.startswith("zz-") and last.get(path) != digest
            last[path] = digest
        return +times


@asynccontextmanager
async def following(folder: Path, **config: object) -> AsyncIterator[Follower]:
    trigger = FileChangeTrigger()
    trigger.bind(TriggerContext("tests/watcher#0", working_dir=folder))
    trigger.configure({"debounce_ms": 50, **config})
    follower = Follower(folder, trigger)

    async def follow() -> None:
        async for event in trigger.watch():
            follower.take(event)

    async with asyncio.TaskGroup() as group:
        group.create_task(follow())
        await trigger.ready()
        try:
            yield follower
        finally:
            await trigger.stop()


class Changer:
    """Makes random changes: files and folders are created, edited, renamed and deleted."""

    def __init__(self, folder: Path, seed: object) -> None:
        self.folder, self.random, self.number = folder, random.Random(f"{SEED}-{seed}"), 0
        self.folders = [folder / name for name in "abcdefgh"]
        self.files: list[Path] = []
        for made in self.folders:
            made.mkdir(exist_ok=True)

    def change(self) -> None:
        self.number += 1
        kinds = [self.create, self.create, self.edit, self.edit, self.rename, self.delete, self.move_folder]
        weights = [10, 10, 10, 10, 10, 8, 1]
        self.random.choices(kinds, weights)[0]()

    def create(self) -> None:
        file = self.random.choice(self.folders) / f"{self.number}.txt"
        file.write_text(f"{self.number}")
        self.files.append(file)

    def edit(self) -> None:
        if self.files:
            self.random.choice(self.files).write_text(f"edit {self.number}")

    def rename(self) -> None:
        if self.files:
            at = self.random.randrange(len(self.files))
            self.files[at] = self.files[at].rename(self.random.choice(self.folders) / f"{self.number}.txt")

    def delete(self) -> None:
        if self.files:
            self.files.pop(self.random.randrange(len(self.files))).unlink()

    def move_folder(self) -> None:
        before = self.random.choice(self.folders)
        others = [path for path in self.folders if before not in (path, *path.parents)]
        inside = self.random.choice(others) if others and self.random.random() < 0.3 else self.folder
        after = inside / f"f{self.number}"
        before.rename(after)

        def moved(path: Path) -> Path:
            return after / path.relative_to(before) if str(path).startswith(f"{before}/") or path == before else path

        self.folders, self.files = [*map(moved, self.folders)], [*map(moved, self.files)]
        if self.random.random() < 0.5:
            before.mkdir()
            self.folders.append(before)


# stalled


@pytest.mark.parametrize("batch", [False, True])
async def test_a_watcher_that_stood_still_delivers_the_final_state_of_every_path(tmp_path: Path, batch: bool) -> None:
    changer = Changer(tmp_path, "stalled")
    for _ in range(CHANGES // 5):
        changer.change()
    async with following(tmp_path, batch=batch) as follower:
        for _ in range(CHANGES):  # nothing here lets the event loop run
            changer.change()
        await follower.up_to_date()
        changer.change()
        await follower.up_to_date()


async def test_changes_while_it_runs_are_delivered(tmp_path: Path) -> None:
    changer = Changer(tmp_path, "running")
    async with following(tmp_path, debounce_ms=0) as follower:
        for number in range(CHANGES):
            changer.change()
            if number % 20 == 0:
                await asyncio.sleep(0)
        await follower.up_to_date()


@pytest.mark.parametrize("debounce_ms", [0, 5, 50])
async def test_each_path_fires_after_its_last_change(tmp_path: Path, debounce_ms: int) -> None:
    """Also when it came and went after its event: the view holds what the session of that event has read."""
    chance = random.Random(f"{SEED}-storm-{debounce_ms}")
    files = [tmp_path / f"{number}.txt" for number in range(max(20, CHANGES // 30))]
    async with following(tmp_path, debounce_ms=debounce_ms, max_wait_ms=5 * debounce_ms) as follower:
        for number in range(CHANGES):
            file, other = chance.sample(files, 2)
            if not file.exists() or chance.random() < 0.2:
                file.write_text(f"{number}")
            elif chance.random() < 0.3:
                file.rename(other)
            else:
                file.unlink()
            if chance.random() < 0.2:
                await asyncio.sleep(chance.choice([0, 0, 0.002]))
        await follower.up_to_date()


@pytest.mark.skipif(sys.platform != "linux", reason="the queue is Linux's")
async def test_what_the_system_dropped_is_found_by_looking(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    async with following(tmp_path) as follower:
        file = tmp_path / "a.txt"
        with follower.stalled_reader():  # what reads the queue waits for it
            for _ in range(QUEUE // 4 + 2_100):  # four events each; watchdog has taken 2,048 at most
                (tmp_path / "deep").rename(tmp_path / "moved")
                (tmp_path / "moved").rename(tmp_path / "deep")
            (tmp_path / "deep" / "new").mkdir()
            (tmp_path / "deep" / "new" / "b.txt").write_text("dropped")
            file.write_text("dropped")
        await follower.up_to_date()
        (tmp_path / "deep" / "new" / "b.txt").write_text("after")
        file.write_text("after")
        await follower.up_to_date()
        assert follower.fired_anew() == {"a.txt": 2, "deep/new/b.txt": 2}
        assert follower.fired()["a.txt"] == 2  # the other once more whenever a moved folder above it is watched anew


# how programs save


def in_place(file: Path) -> None:
    file.write_text("new\n")


def rename_over(file: Path) -> None:
    draft = file.with_name(".a.txt.Xy12")
    draft.write_text("new\n")
    draft.replace(file)


def backup_and_write(file: Path) -> None:
    file.rename(file.with_name("a.txt~"))
    file.write_text("new\n")


def nano(file: Path) -> None:
    """With a backup: copied aside, then written in place."""
    shutil.copy2(file, file.with_name("a.txt~"))
    with file.open("r+") as opened:
        opened.truncate()
        opened.write("new\n")


def rsync(file: Path) -> None:
    if shutil.which("rsync"):
        source = file.parent.parent / "source.txt"
        source.write_text("new\n")
        subprocess.run(["rsync", "--checksum", str(source), str(file)], check=True)
        return
    draft = file.with_name(".a.txt.q1W2e3")
    for text in ("n", "new\n"):
        draft.write_text(text)
    os.utime(draft, (1_600_000_000, 1_600_000_000))
    draft.rename(file)


def program(name: str, *arguments: str, text: str | None = None) -> Callable[[Path], None]:
    def run(file: Path) -> None:
        if shutil.which(name) is None:
            pytest.skip(f"needs {name}")
        subprocess.run([name, *arguments, str(file)], check=True, input=text, text=True, capture_output=True)

    return run


def vim(*settings: str) -> Callable[[Path], None]:
    commands = [f"set {setting}" for setting in settings] + ["s/old/new/", "wq"]
    return program(
        "vim", "-N", "-u", "NONE", "-i", "NONE", "-es", *(part for each in commands for part in ("-c", each))
    )


SAVERS = {
    "in place": in_place,
    "rename over": rename_over,
    "backup and write": backup_and_write,
    "nano": nano,
    "rsync": rsync,
    "sed -i": program("sed", "-i", "s/old/new/"),
    "ed": program("ed", "-s", text="s/old/new/\nw\nq\n"),
    "vim in place": vim("backupcopy=yes", "writebackup"),
    "vim by rename": vim("backupcopy=no", "writebackup"),
    "vim with backup and swap file": vim("backup", "swapfile", "directory=."),
}


@pytest.mark.parametrize("saver", SAVERS)
async def test_a_save_is_one_modification_that_sees_the_new_content(tmp_path: Path, saver: str) -> None:
    folder = tmp_path / "watched"
    folder.mkdir()
    (folder / "a.txt").write_text("old\n")
    async with following(folder, debounce_ms=100) as follower:
        await asyncio.to_thread(SAVERS[saver], folder / "a.txt")
        await follower.quiet()
        assert [event.change_type for event in follower.events if event.file_path == "a.txt"] == ["modified"]
        assert follower.fired() == {"a.txt": 1}
        assert follower.view["a.txt"] == "new\n"


async def test_a_checkout_is_seen_in_its_final_state(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        who = ["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "gc.auto=0", "-c", "init.defaultBranch=one"]
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init", "--quiet")
    for branch in ("one", "two"):
        for number in range(CHECKOUT):
            file = tmp_path / f"dir{number % 50}" / f"{branch if number % 4 == 0 else 'both'}-{number}.txt"
            file.parent.mkdir(exist_ok=True)
            file.write_text(f"{branch} {number}")
        git("add", "--all")
        git("commit", "--quiet", "--message", branch)
        if branch == "one":
            git("checkout", "--quiet", "-b", "two")
            for file in tmp_path.glob("dir*/one-*"):
                file.unlink()
    async with following(tmp_path, debounce_ms=200) as follower:
        before = dict(follower.view)
        await asyncio.to_thread(git, "checkout", "--quiet", "one")
        await follower.up_to_date()
        await follower.quiet()
        after = follower.view
        differing = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
        assert set(follower.fired()) == differing - {"zz-mark"}
        assert len(differing) >= CHECKOUT
    assert not [event for event in follower.events if "/.git/" in event.data["absolute"]]


async def test_the_last_content_of_every_burst_is_seen(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    files = [tmp_path / f"{number}.txt" for number in range(5)]
    async with following(tmp_path, debounce_ms=5) as follower:
        for burst in range(BURSTS):
            file = chance.choice(files)
            for write in range(chance.randint(1, 8)):
                _write(chance.choice(["over", "rename", "anew", "append"]), file, f"{burst} {write} ")
                if chance.random() < 0.3:
                    await asyncio.sleep(0)
            await follower.up_to_date()


def _write(how: str, file: Path, text: str) -> None:
    if how == "anew":
        file.unlink(missing_ok=True)
    if how == "rename":
        draft = file.with_suffix(".swp")
        draft.write_text(text)
        draft.replace(file)
    else:
        with file.open("a" if how == "append" else "w") as opened:
            opened.write(text)


# killed

PROGRAM = """
import asyncio, json, sys
from pathlib import Path
from amplifier_core.triggers import TriggerContext
from amplifier_trigger_file_watcher import FileChangeTrigger

folder, ledger = Path(sys.argv[1]), Path(sys.argv[2])
lines = [json.loads(line) for line in ledger.read_text().splitlines()] if ledger.exists() else []
known = {line["key"] for line in lines}
state = {}
for line in lines:
    state = {**(state if line["merge"] else {}), **line["state"]}

def store(key, path, content, state, merge):
    with ledger.open("a") as file:
        line = {"key": key, "path": path, "content": content, "state": state, "merge": merge}
        file.write(json.dumps(line) + "\\n")

async def save(state, *, merge=False):
    store(None, None, None, state, merge)

async def main():
    trigger = FileChangeTrigger()
    context = TriggerContext("tests/watcher#0", working_dir=folder, state=state, saver=save)
    trigger.bind(context)
    trigger.configure({"debounce_ms": 5})

    async def tell():
        await trigger.ready()
        print("ready", flush=True)

    telling = asyncio.create_task(tell())
    async for event in trigger.watch():
        if event.dedupe_key in known:
            continue
        known.add(event.dedupe_key)
        file = folder / event.file_path
        content = file.read_text() if file.exists() else None
        store(event.dedupe_key, event.file_path, content, dict(event.state_changes), True)
        print(event.file_path, flush=True)

asyncio.run(main())
"""


def test_kills_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    folder, ledger = tmp_path / "watched", tmp_path / "ledger.jsonl"
    folder.mkdir()
    for run in range(KILLS + 1):
        command = [sys.executable, "-c", PROGRAM, str(folder), str(ledger)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            while process.stdout.readline() != "ready\n":
                pass
            wanted = chance.randrange(30) if run < KILLS else 0
            for number in range(30):
                (folder / f"{chance.randrange(40)}.txt").write_text(f"{run} {number}")
            for _ in range(wanted // 3):
                process.stdout.readline()
            if run == KILLS:
                (folder / "zz-mark").write_text("x")
                while process.stdout.readline() != "zz-mark\n":
                    pass
            process.send_signal(signal.SIGKILL)
    lines = [json.loads(line) for line in ledger.read_text().splitlines()]
    keys = [line["key"] for line in lines if line["key"]]
    assert len(keys) == len(set(keys))
    assert {line["path"]: line["content"] for line in lines if line["path"]} == contents(folder)
