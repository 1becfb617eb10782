"""A bundle that changes while its background sessions run is taken up; one that cannot be changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from amplifier_core.errors import StoreConflict, StoreError, StoreUnavailable
from amplifier_core.plugins import Plugins
from amplifier_core.storage import DeliveryCounts, DurableStore
from amplifier_core.testing import MemoryStore
from amplifier_foundation import load_bundle
from amplifier_foundation.background import reloading
from amplifier_foundation.background.reloading import Reloading
from amplifier_foundation.background.up import Up, run_background
from amplifier_foundation.bundle.model import Bundle
from amplifier_foundation.security.trust import inspect_bundle, load_trusted, trust_content
from amplifier_foundation.security.trust_ledger import Ledger


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(reloading, "LOOK_EVERY", timedelta(seconds=0.01))


def write(path: Path, *names: str, say: str = "yes") -> Path:
    queues = "".join(f"  - {{name: {name}}}\n" for name in names)
    provider = f"providers: [{{module: provider-playbook, config: {{otherwise: {{say: '{say}'}}}}}}]\n"
    return put(path, f"---\nbundle: {{name: demo}}\n{provider}background_sessions:\n{queues}---\nAnswer.\n")


def put(path: Path, text: str) -> Path:
    """Write a file whole: no look finds a part of it."""
    path.with_suffix(".new").write_text(text)
    return path.with_suffix(".new").replace(path)


class Watched:
    """A bundle that runs, and what is told of its changes."""

    def __init__(self, up: Up, store: DurableStore) -> None:
        self.up = up
        self.told: asyncio.Queue[str] = asyncio.Queue()
        self.reloading = Reloading([up], store, self.load, self.told.put_nowait)
        self.loads = 0
        self.checks = False
        self.failure: Exception | None = None

    async def load(self, path: Path) -> Bundle:
        self.loads += 1
        if self.failure is not None:
            raise self.failure
        return await asyncio.to_thread(load_trusted, path, checks=self.checks)

    @property
    def names(self) -> list[str]:
        return sorted(row["name"] for row in self.up.manager.get_status().values())

    @property
    def states(self) -> set[tuple[str, str]]:
        return {(row["status"], row["reason"]) for row in self.up.manager.get_status().values()}


@asynccontextmanager
async def watched(path: Path, store: DurableStore, plugins: Plugins) -> AsyncIterator[Watched]:
    async with run_background([await load_bundle(str(path))], store, plugins) as [up]:
        watching = Watched(up, store)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(watching.reloading.run())
            yield watching
            task.cancel()


async def until_done(store: DurableStore, count: int) -> None:
    async with asyncio.timeout(120):
        while len(await store.deliveries(state="done")) < count:
            await asyncio.sleep(0.005)


async def test_what_a_changed_file_declares_runs(tmp_path: Path, store: DurableStore, plugins: Plugins) -> None:
    path = write(tmp_path / "bundle.md", "kept", "gone")
    async with watched(path, store, plugins) as each:
        write(path, "kept", "fresh")
        assert (await each.told.get()).startswith(f"{path} has changed: ")
        assert each.names == ["fresh", "kept"]
        await each.up.manager.fire("fresh", {})


async def test_events_that_wait_for_a_name_that_is_gone_are_told(
    tmp_path: Path, store: DurableStore, plugins: Plugins
) -> None:
    path = write(tmp_path / "bundle.md", "one")
    async with watched(path, store, plugins) as watching:
        await watching.up.manager.change("one", "paused")
        await watching.up.manager.fire("one")
        write(path, "two")
        assert await watching.told.get() == f"{path} has changed: one, two"
        assert await watching.told.get() == (
            f"1 event waits for demo/one (paused), which {path} no longer declares. Give it that name again to handle "
            "it, or discard it with: amplifier trigger drop demo/one"
        )


@pytest.mark.parametrize("failure", [StoreUnavailable, StoreConflict])
async def test_a_store_in_an_outage_ends_no_process_that_would_tell_what_waits(
    failure: type[StoreError], tmp_path: Path, plugins: Plugins
) -> None:
    class Failing(MemoryStore):
        async def delivery_counts(self, **wanted: Any) -> list[DeliveryCounts]:
            raise failure(tmp_path, "cannot be read now")

    path = write(tmp_path / "bundle.md", "one")
    async with watched(path, Failing(), plugins) as watching:
        await watching.reloading.tell_undeclared([watching.up])
        write(path, "two")
        assert await watching.told.get() == f"{path} has changed: one, two"
        await watching.up.manager.fire("two")


async def test_a_bundle_that_cannot_be_loaded_changes_nothing_and_is_told_once(
    tmp_path: Path, store: DurableStore, plugins: Plugins
) -> None:
    path = write(tmp_path / "bundle.md", "kept")
    async with watched(path, store, plugins) as each:
        put(path, "---\nbundle: {name: demo}\nbackground_sessions: [{nam: kept}]\n---\n")
        assert "is not taken up" in await each.told.get()
        assert each.names == ["kept"]
        write(path, "kept", "fresh")
        assert "has changed: " in await each.told.get()
        assert each.told.empty()
        assert each.names == ["fresh", "kept"]


@pytest.mark.parametrize("break_it", [Path.unlink, lambda path: put(path, "no bundle")])
async def test_a_bundle_that_is_broken_or_gone_shows_as_degraded_until_it_is_well(
    break_it: Callable[[Path], Any], tmp_path: Path, store: DurableStore, plugins: Plugins
) -> None:
    path = write(tmp_path / "bundle.md", "kept")
    async with watched(path, store, plugins) as each:
        break_it(path)
        before, _, reason = (await each.told.get()).partition(": ")
        assert before == f"{path} has changed and is not taken up"
        assert each.states == {("degraded", f"the changed bundle is not taken up: {reason}")}
        await each.up.manager.fire("kept", {})
        await until_done(store, 1)
        write(path, "kept")
        while await each.told.get() != f"{path} has changed: nothing that runs":
            pass  # a look may find the change while another one handles it, and tell it again
        assert each.states == {("running", "")}


async def test_a_folder_that_was_away_for_a_moment_is_well_when_it_is_back(
    tmp_path: Path, store: DurableStore, plugins: Plugins
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    path = write(folder / "bundle.md", "one")
    async with watched(path, store, plugins) as watching:
        watching.failure = FileNotFoundError(2, "No such file or directory", str(folder))  # of the working folder
        folder.rename(tmp_path / "away")
        while not (await watching.told.get()).endswith(f"{folder}: No such file or directory"):
            pass  # a load that was under way misses the bundle first
        (tmp_path / "away").rename(folder)
        watching.failure = None
        assert await watching.told.get() == f"{path} has changed: nothing that runs"
        assert watching.states == {("running", "")}


async def test_events_of_a_bundle_whose_trust_was_taken_back_wait(
    tmp_path: Path, store: DurableStore, plugins: Plugins
) -> None:
    path = write(tmp_path / "bundle.md", "kept")
    content = inspect_bundle(str(path), {})
    trust_content(content)
    async with watched(path, store, plugins) as each:
        each.checks = True
        Ledger().remove(str(path))
        assert (await each.told.get()).startswith(f"{path}: its events wait: {path} is not trusted")
        [(status, reason)] = each.states
        assert (status, reason.endswith(f"amplifier trust {tmp_path}")) == ("degraded", True)
        await each.up.manager.fire("kept", {})
        await each.up.manager.restart("kept")
        assert await each.up.manager.is_idle()  # what waits for a person ends no `up --once`
        trust_content(content)
        while not (await each.told.get()).startswith(f"{path} has changed: "):
            pass  # a look may find no trust while another one handles that, and tell it again
        assert each.states == {("running", "")}
        await until_done(store, 1)
        [handled] = await store.deliveries()
        assert handled.attempts == 1


async def test_a_file_that_only_looks_changed_stops_nothing(
    tmp_path: Path, store: DurableStore, plugins: Plugins
) -> None:
    path = write(tmp_path / "bundle.md", "kept")
    async with watched(path, store, plugins) as each:
        before = list(each.up.manager.get_status())
        for look in (lambda: None, each.reloading.ask, path.touch):
            loads = each.loads
            look()
            async with asyncio.timeout(120):
                while each.loads == loads:
                    await asyncio.sleep(0.002)
        assert list(each.up.manager.get_status()) == before
        assert each.told.empty()


async def test_what_was_accepted_is_handled_after_a_change(
    tmp_path: Path, store: DurableStore, plugins: Plugins
) -> None:
    path = write(tmp_path / "bundle.md", "kept")
    async with watched(path, store, plugins) as each:
        for number in range(5):
            await each.up.manager.fire("kept", {"n": number})
        write(path, "kept", say="something else")
        await each.told.get()
        await until_done(store, 5)
    sessions = {delivery.session_id for delivery in await store.deliveries()}
    assert len(sessions) == 5


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (FileNotFoundError(2, "No such file or directory", "/gone"), "/gone: No such file or directory"),
        (FileNotFoundError(2, "No such file or directory"), "FileNotFoundError: [Errno 2] No such file or directory"),
        (RuntimeError("a plugin"), "RuntimeError: a plugin"),
    ],
)
async def test_an_error_of_any_kind_changes_nothing_and_is_told_once(
    error: Exception, reason: str, tmp_path: Path, store: DurableStore, plugins: Plugins
) -> None:
    path = write(tmp_path / "bundle.md", "kept")
    async with watched(path, store, plugins) as each:
        each.failure = error
        write(path, "kept", "fresh")
        assert await each.told.get() == f"{path} has changed and is not taken up: {reason}"
        assert each.names == ["kept"]
        each.failure = None
        if not isinstance(error, OSError):
            path.touch()
        assert await each.told.get() == f"{path} has changed: fresh, kept"
        assert (each.names, each.told.empty()) == (["fresh", "kept"], True)
