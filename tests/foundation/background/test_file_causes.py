"""Loops run through files too: they are told from the changes of others, and cut."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import TriggerEvent, TriggerType
from amplifier_core.storage import Delivery, DurableStore
from amplifier_core.testing import MemoryStore
from amplifier_foundation.background import file_causes
from amplifier_foundation.background.file_causes import FileCauses, ToolRun, Writer

OpenBench = Callable[..., Any]

TOUCH = '''
from pathlib import Path
from amplifier_core import ToolResult

class Touch:
    """Writes a file, and tells nobody."""
    name, description = "touch", "Write a file."
    input_schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    def __init__(self, folder): self.folder = Path(folder)
    async def execute(self, input):
        path = self.folder / input["path"]
        path.write_text(str(int(path.read_text() or 0) + 1) if path.exists() else "1")
        return ToolResult(success=True, output="touched")

async def mount(coordinator, config):
    await coordinator.mount("tools", Touch(coordinator.get_capability("session.working_dir")))
'''
WATCH = {"type": "file_change", "config": {"patterns": ["*.txt"], "debounce_ms": 1}}
NOW = time.time()


def calls(tool: str, **call: Any) -> list[dict[str, Any]]:
    """Return a provider whose sessions call a tool once, whatever they are asked."""
    rules = [{"when": {"user": "."}, "call": {"tool": tool, "input": call}}]
    return [{"module": "provider-playbook", "config": {"rules": rules, "otherwise": {"say": "written"}}}]


@pytest.fixture
def touching(tmp_path: Path) -> dict[str, Any]:
    """Sections of a bundle whose sessions add 1 to `a.txt` with a tool that announces nothing."""
    (tmp_path / "touch.py").write_text(TOUCH)
    return {"providers": calls("touch", path="a.txt"), "tools": [{"module": "touch", "source": "./touch.py"}]}


async def test_a_file_announced_by_a_session_carries_its_cause_and_depth(open_bench: OpenBench, tmp_path: Path) -> None:
    def watching(name: str, watched: str, written: str, content: str) -> dict[str, Any]:
        bundle = tmp_path / name
        bundle.mkdir()
        provider = calls("write_file", file_path=written, content=content)[0]
        (bundle / "bundle.md").write_text(
            f"---\nbundle: {{name: {name}}}\nproviders: [{provider!r}]\ntools: [{{module: tool-filesystem}}]\n---\n"
        )
        trigger = {"type": "file_change", "config": {"patterns": [watched], "debounce_ms": 1}}
        return {"name": name, "bundle": f"./{name}/bundle.md", "triggers": [trigger], "max_depth": 3}

    async with open_bench() as bench:
        await bench.start(**watching("ping", "a.txt", "b.txt", "{prompt}"))
        await bench.start(**watching("pong", "b.txt", "a.txt", "{prompt}"))
        (tmp_path / "a.txt").write_text("a person began")
        await bench.until("completed", count=2, step=0.05)
        first, second, *_ = await bench.deliveries()
    assert (first.event.depth, second.event.depth) == (0, 1)
    assert (second.event.cause, second.event.source_session_id) == (first.event.event_id, first.session_id)
    assert second.event.data["written_by"] == {"session_id": first.session_id, "evidence": "announced"}


async def test_a_loop_through_a_file_that_nobody_announces_is_slowed_and_cut(
    open_bench: OpenBench, touching: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the delays pass by the virtual clock, and the tools run by the real one, with less than CLOCK_STEP between them
    monkeypatch.setattr(file_causes, "SUSPECTS", 1)
    async with open_bench(**touching) as bench:
        await bench.start(triggers=[WATCH], max_depth=4)
        (tmp_path / "a.txt").write_text("1")
        await bench.until("refused", step=0.05)
        await bench.until("completed", count=5, step=0.05)
        chain = [each for each in await bench.deliveries() if each.event.file_path == "a.txt"]
        assert [each.event.depth for each in chain] == [0, 1, 2, 3, 4, 5]
        assert [each.state for each in chain] == ["done"] * 5 + ["refused"]
        assert chain[-1].reason == "its chain of causes is longer than max_depth (4)"
        waits = [(each.available_at - each.created).total_seconds() for each in chain[:-1]]
        assert waits == [0, 0, 2, 4, 8]
        time.sleep(2 * file_causes.CLOCK_STEP)
        (tmp_path / "a.txt").write_text("a person goes on")
        await bench.until("completed", count=6, step=0.05)
        assert (await bench.deliveries())[-1].event.depth in (0, 1)


# what counts as evidence


def delivery(event: TriggerEvent, queue: str = "q") -> Delivery:
    return Delivery("d-" + event.event_id, "/project", queue, "t", event)


def changed(path: Path, **fields: Any) -> TriggerEvent:
    return TriggerEvent(TriggerType.FILE_CHANGE, "trigger-file-watcher", file_path=path.name, **fields)


async def stored(store: DurableStore, event: TriggerEvent, place: tuple[str, str]) -> TriggerEvent:
    await store.enqueue(*place, "t", event)
    return event


def running(event: TriggerEvent, place: tuple[str, str], begun: float, ended: float | None = None) -> ToolRun:
    return ToolRun(Writer("s-1", place, event.event_id, event.depth), Path(place[0]), begun, ended)


async def test_a_change_while_no_tool_runs_has_no_cause(tmp_path: Path) -> None:
    store, files, path, place = MemoryStore(), FileCauses(), tmp_path / "a.txt", (str(tmp_path), "q")
    path.write_text("a person")
    before = await stored(store, changed(path), place)
    files._runs.append(running(before, place, time.time() - 60, time.time() - 30))
    files._runs.append(running(before, (str(tmp_path / "elsewhere"), "q"), time.time() - 60))
    event = changed(path)
    assert await files.attribute(store, place, event) is event


async def test_changes_by_others_while_tools_run_all_the_time_are_never_refused(tmp_path: Path) -> None:
    """Each of many files changes in turn while a tool runs: no chain comes by one file twice, whatever its length."""
    store, files, place = MemoryStore(), FileCauses(), (str(tmp_path), "q")
    event = await stored(store, changed(tmp_path / "start.txt"), place)
    for number in range(40):
        path = tmp_path / f"{number}.txt"
        path.write_text("a person")
        files._runs.append(running(event, place, time.time() - 1))
        event = await stored(store, await files.attribute(store, place, changed(path)), place)
        assert (event.depth, event.source_session_id) == (0, None)
        assert event.cause is not None


async def test_of_several_suspects_the_one_without_a_loop_counts(tmp_path: Path) -> None:
    store, files, path, place = MemoryStore(), FileCauses(), tmp_path / "a.txt", (str(tmp_path), "q")
    once = await stored(store, changed(path), place)
    other = await stored(store, changed(tmp_path / "b.txt"), place)
    path.write_text("by whom?")
    files._runs.append(running(once, place, time.time() - 1))
    files._runs.append(running(other, place, time.time() - 1))
    event = await files.attribute(store, place, changed(path))
    assert (event.depth, event.cause) == (0, other.event_id)


async def test_a_deleted_file_and_other_events_have_no_evidence(tmp_path: Path) -> None:
    store, files, place = MemoryStore(), FileCauses(), (str(tmp_path), "q")
    before = await stored(store, changed(tmp_path / "a.txt"), place)
    files._runs.append(running(before, place, 0.0))
    for event in (
        changed(tmp_path / "gone.txt"),
        changed(tmp_path / "a.txt", cause="x", depth=2),
        TriggerEvent(TriggerType.TIMER, "trigger-timer"),
    ):
        assert await files.attribute(store, place, event) is event


async def test_the_oldest_files_and_runs_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_causes, "MOST", 2)
    files, writer = FileCauses(), Writer("s-1", ("/p", "q"), "e-1", 0)
    for name in ("a", "b", "c"):
        files._remember(tmp_path / name, name, writer)
    assert dict(files.own_writes(("/p", "q"))) == {str(tmp_path / "b"): "b", str(tmp_path / "c"): "c"}
    assert dict(files.own_writes(("/p", "other"))) == {}
    assert len(files.own_writes(("/p", "q"))) == 2


# reports of refusals


async def test_a_flood_of_refusals_is_reported_once_a_minute(
    open_bench: OpenBench, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_bench() as bench:
        session_id = await bench.start(**{"if": "data.n > 1000"})
        for n in range(50):
            bench.trigger.feed(n)
        await bench.until("refused", count=50)
        await bench.until("refusals")
        assert bench.told("refusals", "count") == [1]
        await bench.until("refusals", count=2, step=1)
        assert bench.told("refusals", "count") == [1, 49]
        assert bench.told("refusals", "text")[1] == "49 events refused: its 'if' does not hold: data.n > 1000 (49)"
        assert bench.manager.get_status(session_id)["refused"] == 50
    assert caplog.text.count("its 'if' does not hold") == 2


async def test_the_last_refusals_are_reported_at_the_stop(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        await bench.start(**{"if": "data.n > 1000"})
        for n in range(3):
            bench.trigger.feed(n)
        await bench.until("refused", count=3)
        await bench.manager.stop_all()
        assert bench.told("refusals", "count") == [1, 2]


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert file_causes._digest(tmp_path / "fifo") is None
    assert file_causes._digest(tmp_path) is None
    assert file_causes._digest(Path("/dev/zero")) is None
