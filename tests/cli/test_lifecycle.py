"""`amplifier start`, `restart`, `pause` and `resume`."""

from __future__ import annotations

import asyncio
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation import load_bundle
from amplifier_foundation.background import store_upkeep
from amplifier_foundation.background.lifecycle import read_wish, save_wish
from amplifier_foundation.cli import exits, invoke
from amplifier_foundation.cli.view import PlainLines, RunView
from amplifier_foundation.paths import project_of
from amplifier_storage_sqlite import open_sqlite

BUNDLE = """---
bundle: {name: echo}
background_sessions: [{name: asked, instruction_template: x, triggers: [{module: trigger-manual}]}]
---
"""


def statuses(running: Any) -> dict[str, str]:
    return {row["name"]: row["status"] for row in running.up.manager.get_status().values()}


async def test_the_life_of_a_background_session(running: Any, say: Any) -> None:
    for command, said, status in (
        ("pause", "asked is paused", "paused"),
        ("resume", "asked is resumed", "running"),
        ("stop", "asked is stopped", "stopped"),
        ("start", "asked runs", "running"),
        ("restart", "asked runs", "running"),
    ):
        code, out, err = await say(command, "asked")
        assert (code, out) == (exits.OK, "")
        assert err.startswith(f"echo/{said}\n")
        assert statuses(running)["asked"] == status


async def test_a_stopped_one_is_listed_and_says_how_to_start_it(running: Any, say: Any) -> None:
    _, _, err = await say("stop", "asked")
    assert "It stays stopped until: amplifier start asked" in err
    code, out, _ = await say("ps", "--json")
    [row] = [each for each in json.loads(out)["data"]["background_sessions"] if each["background_session"] == "asked"]
    assert (code, row["state"], row["reason"]) == (exits.OK, "stopped", "start it with: amplifier start asked")


@pytest.mark.parametrize("command", ["pause", "resume"])
async def test_a_stopped_one_is_neither_paused_nor_resumed(command: str, running: Any, say: Any) -> None:
    await say("stop", "asked")
    code, _, err = await say(command, "asked")
    assert (code, "asked is stopped. Start it with: amplifier start asked" in err) == (exits.CONFLICT, True)
    assert statuses(running)["asked"] == "stopped"
    assert (await say("start", "asked"))[0] == exits.OK


async def test_the_address_of_a_webhook_is_told_by_up_and_by_trigger_list(running: Any, say: Any) -> None:
    out = io.StringIO()
    running.up.manager._engine.observers.append(RunView(PlainLines(out)))
    bundle = Path("bundle.md")
    hooked = """  - {name: hooked, triggers: [{module: trigger-webhook, config: {port: 0}}]}
  - {name: fixed, start_on_parent_start: false, triggers: [{module: trigger-webhook, config: {path: /news}}]}
---
"""
    bundle.write_text(bundle.read_text().removesuffix("---\n") + hooked)
    await running.up.reconcile(await load_bundle(str(bundle)))
    await running.until("hooked", "armed")
    armed = r"◦ hooked       trigger-webhook is armed at http://127\.0\.0\.1:[1-9]\d+/hooked\n"
    assert re.search(armed, out.getvalue())
    _, listed, _ = await say("trigger", "list", "--json")
    urls = {row["background_session"]: row["url"] for row in json.loads(listed)["data"]}
    assert urls == {"hooked": None, "fixed": "http://127.0.0.1:8787/news"}  # the system has chosen the port of one
    _, listed, _ = await say("trigger", "list")
    assert "trigger-webhook at http://127.0.0.1:8787/news" in listed


async def test_a_stopped_timer_has_no_next_fire(running: Any, say: Any) -> None:
    bundle = Path("bundle.md")
    timer = "  - {name: ticking, triggers: [{module: trigger-timer}]}\n---\n"
    bundle.write_text(bundle.read_text().removesuffix("---\n") + timer)
    await running.up.reconcile(await load_bundle(str(bundle)))

    async def next_fire() -> Any:
        _, out, _ = await say("trigger", "list", "--json")
        return next(row for row in json.loads(out)["data"] if row["background_session"] == "ticking")["next_fire"]

    assert await next_fire()
    await say("stop", "ticking")
    assert not await next_fire()
    await say("start", "ticking")
    assert await next_fire()


