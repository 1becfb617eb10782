"""`amplifier trigger fire` without a bundle: the background session is found by its name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import load_plugins
from amplifier_foundation import load_bundle, open_inbox
from amplifier_foundation.background.up import Control, run_background
from amplifier_foundation.cli import exits, invoke

pytestmark = pytest.mark.slow


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return folder


async def test_a_running_background_session_is_fired_from_any_folder(
    running: Any, say: Any, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(elsewhere)
    for name in ("asked", "echo/asked"):
        code, _, err = await say("trigger", "fire", name, "--data", '{"what": "hi"}')
        assert (code, err) == (exits.OK, f"{name}: accepted\n")
    await running.until("asked", "completed", count=2)


async def test_trigger_list_finds_the_bundle_that_runs_here_under_another_name(background: Path, say: Any) -> None:
    other = background.rename(background.with_name("other.md"))
    code, _, err = await say("trigger", "list")
    assert (code, "no bundle.md in this project" in err) == (exits.NOT_FOUND, True)
    plugins = load_plugins(environ={})
    store, control = open_inbox(plugins), Control()
    async with run_background([await load_bundle(str(other))], store, plugins, control=control) as [up]:
        await up.manager.fire("asked", {"what": "hi"})
        await say("trigger", "fire", "careful", "--data", '{"n": 2}')
        code, out, err = await say("trigger", "list", "--json")
        assert (code, err) == (exits.OK, "")
        listed = [row["background_session"] for row in json.loads(out)["data"]]
        assert listed == ["asked", "careful"]
    await store.close()


async def test_its_condition_counts_as_in_its_own_folder(
    running: Any, say: Any, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(elsewhere)
    code, _, err = await say("trigger", "fire", "careful", "--data", '{"n": 1}')
    assert code == exits.FAILED
    assert "careful: refused: " in err


async def test_while_the_file_is_broken_the_event_is_for_the_bundle_that_runs(
    running: Any, say: Any, background: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    background.write_text("---\n")
    for folder in (background.parent, elsewhere):
        monkeypatch.chdir(folder)
        code, _, err = await say("trigger", "fire", "asked", "--data", '{"what": "hi"}')
        assert (code, err) == (exits.OK, "asked: accepted\n")
        code, _, err = await say("trigger", "fire", "careful", "--data", '{"n": 1}')
        assert (code, "careful: refused: its 'if' does not hold" in err) == (exits.FAILED, True)
    await running.until("asked", "completed", count=2)


async def test_a_broken_bundle_is_told_while_another_file_of_its_folder_runs(background: Path, say: Any) -> None:
    other = background.with_name("other.md")
    other.write_text(background.read_text().replace("name: echo", "name: other"))
    background.write_text("---\n")
    plugins = load_plugins(environ={})
    store = open_inbox(plugins)
    async with run_background([await load_bundle(str(other))], store, plugins, control=Control()):
        code, _, err = await say("trigger", "fire", "asked")
        assert (code, "bundle.md:1:1: error[AMP202]" in err) == (exits.USAGE, True)
        assert (await say("trigger", "fire", "asked", "-b", "other.md"))[0] == exits.OK
    code, _, err = await say("trigger", "fire", "asked")
    assert (code, "bundle.md:1:1: error[AMP202]" in err) == (exits.USAGE, True)
    await store.close()


def test_a_broken_bundle_that_does_not_run_is_told_and_no_other_one_is_fired(
    background: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(background.parent)
    assert invoke(["trigger", "fire", "asked", "--data", '{"what": "one"}']) == exits.OK
    assert invoke(["-q", "up", "--once"]) == exits.OK
    capsys.readouterr()
    elsewhere.joinpath("bundle.md").write_text("---\n")
    monkeypatch.chdir(elsewhere)
    assert invoke(["trigger", "fire", "asked"]) == exits.USAGE
    background.write_text("---\n")
    monkeypatch.chdir(background.parent)
    assert invoke(["trigger", "fire", "asked"]) == exits.USAGE
    assert capsys.readouterr().err.count("AMP202") == 2


async def test_an_event_for_a_name_that_does_not_run_yet_is_said_to_wait(
    running: Any, say: Any, background: Path
) -> None:
    background.write_text(background.read_text().replace("name: echo", "name: other"))
    code, _, err = await say("trigger", "fire", "asked")
    assert (code, err) == (exits.OK, "asked: accepted; it waits for the next: amplifier up\n")


async def test_an_unknown_name_is_answered_with_those_that_run(
    running: Any, say: Any, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(elsewhere)
    code, _, err = await say("trigger", "fire", "askd")
    assert code == exits.NOT_FOUND
    assert "did you mean 'asked'?" in err


def test_one_that_has_run_is_fired_for_the_next_start(
    background: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(background.parent)
    assert invoke(["trigger", "fire", "asked", "--data", '{"what": "one"}']) == exits.OK
    assert invoke(["-q", "up", "--once"]) == exits.OK
    monkeypatch.chdir(elsewhere)
    assert invoke(["trigger", "fire", "asked", "--data", '{"what": "two"}']) == exits.OK
    capsys.readouterr()
    assert invoke(["ps", "--json"]) == exits.OK
    [row] = json.loads(capsys.readouterr().out)["data"]["background_sessions"]
    assert (row["queue"], row["project"], row["waiting"]) == ("echo/asked", str(background.parent), 1)
