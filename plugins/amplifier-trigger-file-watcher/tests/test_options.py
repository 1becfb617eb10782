"""Batches, renames, writes of one's own, .gitignore files, and files that are still to be read."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from contextlib import AbstractAsyncContextManager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import TriggerContext, TriggerEvent, TriggerType
from amplifier_core.errors import TriggerConfigError
from amplifier_core.testing.clock import VirtualClock
from amplifier_trigger_file_watcher import FileChangeTrigger, events, fingerprints
from amplifier_trigger_file_watcher.change_detector import LINUX
from amplifier_trigger_file_watcher.fingerprints import UNREAD
from amplifier_trigger_file_watcher.manifest import Manifest
from amplifier_trigger_file_watcher.scope import Scope

if TYPE_CHECKING:
    from collections.abc import Callable

    Watching = Callable[..., AbstractAsyncContextManager[Any]]


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


async def test_a_batch_is_one_event_with_the_full_list(watching: Watching, tmp_path: Path) -> None:
    (tmp_path / "src" / "sub").mkdir(parents=True)
    (tmp_path / "src" / "old.txt").write_text("x")
    clock = VirtualClock()
    async with watching(clock=clock, batch=True, debounce_ms=1000) as watcher:
        (tmp_path / "src" / "sub" / "new.txt").write_text("x")
        (tmp_path / "src" / "old.txt").unlink()
        await watcher.until_noticed("src/sub/new.txt", "src/old.txt")
        await clock.advance(1)
        event = await watcher.next()
    assert (event.file_path, event.change_type) == ("src", "modified")
    assert event.data["absolute"] == str(tmp_path / "src")
    assert [(each["change"], each["path"]) for each in event.data["changes"]] == [
        ("deleted", "src/old.txt"),
        ("created", "src/sub/new.txt"),
    ]
    async with watching(state=watcher.state, batch=True) as again:
        (tmp_path / "src" / "one.txt").write_text("x")
        event = await again.next()
    assert (event.file_path, event.change_type, len(event.data["changes"])) == ("src/one.txt", "created", 1)


async def test_a_batch_waits_until_all_of_it_is_quiet(watching: Watching, tmp_path: Path) -> None:
    clock = VirtualClock()
    async with watching(clock=clock, batch=True, debounce_ms=1000, max_wait_ms=1500) as watcher:
        for name, seconds in (("a.txt", 0.8), ("b.txt", 0.7)):
            (tmp_path / name).write_text("x")
            await clock.until_sleeping(1)
            await asyncio.sleep(0.02)
            assert watcher.events.empty()
            await clock.advance(seconds)
        assert [each["path"] for each in (await watcher.next()).data["changes"]] == ["a.txt", "b.txt"]


async def test_a_batch_found_twice_has_one_key(watching: Watching, tmp_path: Path) -> None:
    async with watching(batch=True) as watcher:
        pass
    for name in "ab":
        (tmp_path / name).write_text("x")
    found = []
    for _ in range(2):
        async with watching(state=watcher.state, batch=True) as again:
            found.append((await again.next()).dedupe_key)
    assert found[0] == found[1]


async def test_a_renamed_file_says_where_it_comes_from(watching: Watching, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    async with watching() as watcher:
        (tmp_path / "a.txt").rename(tmp_path / "b.txt")
        events = {event.file_path: event for event in (await watcher.next(), await watcher.next())}
    assert "moved_from" not in events["a.txt"].data
    assert events["b.txt"].data["moved_from"] == "a.txt"


async def test_what_the_woken_sessions_wrote_does_not_fire(watching: Watching, tmp_path: Path) -> None:
    own: dict[str, str] = {}
    async with watching(own_writes=own) as watcher:
        own[str(tmp_path / "own.txt")] = digest("mine")
        (tmp_path / "own.txt").write_text("mine")
        (tmp_path / "other.txt").write_text("mine")
        assert await watcher.changes() == [("created", "other.txt")]
        (tmp_path / "own.txt").write_text("somebody else's")
        assert await watcher.next_change() == ("modified", "own.txt")
        (tmp_path / "own.txt").unlink()
        assert await watcher.next_change() == ("deleted", "own.txt")


async def test_what_the_woken_sessions_wrote_fires_when_asked(watching: Watching, tmp_path: Path) -> None:
    async with watching(own_writes={str(tmp_path / "own.txt"): digest("mine")}, self_trigger=True) as watcher:
        (tmp_path / "own.txt").write_text("mine")
        assert await watcher.next_change() == ("created", "own.txt")


async def test_a_large_file_of_ones_own_is_read_to_the_end(watching: Watching, tmp_path: Path) -> None:
    size = fingerprints.HASHED_BYTES + 1
    async with watching(own_writes={str(tmp_path / "own.bin"): digest("\0" * size)}) as watcher:
        with (tmp_path / "own.bin").open("wb") as file:
            file.truncate(size)
        assert await watcher.changes() == []


async def test_what_was_written_by_oneself_is_known_after_a_kill(
    watching: Watching, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    clock, outside = VirtualClock(), tmp_path_factory.mktemp("outside")
    async with watching(clock=clock, own_writes={str(tmp_path / "own.txt"): digest("mine")}) as watcher:
        (outside / "own.txt").write_text("mine")
        (outside / "own.txt").rename(tmp_path / "own.txt")  # at once: an empty file would be another one
        while "/own.txt" not in watcher.state:  # the system tells of the change at its own time
            await clock.advance(0.02)
        state = watcher.state
    async with watching(state=state) as watcher:
        assert await watcher.changes() == []


async def test_gitignore_files_are_heeded_when_asked(watching: Watching, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / ".gitignore").write_text("*.log\n/build/\n# comment\n\n!keep.log\n")
    (tmp_path / "sub" / ".gitignore").write_text("!sub.log\n")
    async with watching(gitignore=True) as watcher:
        (tmp_path / "build").mkdir()
        for path in ("a.log", "keep.log", "sub/sub.log", "sub/a.log", "build/a.txt"):
            (tmp_path / path).write_text("x")
        assert sorted(await watcher.changes()) == [("created", "keep.log"), ("created", "sub/sub.log")]


async def test_a_changed_gitignore_file_counts_at_once_and_what_it_lets_in_is_no_change(
    watching: Watching, tmp_path: Path
) -> None:
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / "a.log").write_text("x")
    async with watching(gitignore=True) as watcher:
        (tmp_path / ".gitignore").write_text("*.txt\n!zz-last.txt\n")
        assert await watcher.next_change() == ("modified", ".gitignore")
        (tmp_path / "a.txt").write_text("x")
        assert await watcher.changes() == []
        (tmp_path / "a.log").write_text("y")
        assert await watcher.next_change() == ("modified", "a.log")


@pytest.mark.parametrize(
    "config", [{"poll_interval": 3600 if LINUX else 0.02}, {"polling": True, "poll_interval": 0.02}]
)
async def test_a_changed_gitignore_file_above_the_folder_counts_at_once(
    watching: Watching, tmp_path: Path, config: dict[str, Any]
) -> None:
    for folder in (".git", "src/gen", "src/out"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / ".gitignore").write_text("gen/\n")
    (tmp_path / "src" / "gen" / "a.txt").write_text("x")
    async with watching(path="src", gitignore=True, **config) as watcher:
        (tmp_path / ".gitignore").write_text("out/\n")
        (tmp_path / "src" / "out" / "a.txt").write_text("x")
        async with asyncio.timeout(60):
            while "gen/a.txt" not in watcher.trigger._manifest.files:
                await asyncio.sleep(0.001)
        (tmp_path / "src" / "gen" / "a.txt").write_text("y")
        assert await watcher.next_change() == ("modified", "src/gen/a.txt")
        (tmp_path / ".gitignore").unlink()
        (tmp_path / "src" / "gen" / "b.txt").write_text("x")
        assert await watcher.next_change() == ("created", "src/gen/b.txt")
        assert watcher.events.empty()


@pytest.mark.skipif(not LINUX, reason="elsewhere nothing tells of files above")
async def test_a_gitignore_file_above_that_is_truncated_is_read_when_it_is_quiet(
    watching: Watching, tmp_path: Path
) -> None:
    for folder in (".git", "src/gen"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / ".gitignore").write_text("gen/\n")
    (tmp_path / "src" / "gen" / "a.txt").write_text("x")
    clock = VirtualClock()
    async with watching(path="src", gitignore=True, debounce_ms=1000, poll_interval=3600, clock=clock) as watcher:
        (tmp_path / ".gitignore").write_text("")
        files, noticed = watcher.trigger._manifest.files, watcher.trigger._detector._debounce._first
        async with asyncio.timeout(60):
            while not noticed and "gen/a.txt" not in files:
                await asyncio.sleep(0.001)
        assert "gen/a.txt" not in files
        async with asyncio.timeout(60):
            while "gen/a.txt" not in watcher.trigger._manifest.files:
                await asyncio.sleep(0.001)
                await clock.advance(0.25)


async def test_a_repository_that_is_made_later_lets_the_gitignore_file_above_count(
    watching: Watching, tmp_path: Path
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / ".gitignore").write_text("*.log\n")
    async with watching(path="src", gitignore=True) as watcher:
        (tmp_path / "src" / "a.log").write_text("x")
        assert await watcher.next_change() == ("created", "src/a.log")
        (tmp_path / ".git").mkdir()
        (tmp_path / "src" / "b.log").write_text("x")
        (tmp_path / "src" / "b.txt").write_text("x")
        assert await watcher.next_change() == ("created", "src/b.txt")


async def test_the_event_of_a_batch_is_made_beside_the_event_loop(
    watching: Watching, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    makers: list[threading.Thread] = []

    def make(*arguments: Any) -> TriggerEvent:
        makers.append(threading.current_thread())
        return make_batch_event(*arguments)

    make_batch_event = events.make_batch_event
    monkeypatch.setattr(events, "make_batch_event", make)
    async with watching(batch=True) as watcher:
        (tmp_path / "a.txt").write_text("x")
        await watcher.next()
    assert makers and threading.current_thread() not in makers


PATTERNS = [
    *("*.log", "!keep.log", "/build/", "docs/", "a/**", "**/tmp", "x/**/y.txt", "*", "!*/", "!*.py", "!a/keep.py"),
    *("[ab]*.txt", "[!a-c]?.md", r"\!bang", r"\#hash", "trailing ", "deep/er/", "*.py[co]", "!src/", "**/z/**", "b"),
]
PATHS = [
    *("a.log", "keep.log", "build/x.txt", "src/build/x.txt", "docs/a.md", "src/docs/b/c.py", "a/keep.py", "a/b/c.py"),
    *("tmp", "src/tmp/x", "x/y.txt", "x/q/r/y.txt", "atx.txt", "dd.md", "!bang", "#hash", "trailing", "deep/er/f.py"),
    *("m.pyc", "src/m.py", "q/z/w.txt", "z", "b", "b2/b/c.txt"),
]


def test_gitignore_files_mean_what_they_mean_to_git(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    inner = tmp_path / "inner"
    for path in PATHS:
        (inner / path).parent.mkdir(parents=True, exist_ok=True)
        (inner / path).touch()
    for number in range(0, len(PATTERNS), 3):
        chosen = PATTERNS[number:] + PATTERNS[:number]
        (tmp_path / ".gitignore").write_text("\n".join(chosen[:4]))
        (inner / ".gitignore").write_text("\n".join(chosen[4:9]))
        (inner / "src" / ".gitignore").write_text("\n".join(chosen[9:12]))
        command = ["git", "check-ignore", "--no-index", "-z", "--stdin"]
        listed = subprocess.run(
            command, cwd=inner, input="\0".join(PATHS).encode(), capture_output=True, check=False, timeout=30
        )
        ignored = set(listed.stdout.decode().split("\0")) - {""}
        scope = Scope(inner, inner, ["*"], ["!*.py[co]"], gitignore=True)
        assert {path for path in PATHS if not scope.counts(path)} == ignored - {"m.pyc"}, chosen


def test_what_is_ignored_with_its_folder_cannot_be_taken_back(tmp_path: Path) -> None:
    scope = Scope(tmp_path, tmp_path, ["*"], ["build/", "!build/kept.txt"])
    assert not scope.counts("build/kept.txt")


def test_the_data_of_amplifier_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "a*b"))
    scope = Scope(tmp_path, tmp_path, ["*"], [])
    wanted = [path for path in ("a*b/amplifier.db", "axb/kept", ".amplifier/bundles/x.md") if scope.counts(path)]
    assert wanted == ["axb/kept"]


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Manifest:
    """A manifest of two files, which are taken for old and so were not read."""
    monkeypatch.setattr(fingerprints, "YOUNG", -(10**18))
    for name in "ab":
        (tmp_path / name).write_text("x")
    manifest = Manifest(str(tmp_path), lambda path: True, recursive=True)
    manifest.begin()
    return manifest


def test_files_are_read_after_the_first_look_and_a_touch_is_then_no_change(tmp_path: Path, old: Manifest) -> None:
    assert [known.content for known in old.files.values()] == [UNREAD, UNREAD]
    while old.read_more(1):
        pass
    os.utime(tmp_path / "a", (1, 1))
    (tmp_path / "b").write_text("y")
    assert [(change.path, change.kind) for change in old.compare([""])] == [("b", "modified")]


def test_a_file_that_changes_before_it_was_read_is_modified(tmp_path: Path, old: Manifest) -> None:
    (tmp_path / "a").write_text("y")
    while old.read_more(1):
        pass
    assert [(change.path, change.kind) for change in old.compare([""])] == [("a", "modified")]


def test_files_that_were_not_read_are_not_read_by_a_look(old: Manifest) -> None:
    assert old.compare([""]) == []
    assert [known.content for known in old.files.values()] == [UNREAD, UNREAD]


async def test_the_state_knows_the_contents_in_the_end(
    watching: Watching, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fingerprints, "YOUNG", -(10**18))
    (tmp_path / "a.txt").write_text("x")
    async with watching() as watcher:
        first = watcher.state
        while watcher.state is first:
            await asyncio.sleep(0)
    (tmp_path / "a.txt").touch()
    async with watching(state=watcher.state) as watcher:
        assert await watcher.changes() == []


async def test_a_file_that_is_never_closed_fires(watching: Watching, tmp_path: Path) -> None:
    async with watching() as watcher:
        with (tmp_path / "a.log").open("w") as log:
            print("line", file=log, flush=True)
            assert await watcher.next_change() == ("created", "a.log")
            print("line", file=log, flush=True)
            assert await watcher.next_change() == ("modified", "a.log")


def test_an_event_is_judged_by_each_of_its_files(tmp_path: Path) -> None:
    def matches(config: dict[str, Any], *paths: str, **fields: Any) -> str | None:
        trigger = FileChangeTrigger()
        trigger.bind(TriggerContext("b/a/t#1", working_dir=tmp_path))
        trigger.configure({"path": "src", "patterns": ["*.py"], **config})
        data = {"changes": [{"path": path} for path in paths], **fields}
        return trigger.matches(TriggerEvent(TriggerType.FILE_CHANGE, "t", data=data, file_path="src"))

    (tmp_path / "src").mkdir()
    assert matches({}, "src/a.txt", "src/sub/a.py") is None
    assert matches({}, str(tmp_path / "src" / "a.py")) is None
    assert matches({}, "src/a.txt") == "no pattern names a.txt"
    assert matches({}, "a.py") == f"a.py is not below {tmp_path / 'src'}"
    assert matches({"recursive": False}, "src/sub/a.py") == (
        "src/sub/a.py is in a folder of the folder, and recursive is false"
    )
    assert matches({}, "src/a.py/") == "src/a.py/ names a folder, and it fires on files"
    (tmp_path / "etc").mkdir()
    (tmp_path / "src" / "etc").symlink_to("../etc", target_is_directory=True)
    assert matches({}, "src/etc/a.py") == "etc is a symbolic link, which is not followed"
    assert matches({}, changes="src/a.py") == f"src is not below {tmp_path / 'src'}"


@pytest.mark.parametrize("key", ["patterns", "ignore"])
@pytest.mark.parametrize("pattern", [r"src\*.txt", r"src\?.txt", r"C:\logs\*", r"docs\**\*.md", r"a\env", r"a/\\\b"])
def test_a_backslash_between_folders_is_refused_with_the_slash_to_write(key: str, pattern: str, tmp_path: Path) -> None:
    trigger = FileChangeTrigger()
    trigger.bind(TriggerContext("k", working_dir=tmp_path))
    with pytest.raises(TriggerConfigError, match=rf"{key}.*a backslash between folders; write / there"):
        trigger.configure({key: [pattern]})


@pytest.mark.parametrize(
    "pattern",
    [
        r"\#a",
        r"\!a",
        r"\[id\]/*.py",
        r"a\ ",
        r"\*.txt",
        r"docs/\?",
        r"a\\b",
        "a[*]b",
        r"notes\.md",
        r"v1\.2/*.txt",
        r"report\(1\).pdf",
        r"[\w]*",
        r"a\_b",
    ],
)
def test_a_backslash_that_escapes_a_sign_is_one(pattern: str, tmp_path: Path) -> None:
    trigger = FileChangeTrigger()
    trigger.bind(TriggerContext("k", working_dir=tmp_path))
    trigger.configure({"patterns": [pattern]})
