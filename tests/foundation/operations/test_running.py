"""What runs is read, changed and woken through operations, as other processes ask for it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.errors import PluginError, SessionConflict, TriggerError
from amplifier_core.hookspecs import hookimpl
from amplifier_foundation import Activity, load_bundle
from amplifier_foundation.background.asking import NoSuchBackgroundSession, NothingRuns
from amplifier_foundation.background.up import Control, run_background
from amplifier_foundation.operations.acting import Actor, read_acts
from amplifier_foundation.operations.explaining import explain, link_rows
from amplifier_foundation.operations.firing import Declaration, find_declared, fire
from amplifier_foundation.operations.history import Following
from amplifier_foundation.operations.overview import ask_processes, read_overview
from amplifier_foundation.operations.running import change_background_session, list_all_running, wake
from amplifier_foundation.operations.simulating import plan_timers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import DurableStore
    from amplifier_core.triggers import TriggerEvent

ANN = Actor("ann", "dashboard")
BUNDLE = """---
bundle: {name: shop}
providers: [{module: provider-playbook, config: {otherwise: {say: "ok"}}}]
background_sessions:
  - {name: orders, instruction_template: "order {what}"}
  - {name: night, instruction: "count", triggers: [{module: trigger-timer, config: {cron: "0 3 * * *"}}]}
---
"""


@pytest.fixture
def folders(home: Path, tmp_path: Path) -> list[Path]:
    """Two projects with a bundle of the same name."""
    made = [(tmp_path / name).resolve() for name in ("east", "west")]
    for folder in made:
        folder.mkdir()
        (folder / "bundle.md").write_text(BUNDLE, encoding="utf-8")
    return made


class Seen:
    """What background sessions did."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self._changed = asyncio.Event()

    def __call__(self, activity: Activity) -> None:
        self.kinds.append(activity.kind)
        self._changed.set()

    async def until(self, kind: str) -> None:
        async with asyncio.timeout(120):
            while kind not in self.kinds:
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def running(folders: list[Path], store: DurableStore, plugins: Plugins) -> AsyncIterator[Seen]:
    bundles, seen = [await load_bundle(str(folder)) for folder in folders], Seen()
    async with run_background(bundles, store, plugins, observer=seen, control=Control()):
        yield seen


async def states(store: DurableStore) -> dict[tuple[str, str], str]:
    overview = await read_overview(store, await asyncio.to_thread(ask_processes))
    return {(row["project"], row["background_session"]): row["state"] for row in overview.background_sessions}


async def test_of_two_projects_one_is_paused_and_the_act_is_recorded(
    folders: list[Path], store: DurableStore, plugins: Plugins
) -> None:
    east, west = map(str, folders)
    async with running(folders, store, plugins):
        changed = await change_background_session(store, ANN, "pause", "shop/orders", project=west)
        assert changed == [(west, "shop/orders")]
        assert {key: state for key, state in (await states(store)).items() if key[1] == "orders"} == {
            (east, "orders"): "running",
            (west, "orders"): "paused",
        }
        with pytest.raises(NoSuchBackgroundSession):
            await change_background_session(store, ANN, "pause", "absent")
    with pytest.raises(NothingRuns):
        await change_background_session(store, ANN, "resume", "orders")
    [act] = await read_acts(store, "orders")
    assert (act.data["act"], act.data["by"], act.project, act.data["queue"]) == (
        "background_session.pause",
        "ann",
        west,
        "shop/orders",
    )


async def test_an_event_by_hand_is_told_with_who_fired_it(
    folders: list[Path], store: DurableStore, plugins: Plugins
) -> None:
    east = str(folders[0])
    async with running(folders, store, plugins):
        pass  # from now on, the store knows the bundles
    async with running(folders[:1], store, plugins) as seen:
        declared = await find_declared(store, plugins, "orders", project=east)
        assert (declared.bundle.name, declared.project) == ("shop", east)
        delivery = await fire(store, plugins, ANN, declared, "orders", {"what": "apples"})
        assert delivery is not None
        assert await asyncio.to_thread(wake, east, "orders")
        await seen.until("completed")
        following = await Following.of(store, "orders", await asyncio.to_thread(list_all_running), east)
        told = [each for each in await following.read_new(10) if each.kind in ("accepted", "acted", "completed")]
    assert [each.kind for each in sorted(told, key=lambda each: each.kind)] == ["accepted", "acted", "completed"]
    [act] = [each for each in told if each.kind == "acted"]
    assert (act.text, act.project, act.background_session) == ("trigger fire by ann (dashboard)", east, "orders")

    found = await explain(store, delivery.delivery_id)
    assert found.listeners is None
    acts = {row["kind"]: [each["by"] for each in row.get("acts", ())] for row in link_rows(found, str)[:2]}
    assert acts == {"event": [], "delivery": ["ann"]}


async def test_a_plugin_may_skip_an_event_by_hand_or_fail(
    folders: list[Path], store: DurableStore, plugins: Plugins
) -> None:
    class Quiet:
        @hookimpl
        async def amplifier_before_trigger(self, event: TriggerEvent) -> None:
            if event.data["what"] == "apples":
                raise TriggerError("quiet", "not at night")
            raise KeyError("hours")

    plugins.register(Quiet(), "quiet")
    declared = Declaration(await load_bundle(str(folders[0])), str(folders[0]))
    delivery = await fire(store, plugins, ANN, declared, "orders", {"what": "apples"})
    assert delivery is not None
    assert (delivery.state, delivery.reason) == ("refused", "quiet: not at night")
    with pytest.raises(PluginError, match="quiet"):
        await fire(store, plugins, ANN, declared, "orders", {"what": "pears"})
    assert len(await store.deliveries()) == 1


async def test_a_name_of_several_projects_or_of_none_is_refused(
    folders: list[Path], store: DurableStore, plugins: Plugins
) -> None:
    async with running(folders, store, plugins):
        with pytest.raises(SessionConflict, match="several background sessions"):
            await find_declared(store, plugins, "orders")
        with pytest.raises(NoSuchBackgroundSession, match="did you mean 'orders'"):
            await find_declared(store, plugins, "order")


async def test_the_fires_of_timers_are_planned_up_to_the_limit(
    folders: list[Path], store: DurableStore, plugins: Plugins
) -> None:
    bundle: Any = await load_bundle(str(folders[0]))
    start = datetime(2026, 3, 1, tzinfo=UTC)
    [plan] = await plan_timers(bundle, plugins, store, start, start + timedelta(days=5), 2)
    assert [row["at"].isoformat() for row in plan.rows()] == ["2026-03-01T03:00:00+00:00", "2026-03-02T03:00:00+00:00"]
    assert (plan.more, plan.counted, plan.declared.background_session) == (3, True, "night")
