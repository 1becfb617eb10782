"""Notices of a change that come after its event are no reason to fire again; those of a later change are."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

from amplifier_trigger_file_watcher.change_detector import LINUX

if LINUX:
    from amplifier_trigger_file_watcher.inotify_readers import SharedReader
    from amplifier_trigger_file_watcher.inotify_tree import InotifyTree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Watching = Callable[..., AbstractAsyncContextManager[Any]]

pytestmark = pytest.mark.skipif(not LINUX, reason="inotify is Linux's")


@contextmanager
def late_notices() -> Iterator[None]:
    """Keep the thread that reads the system's queue from going on at its next event; folders are watched meanwhile."""
    going_on = threading.Event()
    on_event = InotifyTree.on_event

    def hold(tree: InotifyTree, event: Any) -> None:
        going_on.wait()
        on_event(tree, event)

    with patch.object(InotifyTree, "on_event", hold):
        try:
            yield
        finally:
            going_on.set()


def look_at_everything(watcher: Any) -> None:
    """Compare all files at once, as after lost events."""
    watcher.trigger._detector._notice({"": 0.0})


async def changes_of(watcher: Any) -> list[tuple[str | None, str | None]]:
    """Return what fires; what fires again may come just behind the mark, so look twice."""
    return [*await watcher.changes(), *await watcher.changes()]


async def until_watched(watcher: Any) -> None:
    """Return when the folder is watched again, by whatever observer, and was looked at."""
    detector = watcher.trigger._detector
    async with asyncio.timeout(60):
        while not getattr(detector._observer, "_folders", None) or "" in detector._debounce._first:
            await asyncio.sleep(0.001)
    draft = watcher.folder.with_name(f"{watcher.folder.name}-draft")
    draft.write_text("x")
    draft.rename(watcher.folder / "mark.txt")
    assert await watcher.next_change() == ("created", "mark.txt")


async def create_and_look(watcher: Any, name: str) -> None:
    """Return when a new file has fired that was found by a look, and the system has told of it afterwards."""
    with late_notices():
        (watcher.folder / name).write_text("x")
        look_at_everything(watcher)
        assert await watcher.next_change() == ("created", name)


def move_away_and_back(path: Path) -> None:
    """Leave no trace in what the watcher compares."""
    away = path.with_name("away")
    path.rename(away)
    away.rename(path)


@pytest.mark.parametrize("debounce_ms", [0, 50])
async def test_the_late_notice_of_a_file_that_has_fired_is_nothing(
    watching: Watching, tmp_path: Path, debounce_ms: int
) -> None:
    (tmp_path / "origin.txt").write_text("x")
    async with watching(debounce_ms=debounce_ms, ignore=["origin.txt"]) as watcher:
        with late_notices():
            (tmp_path / "origin.txt").rename(tmp_path / "moved.txt")
            (tmp_path / "made.txt").write_text("x")
            look_at_everything(watcher)
            assert await watcher.next_change() == ("created", "made.txt")
            assert await watcher.next_change() == ("created", "moved.txt")
        assert await changes_of(watcher) == []


async def test_the_late_notice_of_a_file_found_at_the_start_is_nothing(watching: Watching, tmp_path: Path) -> None:
    async with watching() as watcher:
        pass
    enter = InotifyTree.enter

    def enter_and_write(tree: InotifyTree, folder: str) -> None:
        enter(tree, folder)
        if folder == "" and not (tmp_path / "a.txt").exists():
            (tmp_path / "a.txt").write_text("x")

    with late_notices(), patch.object(InotifyTree, "enter", enter_and_write):
        starting = watching(state=watcher.state)
        watcher = await starting.__aenter__()
        assert await watcher.next_change() == ("created", "a.txt")
    assert await changes_of(watcher) == []
    await starting.__aexit__(None, None, None)


async def test_the_late_notice_of_a_folder_whose_files_have_fired_is_nothing(
    watching: Watching, tmp_path: Path
) -> None:
    async with watching() as watcher:
        with late_notices():
            (tmp_path / "new").mkdir()
            (tmp_path / "new" / "a.txt").write_text("x")
            look_at_everything(watcher)
            assert await watcher.next_change() == ("created", "new/a.txt")
        assert await changes_of(watcher) == []
        move_away_and_back(tmp_path / "new")
        assert await watcher.next_change() == ("modified", "new/a.txt")


async def test_a_file_away_after_its_event_fires_again_beside_the_late_notice_of_its_folder(
    watching: Watching, tmp_path: Path
) -> None:
    async with watching(debounce_ms=50) as watcher:
        with late_notices():
            (tmp_path / "new").mkdir()
            (tmp_path / "new" / "a.txt").write_text("x")
            look_at_everything(watcher)
            assert await watcher.next_change() == ("created", "new/a.txt")
            move_away_and_back(tmp_path / "new" / "a.txt")
        assert await watcher.next_change() == ("modified", "new/a.txt")
        assert await changes_of(watcher) == []


