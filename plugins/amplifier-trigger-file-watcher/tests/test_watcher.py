"""The file watcher on real files."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes, urlsplit

import pytest

from amplifier_core.errors import TriggerConfigError
from amplifier_core.plugins import load_plugins
from amplifier_core.testing.clock import VirtualClock
from amplifier_core.testing.trigger_checks import check_trigger
from amplifier_core.triggers import TriggerContext, TriggerSource, TriggerType
from amplifier_trigger_file_watcher import FileChangeTrigger, trigger

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    Watching = Callable[..., AbstractAsyncContextManager[Any]]


async def test_the_contract_of_a_trigger(tmp_path: Path) -> None:
    texts = iter("12")

    def write() -> None:
        (tmp_path / "a.txt").write_text(next(texts))

    events = await check_trigger(
        FileChangeTrigger,
        {"debounce_ms": 20},
        provoke=write,
        context=TriggerContext("tests/watcher#0", working_dir=tmp_path),
    )
    assert [event.change_type for event in events] == ["created", "modified"]


def test_the_plugin_registers_the_watcher() -> None:
    plugins = load_plugins(environ={"AMPLIFIER_LOAD_PLUGINS": "trigger-file-watcher"})
    assert plugins.triggers.get("trigger-file-watcher") is FileChangeTrigger
    assert isinstance(FileChangeTrigger(), TriggerSource)


async def test_created_modified_and_deleted_files_fire(watching: Watching, tmp_path: Path) -> None:
    async with watching() as watcher:
        file = tmp_path / "a.txt"
        file.write_text("one")
        event = await watcher.next()
        assert (event.type, event.source) == (TriggerType.FILE_CHANGE, "trigger-file-watcher")
        assert event.data == {
            "path": "a.txt",
            "change": "created",
            "absolute": str(file),
            "src_path": str(file),
        }
        file.write_text("two")
        assert await watcher.next_change() == ("modified", "a.txt")
        file.unlink()
        assert await watcher.next_change() == ("deleted", "a.txt")


async def test_a_file_written_as_soon_as_the_watcher_is_ready_fires(watching: Watching, tmp_path: Path) -> None:
    for number in range(10):
        async with watching() as watcher:
            (tmp_path / f"{number}.txt").write_text("x")
            assert await watcher.next_change() == ("created", f"{number}.txt")


async def test_what_is_there_at_the_very_first_start_does_not_fire(watching: Watching, tmp_path: Path) -> None:
    (tmp_path / "old.txt").write_text("x")
    async with watching() as watcher:
        assert await watcher.changes() == []


async def test_many_writes_are_one_event_that_sees_the_last(watching: Watching, tmp_path: Path) -> None:
    async with watching() as watcher:
        for text in ("1", "2", "3"):
            (tmp_path / "a.txt").write_text(text)
        assert await watcher.changes() == [("created", "a.txt")]
    async with watching(state=watcher.state) as watcher:
        (tmp_path / "a.txt").write_text("3")
        assert await watcher.changes() == []  # "3" was seen


async def test_nothing_fires_before_the_path_is_quiet(watching: Watching, tmp_path: Path) -> None:
    clock = VirtualClock()
    async with watching(clock=clock, debounce_ms=1000) as watcher:
        (tmp_path / "a.txt").write_text("1")
        await clock.until_sleeping()
        await clock.advance(0.999)
        assert watcher.events.empty()
        await clock.advance(0.001)
        assert await watcher.next_change() == ("created", "a.txt")


async def test_without_debounce_one_save_is_one_event(watching: Watching, tmp_path: Path) -> None:
    async with watching(debounce_ms=0) as watcher:
        (tmp_path / "a.txt").write_text("complete")
        assert await watcher.changes() == [("created", "a.txt")]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere each write is noticed")
async def test_without_debounce_a_file_fires_when_its_writer_closes_it(watching: Watching, tmp_path: Path) -> None:
    async with watching(debounce_ms=0) as watcher:
        with (tmp_path / "a.txt").open("w") as file:
            file.write("a part")
            file.flush()
            assert await watcher.changes() == []
        assert await watcher.next_change() == ("created", "a.txt")


async def test_an_atomic_save_is_one_modification(watching: Watching, tmp_path: Path) -> None:
    file, draft = tmp_path / "a.txt", tmp_path / ".a.txt.Xy12"
    file.write_text("one")
    async with watching() as watcher:
        draft.write_text("two")
        draft.replace(file)
        assert await watcher.changes() == [("modified", "a.txt")]


async def test_a_save_by_way_of_a_backup_is_one_modification(watching: Watching, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one")
    async with watching() as watcher:
        file.rename(tmp_path / "a.txt~")
        file.write_text("two")
        (tmp_path / "a.txt~").unlink()
        assert await watcher.changes() == [("modified", "a.txt")]


async def test_a_file_that_came_and_went_is_nothing(watching: Watching, tmp_path: Path) -> None:
    async with watching() as watcher:
        (tmp_path / "a.txt").write_text("one")
        (tmp_path / "a.txt").unlink()
        assert await watcher.changes() == []


async def test_a_file_of_the_same_content_is_nothing(watching: Watching, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one")
    async with watching() as watcher:
        os.utime(file, (1, 1))
        file.write_text("one")
        file.unlink()
        file.write_text("one")
        assert await watcher.changes() == []


async def test_a_large_file_is_known_by_size_and_time(watching: Watching, tmp_path: Path) -> None:
    file = tmp_path / "large.bin"
    with file.open("wb") as large:
        large.truncate(17 * 1024 * 1024)
    async with watching() as watcher:
        with file.open("r+b") as large:
            large.write(b"x")
        assert await watcher.next_change() == ("modified", "large.bin")


async def test_a_renamed_file_is_deleted_and_created(watching: Watching, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    async with watching() as watcher:
        (tmp_path / "a.txt").rename(tmp_path / "b.txt")
        assert sorted(await watcher.changes()) == [("created", "b.txt"), ("deleted", "a.txt")]


async def test_files_that_are_linked_or_moved_in_or_out_fire(
    watching: Watching, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "in.txt").write_text("x")
    (outside / "linked.txt").write_text("x")
    (tmp_path / "out.txt").write_text("x")
    async with watching(debounce_ms=0) as watcher:
        (outside / "in.txt").rename(tmp_path / "in.txt")
        assert await watcher.next_change() == ("created", "in.txt")
        (tmp_path / "linked.txt").hardlink_to(outside / "linked.txt")
        assert await watcher.next_change() == ("created", "linked.txt")
        (tmp_path / "out.txt").rename(outside / "out.txt")
        assert await watcher.next_change() == ("deleted", "out.txt")


async def test_files_in_folders_that_are_made_moved_and_removed_fire(watching: Watching, tmp_path: Path) -> None:
    async with watching() as watcher:
        (tmp_path / "a" / "b").mkdir(parents=True)
        (tmp_path / "a" / "b" / "f.txt").write_text("x")
        assert await watcher.next_change() == ("created", "a/b/f.txt")
        (tmp_path / "a").rename(tmp_path / "c")
        assert sorted([await watcher.next_change(), await watcher.next_change()]) == [
            ("created", "c/b/f.txt"),
            ("deleted", "a/b/f.txt"),
        ]
        (tmp_path / "c" / "b" / "f.txt").write_text("y")
        assert await watcher.next_change() == ("modified", "c/b/f.txt")
        shutil.rmtree(tmp_path / "c")
        assert await watcher.next_change() == ("deleted", "c/b/f.txt")


async def test_files_of_folders_moved_in_or_out_fire(
    watching: Watching, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "box" / "deep").mkdir(parents=True)
    (outside / "box" / "deep" / "f.txt").write_text("x")
    async with watching() as watcher:
        (outside / "box").rename(tmp_path / "box")
        assert await watcher.next_change() == ("created", "box/deep/f.txt")
        (tmp_path / "box").rename(outside / "back")
        assert await watcher.next_change() == ("deleted", "box/deep/f.txt")


async def test_only_matching_files_that_are_not_ignored_fire(watching: Watching, tmp_path: Path) -> None:
    config = {"patterns": ["*.txt", "src/**/*.py"], "ignore": ["build/", "secret*"]}
    for folder in ("src/pkg", "build", ".git", "__pycache__"):
        (tmp_path / folder).mkdir(parents=True)
    async with watching(**config) as watcher:
        for path in ("a.py", "a.md", "build/a.txt", ".git/a.txt", "secret.txt", "__pycache__/a.txt", "src/pkg/a.py"):
            (tmp_path / path).write_text("x")
        assert await watcher.changes() == [("created", "src/pkg/a.py")]


async def test_a_default_ignore_can_be_taken_back(watching: Watching, tmp_path: Path) -> None:
    (tmp_path / ".venv").mkdir()
    async with watching(ignore=["!.venv/"]) as watcher:
        (tmp_path / ".venv" / "pyvenv.cfg").write_text("x")
        assert await watcher.changes() == [("created", ".venv/pyvenv.cfg")]


async def test_folders_in_the_folder_are_left_out_when_asked(watching: Watching, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    async with watching(recursive=False) as watcher:
        (tmp_path / "sub" / "a.txt").write_text("x")
        (tmp_path / "b.txt").write_text("x")
        assert await watcher.changes() == [("created", "b.txt")]


async def test_a_symbolic_link_to_the_folder_works(
    watching: Watching, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    real = tmp_path_factory.mktemp("real")
    (tmp_path / "link").symlink_to(real, target_is_directory=True)
    async with watching(path="link") as watcher:
        (real / "a.txt").write_text("x")
        event = await watcher.next()
        assert event.file_path == "link/a.txt"
        assert event.data["absolute"] == str(tmp_path / "link" / "a.txt")


async def test_a_folder_named_by_its_real_path_is_shown_relative(
    watching: Watching, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("links") / "home"
    home.symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "sub").mkdir()
    async with watching(folder=home, path=str(tmp_path / "sub")) as watcher:
        (tmp_path / "sub" / "a.txt").write_text("x")
        assert await watcher.next_change() == ("created", "sub/a.txt")


async def test_a_folder_outside_the_working_folder_is_shown_whole(
    watching: Watching, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    async with watching(path=str(elsewhere)) as watcher:
        (elsewhere / "a.txt").write_text("x")
        assert await watcher.next_change() == ("created", (elsewhere / "a.txt").as_posix())


@pytest.mark.skipif(sys.platform != "linux", reason="file names of any bytes are a thing of Linux")
async def test_a_file_name_that_is_not_unicode_can_be_stored_and_opened(watching: Watching, tmp_path: Path) -> None:
    async with watching() as watcher:
        (tmp_path / os.fsdecode(b"caf\xe9.txt")).write_text("x")
        event = await watcher.next()
        assert (event.change_type, event.file_path) == ("created", "caf\\xe9.txt")
        assert Path(os.fsdecode(unquote_to_bytes(urlsplit(event.data["uri"]).path))).read_text() == "x"
        (tmp_path / "caf\u00e9.txt").write_text("x")
        assert "uri" not in (await watcher.next()).data
    async with watching(state=watcher.state) as watcher:
        assert await watcher.changes() == []


@pytest.mark.skipif(sys.platform != "linux", reason="file names of any bytes are a thing of Linux")
async def test_patterns_meet_file_names_that_are_not_unicode(watching: Watching, tmp_path: Path) -> None:
    async with watching(patterns=["*.txt"]) as watcher:
        (tmp_path / os.fsdecode(b"b\xe9.jpg")).touch()
        assert await watcher.changes() == []
        (tmp_path / os.fsdecode(b"b\xe9.txt")).touch()
        assert await watcher.changes() == [("created", "b\\xe9.txt")]
    async with watching(patterns=["*.txt"], state=watcher.state) as watcher:
        assert await watcher.changes() == []


async def test_a_folder_that_is_removed_fires_its_files_and_is_waited_for(
    watching: Watching, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watched, clock = tmp_path / "watched", VirtualClock()
    watched.mkdir()
    (watched / "a.txt").write_text("x")
    async with watching(path="watched", clock=clock) as watcher:
        shutil.rmtree(watched)
        await run_until(clock, lambda: not watcher.events.empty())
        assert await watcher.next_change() == ("deleted", "watched/a.txt")
        problem = f"{watched} does not exist; it is waited for"
        assert watcher.problems == [problem]
        await clock.until_sleeping()
        await clock.advance(3600)
        watched.mkdir()
        (watched / "b.txt").write_text("x")
        await run_until(clock, lambda: not watcher.events.empty())
        assert await watcher.next_change() == ("created", "watched/b.txt")
        assert watcher.problems == [problem, None]
        (watched / "b.txt").write_text("y")
        await run_until(clock, lambda: not watcher.events.empty())
        assert await watcher.next_change() == ("modified", "watched/b.txt")
    assert caplog.messages == [f"trigger-file-watcher: {problem}"]


async def run_until(clock: VirtualClock, holds: Callable[[], bool]) -> None:
    """Let the time pass whenever the watcher sleeps."""
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.01)
            await clock.advance(0.25)


async def test_a_folder_that_is_not_there_yet_is_waited_for(watching: Watching, tmp_path: Path) -> None:
    async with watching(path="later/deep") as watcher:
        assert watcher.state["format"] == 3
        (tmp_path / "later" / "deep").mkdir(parents=True)
        (tmp_path / "later" / "deep" / "a.txt").write_text("x")
        assert await watcher.next_change() == ("created", "later/deep/a.txt")


async def test_a_folder_moved_away_and_back_fires_only_its_changes(watching: Watching, tmp_path: Path) -> None:
    watched, away = tmp_path / "watched", tmp_path / "away"
    (watched / "sub").mkdir(parents=True)
    for name in ("a.txt", "sub/b.txt", "c.txt"):
        (watched / name).write_text("x")
    async with watching(watched) as watcher:
        watched.rename(away)
        (away / "c.txt").write_text("y")
        shutil.copytree(away, watched)  # back, and another folder
        assert await watcher.next_change() == ("modified", "c.txt")
        (watched / "sub" / "b.txt").write_text("y")
        assert await watcher.next_change() == ("modified", "sub/b.txt")
        assert watcher.events.empty()


async def test_a_folder_replaced_with_those_above_it_is_watched_again(
    watching: Watching, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trigger, "LOOK", 0.05)
    watched, clock = tmp_path / "above" / "watched", VirtualClock()
    watched.mkdir(parents=True)
    async with watching(path="above/watched", clock=clock) as watcher:
        (watched / "first.txt").write_text("x")
        await run_until(clock, lambda: not watcher.events.empty())
        assert await watcher.next_change() == ("created", "above/watched/first.txt")
        (tmp_path / "above").rename(tmp_path / "away")
        watched.mkdir(parents=True)
        (watched / "a.txt").write_text("x")
        await run_until(clock, lambda: watcher.events.qsize() == 2)
        assert await watcher.next_change() == ("created", "above/watched/a.txt")
        assert await watcher.next_change() == ("deleted", "above/watched/first.txt")


async def test_a_folder_that_is_missing_at_a_restart_for_a_moment_fires_nothing(
    watching: Watching, tmp_path: Path
) -> None:
    watched, away = tmp_path / "watched", tmp_path / "away"
    watched.mkdir()
    (watched / "a.txt").write_text("x")
    async with watching(watched) as watcher:
        pass
    watched.rename(away)
    asyncio.get_running_loop().call_later(0.1, away.rename, watched)
    async with watching(watched, state=watcher.state) as watcher:
        assert await watcher.changes() == []


async def test_a_watcher_that_waits_for_its_folder_stops_at_once(watching: Watching, tmp_path: Path) -> None:
    clock = VirtualClock()
    trigger = FileChangeTrigger()
    trigger.bind(TriggerContext("tests/watcher#0", working_dir=tmp_path, clock=clock))
    trigger.configure({"path": "missing"})
    stream = trigger.watch()
    task = asyncio.ensure_future(anext(stream, None))
    await clock.until_sleeping()
    await trigger.stop()
    assert await asyncio.wait_for(task, 60) is None


async def test_a_stopped_watcher_leaves_no_thread(watching: Watching) -> None:
    before = {thread.ident for thread in threading.enumerate() if "asyncio" not in thread.name}
    async with watching() as watcher:
        during = {thread.ident for thread in threading.enumerate()}
        assert during > before
        await watcher.trigger.stop()
        after = {thread.ident for thread in threading.enumerate() if "asyncio" not in thread.name}
    assert after == before


async def test_a_watcher_stopped_before_it_is_watched_yields_nothing(tmp_path: Path) -> None:
    trigger = FileChangeTrigger()
    trigger.bind(TriggerContext("tests/watcher#0", working_dir=tmp_path))
    trigger.configure({})
    await trigger.stop()
    assert [event async for event in trigger.watch()] == []


@pytest.mark.parametrize(
    ("config", "key", "message"),
    [
        ({"path": "file.txt"}, "path", "is not a folder; name its folder"),
        ({"patterns": []}, "patterns", "at least 1 item"),
        ({"patterns": "*.py"}, "patterns", "a list"),
        ({"patterns": ["*.py", ""]}, "patterns", "'' matches nothing"),
        ({"debounce_ms": -1}, "debounce_ms", "at least"),
        ({"debounce_ms": "fast"}, "debounce_ms", "whole number"),
        ({"polling": "sometimes"}, "polling", "must be 'auto' or true or false"),
        ({"debounce_ms": 100, "max_wait_ms": 50}, "", "max_wait_ms must be at least debounce_ms (100)"),
        ({"pattern": ["*.py"]}, "pattern", "did you mean 'patterns'?"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(
    tmp_path: Path, config: dict[str, Any], key: str, message: str
) -> None:
    (tmp_path / "file.txt").write_text("x")
    trigger = FileChangeTrigger()
    trigger.bind(TriggerContext("tests/watcher#0", working_dir=tmp_path))
    with pytest.raises(TriggerConfigError, match=r"^trigger-file-watcher: ") as caught:
        trigger.configure(config)
    assert caught.value.key == key
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_schema_lists_every_key() -> None:
    properties = FileChangeTrigger.config_schema()["properties"]
    assert list(properties) == [
        *("path", "patterns", "ignore", "gitignore", "recursive", "debounce_ms", "max_wait_ms"),
        *("batch", "self_trigger", "polling", "poll_interval"),
    ]
    assert [key for key, schema in properties.items() if "description" not in schema] == []