def test_once_ends_beside_one_that_is_stopped(background: Path, amplifier: Any) -> None:
    assert invoke(["trigger", "fire", "asked", "--data", '{"what": "a"}']) == exits.OK
    assert invoke(["stop", "asked"]) == exits.OK
    assert amplifier("up", "--once").returncode == exits.OK
    assert invoke(["start", "asked"]) == exits.OK
    assert "You said: say a" in amplifier("up", "--once").stdout


@pytest.mark.parametrize("state", ["degraded", "failed"])
async def test_ps_ends_with_1_while_one_does_not_work(state: str, running: Any, say: Any) -> None:
    manager = running.up.manager
    manager._engine.report_problem(manager._find("asked"), "trigger", state, "its folder is gone")
    code, out, _ = await say("ps")
    assert (code, f"{state}: its folder is gone" in out) == (exits.FAILED, True)
    manager._engine.clear_problem(manager._find("asked"), "trigger")
    assert (await say("ps"))[0] == exits.OK


@pytest.mark.parametrize("command", ["start", "restart", "pause", "resume"])
def test_nothing_runs(command: str, home: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke([command, "asked"]) == exits.NOT_FOUND
    assert "nothing runs. Start something with: amplifier up BUNDLE" in capsys.readouterr().err


def test_one_of_the_bundle_here_is_paused_before_it_starts(
    project: Path, home: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "bundle.md").write_text(BUNDLE)
    assert invoke(["pause", "nobody"]) == exits.NOT_FOUND
    assert "nothing runs" in capsys.readouterr().err
    assert invoke(["pause", "asked"]) == exits.OK
    assert capsys.readouterr().err == "echo/asked is paused\n"
    store = open_sqlite({"folder": home})
    assert asyncio.run(read_wish(store, project_of(project), "echo/asked")) == "paused"
    assert invoke(["trigger", "list"]) == exits.OK
    assert "\nasked (paused) " in capsys.readouterr().out
    assert invoke(["resume", "asked"]) == exits.OK
    assert invoke(["trigger", "list"]) == exits.OK
    assert "\nasked  " in capsys.readouterr().out
    capsys.readouterr()
    assert asyncio.run(read_wish(store, project_of(project), "echo/asked")) == "running"
    asyncio.run(save_wish(store, project_of(project), "echo/asked", "stopped"))
    for command in ("pause", "resume"):
        assert invoke([command, "asked"]) == exits.CONFLICT
        assert "echo/asked is stopped" in capsys.readouterr().err
    asyncio.run(store.close())


@pytest.fixture
def frequent_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the process look at its store all the time."""
    monkeypatch.setattr(store_upkeep, "LOOK_EVERY", 0.01)


async def test_a_store_damaged_meanwhile_is_in_the_status_of_what_runs(
    frequent_looks: None, running: Any, home: Path
) -> None:
    await running.up.manager.fire("asked", {"what": "a"})
    await running.until("asked", "completed")
    running.damage_store(home)
    async with asyncio.timeout(120):
        while set(statuses(running).values()) != {"degraded"}:
            await asyncio.sleep(0.01)
    reasons = {row["reason"] for row in running.up.manager.get_status().values()}
    assert all("amplifier.db: is damaged" in reason and "amplifier store salvage" in reason for reason in reasons)


async def test_ps_shows_what_runs_also_when_the_store_cannot_be_read(running: Any, say: Any, home: Path) -> None:
    await running.up.manager.fire("asked", {"what": "a"})
    await running.until("asked", "completed")
    running.damage_store(home)
    code, out, err = await say("ps", "--json")
    rows = json.loads(out)["data"]["background_sessions"]
    assert [row["background_session"] for row in rows] == ["asked", "broken", "careful", "holding"]
    assert {row["state"] for row in rows} == {"degraded"}
    assert all("amplifier.db: is damaged" in row["reason"] for row in rows)
    assert {(row["waiting"], row["done"], row["dead"]) for row in rows} == {(None, None, None)}
    assert (code, "amplifier.db: is damaged" in err) == (exits.FAILED, True)
    code, out, _ = await say("ps")
    assert (code, "degraded: " in out) == (exits.FAILED, True)