async def test_a_file_away_fires_again_while_the_late_notice_of_its_folder_stops_the_watch(
    watching: Watching, tmp_path: Path
) -> None:
    """A moved folder is not watched until it is entered again; nothing tells what happens in it meanwhile."""
    (tmp_path / "in").mkdir()
    enter = InotifyTree.enter

    def enter_late(tree: InotifyTree, folder: str) -> None:
        if folder == "in/":
            move_away_and_back(tmp_path / "in" / "a.txt")
        enter(tree, folder)

    async with watching() as watcher:
        with late_notices():
            (tmp_path / "in" / "a.txt").write_text("x")
            move_away_and_back(tmp_path / "in")
            look_at_everything(watcher)
            assert await watcher.next_change() == ("created", "in/a.txt")
        with patch.object(InotifyTree, "enter", enter_late):
            assert await watcher.next_change() == ("modified", "in/a.txt")


async def test_the_late_notice_of_a_deleted_file_is_nothing(watching: Watching, tmp_path: Path) -> None:
    async with watching() as watcher:
        with late_notices():
            (tmp_path / "a.txt").write_text("x")
            look_at_everything(watcher)
            assert await watcher.next_change() == ("created", "a.txt")
            move_away_and_back(tmp_path / "a.txt")
            (tmp_path / "a.txt").unlink()
            look_at_everything(watcher)
            assert await watcher.next_change() == ("deleted", "a.txt")
        assert await changes_of(watcher) == []


@pytest.mark.parametrize("debounce_ms", [0, 50])
async def test_a_file_away_in_between_fires_again(watching: Watching, tmp_path: Path, debounce_ms: int) -> None:
    async with watching(debounce_ms=debounce_ms, ignore=["away"]) as watcher:
        (tmp_path / "a.txt").write_text("x")
        assert await watcher.next_change() == ("created", "a.txt")
        move_away_and_back(tmp_path / "a.txt")
        assert await watcher.next_change() == ("modified", "a.txt")


@pytest.mark.parametrize("debounce_ms", [0, 50])
async def test_a_file_away_after_its_event_fires_again_when_all_is_told_late(
    watching: Watching, tmp_path: Path, debounce_ms: int
) -> None:
    async with watching(debounce_ms=debounce_ms) as watcher:
        with late_notices():
            (tmp_path / "a.txt").write_text("x")
            look_at_everything(watcher)
            assert await watcher.next_change() == ("created", "a.txt")
            move_away_and_back(tmp_path / "a.txt")
        assert await watcher.next_change() == ("modified", "a.txt")
        assert await changes_of(watcher) == []


async def test_a_file_away_after_its_event_fires_again_when_the_barrier_was_lost_with_the_queue(
    watching: Watching, tmp_path: Path
) -> None:
    async with watching() as watcher:
        with patch.object(SharedReader, "add_barrier") as add_barrier:
            await create_and_look(watcher, "a.txt")
        assert add_barrier.called
        assert await changes_of(watcher) == []
        await asyncio.to_thread(watcher.trigger._detector._observer.on_queue_overflow)
        await until_watched(watcher)
        move_away_and_back(tmp_path / "a.txt")
        assert await watcher.next_change() == ("modified", "a.txt")


@pytest.mark.parametrize("loss", ["queue", "watches"])
async def test_a_deleted_file_does_not_fire_again_when_events_are_lost_later(
    watching: Watching, tmp_path: Path, loss: str
) -> None:
    async with watching(poll_interval=0.02) as watcher:
        (tmp_path / "a.txt").write_text("x")
        assert await watcher.next_change() == ("created", "a.txt")
        (tmp_path / "a.txt").unlink()
        assert await watcher.next_change() == ("deleted", "a.txt")
        detector = watcher.trigger._detector
        if loss == "queue":
            await asyncio.to_thread(detector._observer.on_queue_overflow)
        else:
            await detector._fall_back_to_polling(OSError(28, "inotify watch limit reached"))
        assert await changes_of(watcher) == []


async def test_a_file_away_after_its_event_fires_again_when_its_folder_was_away_before(
    watching: Watching, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    async with watching(folder) as watcher:
        await create_and_look(watcher, "a.txt")
        assert await changes_of(watcher) == []
        before = watcher.trigger._detector._observer
        folder.rename(tmp_path / "away")
        async with asyncio.timeout(60):
            while watcher.trigger._detector._observer is before:
                await asyncio.sleep(0.001)
        (tmp_path / "away").rename(folder)
        await until_watched(watcher)
        move_away_and_back(folder / "a.txt")
        assert await watcher.next_change() == ("modified", "a.txt")


async def test_a_reader_at_the_limit_of_watches_fires_once_more_rather_than_not(
    watching: Watching, tmp_path: Path
) -> None:
    async with watching() as watcher:
        with patch.object(SharedReader, "add_barrier", side_effect=OSError(28, "inotify watch limit reached")):
            await create_and_look(watcher, "a.txt")
        assert await watcher.next_change() == ("modified", "a.txt")
        move_away_and_back(tmp_path / "a.txt")
        assert await watcher.next_change() == ("modified", "a.txt")
