"""What `amplifier ps` shows of background sessions that run, and of what waits when none does."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from amplifier_core.errors import SpawnRefused
from amplifier_core.hookspecs import hookimpl
from amplifier_foundation.cli import exits, invoke
from amplifier_foundation.cli.view import PlainLines, RunView
from amplifier_foundation.documents.times import format_time
from amplifier_foundation.operations import columns
from amplifier_foundation.operations.columns import shorten_home
from amplifier_foundation.paths import project_of
from amplifier_foundation.sessions.lock import killed_owners, owner_lock
from amplifier_storage_sqlite.store import SqliteStore
from tests import forks

pytestmark = pytest.mark.slow


def rows(out: str) -> dict[str, Any]:
    envelope = json.loads(out)
    assert envelope["schema"] == "amplifier/ps/3"
    return {row["background_session"]: row for row in envelope["data"]["background_sessions"]}


async def test_each_background_session_is_shown_with_its_state_and_figures(running: Any, say: Any) -> None:
    for name, data in (("asked", {"what": "a"}), ("broken", {}), ("careful", {"n": 1}), ("holding", {})):
        await running.up.manager.fire(name, data)
    await running.up.manager.fire("holding", {})
    for name, kind in (("asked", "completed"), ("broken", "dead"), ("careful", "refused"), ("holding", "session")):
        await running.until(name, kind)

    code, out, err = await say("ps", "--json")
    assert code == exits.OK
    found = rows(out)
    assert list(found) == ["asked", "broken", "careful", "holding"]
    assert {row["state"] for row in found.values()} == {"running"}
    assert {row["pid"] for row in found.values()} == {os.getpid()}
    assert {row["bundle"] for row in found.values()} == {"echo"}
    figures = {name: [row[key] for key in ("waiting", "done", "dead", "dropped")] for name, row in found.items()}
    assert figures == {"asked": [0, 1, 0, 0], "broken": [0, 0, 1, 0], "careful": [0, 0, 0, 1], "holding": [1, 0, 0, 0]}
    [work] = found["holding"]["at_work"]
    assert work["session_id"].startswith("holding-")
    assert work["since"].endswith("Z")

    code, out, err = await say("ps")
    [line] = [line for line in out.splitlines() if line.startswith("echo/holding")]
    assert line.split()[:5] == ["echo/holding", "running", "1", work["session_id"], "since"]
    assert f"Process {os.getpid()} since" in err


async def test_ps_and_trigger_list_count_an_event_at_work_alike(running: Any, say: Any) -> None:
    await running.up.manager.fire("holding", {})
    await running.until("holding", "session")
    await running.up.manager.fire("holding", {})
    _, out, _ = await say("ps", "--json")
    row = rows(out)["holding"]
    assert (row["waiting"], len(row["at_work"])) == (1, 1)
    _, out, _ = await say("trigger", "list", "--json")
    [listed] = json.loads(out)["data"]
    assert (listed["waiting"], listed["at_work"]) == (1, 1)
    _, out, _ = await say("trigger", "list")
    assert "WAITING  AT WORK  LAG" in out


async def test_a_background_session_that_failed_is_shown_with_its_reason(running: Any, say: Any) -> None:
    [asked] = [each for each in running.up.manager._sessions.values() if each.config.name == "asked"]
    running.up.manager._engine.set_status(asked, "failed", "its trigger\nis broken")
    _, out, err = await say("ps")
    assert "echo/asked          failed: its trigger is broken" in out
    assert "its trigger" not in err
    running.up.manager._engine.set_status(asked, "failed", f"its trigger {'x' * 80} is broken. Mend it")
    _, out, err = await say("ps")
    assert f"echo/asked: its trigger {'x' * 80} is broken. Mend it\n" in err


async def test_a_postponed_event_is_shown_with_its_time_and_reason_wherever_people_look(running: Any, say: Any) -> None:
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=8)

    class QuietHours:
        @hookimpl
        async def amplifier_before_spawn(self, request: Any) -> None:
            raise SpawnRefused(str(request.parent_id), "quiet hours", not_before=until)

    running.up.manager._engine.plugins.register(QuietHours(), "quiet-hours")
    out = io.StringIO()
    view = RunView(PlainLines(out))
    running.up.manager._engine.observers.append(view)
    await running.up.manager.fire("asked", {"what": "a"})
    await running.until("asked", "postponed")

    when = format_time(until)
    _, listed, _ = await say("ps", "--json")
    row = rows(listed)["asked"]
    assert (row["postponed"], row["postponed_until"], row["postponed_reason"]) == (1, when, "quiet hours")
    _, listed, _ = await say("ps")
    assert f" 1 until {when}: quiet hours " in listed
    _, lines, _ = await say("logs", "asked")
    assert f"↻ asked        postponed: quiet hours; until {when}\n" in lines
    said = next(line for line in out.getvalue().splitlines() if "postponed until" in line)
    assert f"quiet hours; postponed until {when}. See: amplifier why " in said
    code, told, _ = await say("why", said.rpartition(" ")[2])
    assert code == exits.OK
    assert f"waiting: postponed: quiet hours, due {when}" in " ".join(told.split())


DENIED = """---
bundle: {name: shut}
providers: [{module: provider-shut, source: ./shut.py}]
background_sessions: [{name: asked}]
---
"""
SHUT = """
from amplifier_core.llm_errors import AccessDeniedError

class Shut:
    name = "shut"
    def get_info(self):
        from amplifier_core import ProviderInfo
        return ProviderInfo(id="shut", display_name="Shut")
    async def list_models(self):
        return []
    def parse_tool_calls(self, response):
        return []
    async def complete(self, request, **options):
        raise AccessDeniedError("not for you", provider="shut", status_code=403)

async def mount(coordinator, config):
    await coordinator.mount("providers", Shut(), name="shut")
"""


def test_an_event_that_is_refused_for_ever_is_shown_with_the_command_that_discards_it(
    project: Path, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "bundle.md").write_text(DENIED, encoding="utf-8")
    (project / "shut.py").write_text(SHUT, encoding="utf-8")
    assert invoke(["trust", "--yes"]) == exits.OK
    assert invoke(["trigger", "fire", "asked"]) == exits.OK
    with forks.Popen(["up"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = next(each for each in process.stdout if "postponed until" in each)
        found = re.search(r"See: amplifier why (\w{8}); discard it: amplifier (trigger drop \1)$", line)
        assert found is not None, line
        capsys.readouterr()
        assert invoke(["ps"]) == exits.FAILED
        said = "shut/asked: discard all that waits for it with: amplifier trigger drop shut/asked"
        assert f"{said}\n" in capsys.readouterr().err
        monkeypatch.chdir(home)
        assert invoke(["ps"]) == exits.FAILED
        assert f"{said} --folder {shlex.quote(str(project))}\n" in capsys.readouterr().err
        assert invoke(["why", found[1]]) == exits.OK
        assert f"Discard what is postponed: amplifier {found[2]}\n" in capsys.readouterr().out
        assert invoke(found[2].split()) == exits.OK
        process.terminate()
    capsys.readouterr()
    assert invoke(["why", found[1]]) == exits.OK
    assert "is postponed:" not in capsys.readouterr().out


def test_what_waits_is_shown_when_nothing_runs(background: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["trigger", "fire", "asked"]) == exits.OK
    capsys.readouterr()
    assert invoke(["ps", "--json"]) == exits.OK
    out, err = capsys.readouterr()
    assert json.loads(out)["data"]["processes"] == []
    [row] = rows(out).values()
    assert (row["background_session"], row["state"], row["pid"], row["waiting"]) == ("asked", "not running", None, 1)
    assert invoke(["ps"]) == exits.OK
    out, err = capsys.readouterr()
    assert "echo/asked          not running  1" in out
    assert err == "Nothing runs. Waiting events are handled by: amplifier up BUNDLE\n"


@pytest.mark.parametrize(
    ("before", "after"), [("name: echo", "name: other"), ("name: asked", "name: renamed")], ids=["bundle", "session"]
)
def test_what_waits_for_a_name_that_is_gone_is_told_until_it_is_discarded(
    background: Path, capsys: pytest.CaptureFixture[str], before: str, after: str
) -> None:
    def say(*arguments: str) -> str:
        assert invoke(arguments) == exits.OK
        return "".join(capsys.readouterr())

    assert invoke(["-q", "up", "--once"]) == exits.OK
    say("trigger", "fire", "asked")
    say("trigger", "fire", "asked", "--data", '{"n": 2}')
    background.write_text(background.read_text().replace(before, after))
    lost = (
        f"2 events wait for echo/asked, which {background} no longer declares. Give it that name again to handle them, "
        "or discard them with: amplifier trigger drop echo/asked\n"
    )
    out = say("ps")
    assert lost in out
    assert "Nothing runs. Start with: amplifier up BUNDLE" in out
    assert lost in say("trigger", "list")
    assert lost in say("up", "--once")
    assert say("trigger", "drop", "echo/asked").count("is skipped: dropped by hand") == 2
    assert invoke(["trigger", "drop", "echo/asked"]) == exits.NOT_FOUND
    capsys.readouterr()
    assert say("ps") == "Nothing runs. Start with: amplifier up BUNDLE\n"


def test_what_waits_in_a_folder_that_has_moved_is_told_until_it_is_back_or_discarded(
    background: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def say(*arguments: str) -> str:
        assert invoke(arguments) == exits.OK
        return "".join(capsys.readouterr())

    old, new = background.parent, background.parent.with_name("new place")
    say("trust", "--yes")
    say("trigger", "fire", "asked")
    say("trigger", "fire", "asked")
    old.rename(new)
    monkeypatch.chdir(new)
    say("trust", "--yes")
    stranded = (
        f"2 events wait for echo/asked of {old}, a folder that is gone. Bring it back to handle them, or discard them "
        f"with: amplifier trigger drop echo/asked --folder {shlex.quote(str(old))}\n"
    )
    for command in (["ps"], ["trigger", "list"], ["up", "--once"]):
        assert stranded in say(*command), command
    new.rename(old)
    monkeypatch.chdir(old)
    assert "a folder that is gone" not in say("ps") + say("trigger", "list")
    old.rename(new)
    monkeypatch.chdir(new)
    assert say(*shlex.split(stranded)[-5:]).count("is skipped: dropped by hand") == 2
    assert "a folder that is gone" not in say("ps") + say("trigger", "list") + say("up", "--once")


def test_events_of_another_bundle_of_the_folder_are_not_called_undeclared(
    background: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other, twin = (background.with_name(name) for name in ("other.md", "twin.md"))
    other.write_text(background.read_text().replace("name: echo", "name: other"))
    twin.write_text(background.read_text().replace("name: asked", "name: night"))
    assert invoke(["-q", "up", "--once"]) == exits.OK
    assert invoke(["trigger", "fire", "--bundle", "other.md", "asked"]) == exits.OK  # nobody has run it
    assert invoke(["-q", "up", "--once", "twin.md"]) == exits.OK
    assert invoke(["trigger", "fire", "--bundle", "twin.md", "night"]) == exits.OK
    capsys.readouterr()
    for command in (["ps"], ["trigger", "list"], ["trigger", "list", "--bundle", "twin.md"], ["up", "--once"]):
        assert invoke(command) == exits.OK
        assert "no longer declares" not in "".join(capsys.readouterr()), command


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["never ran", "json"])
def test_no_bundle_is_loaded_where_that_tells_nothing(background: Path, options: list[str]) -> None:
    if options:
        assert invoke(["-q", "up", "--once"]) == exits.OK
    assert invoke(["trigger", "fire", "asked"]) == exits.OK
    code = (
        "import sys; from amplifier_foundation.cli import invoke\n"
        "assert invoke(['ps', *sys.argv[1:]]) == 0\n"
        "assert not [name for name in sys.modules if name.startswith('amplifier_foundation.bundle.')]"
    )
    done = subprocess.run([sys.executable, "-c", code, *options], capture_output=True, text=True, check=False)
    assert (done.returncode, "asked" in done.stdout) == (0, True), done.stderr


@pytest.mark.parametrize(("seconds", "code"), [(0, exits.OK), (120, exits.FAILED)], ids=["it starts", "it hangs"])
def test_a_process_that_does_not_answer_is_named(
    background: Path, home: Path, capsys: pytest.CaptureFixture[str], seconds: int, code: int
) -> None:
    assert invoke(["trigger", "fire", "asked"]) == exits.OK
    since = (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()
    facts = {"bundles": ["echo"], "projects": [project_of()], "socket": str(home / "none.sock"), "since": since}
    with owner_lock(facts):
        assert invoke(["ps"]) == code
    out, err = capsys.readouterr()
    assert f"process {os.getpid()} does not answer" in err
    assert "echo/asked          unknown  1" in out


def test_what_a_process_that_does_not_answer_has_worked_at_is_shown_with_nothing_to_do(
    background: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["trigger", "fire", "asked", "--data", '{"what": "hi"}']) == exits.OK
    assert invoke(["-q", "up", "--once"]) == exits.OK
    capsys.readouterr()
    with owner_lock({"bundles": ["echo"], "projects": [project_of()], "socket": str(home / "none.sock")}):
        assert invoke(["ps", "--json"]) == exits.OK
    [row] = json.loads(capsys.readouterr().out)["data"]["background_sessions"]
    assert (row["background_session"], row["state"], row["done"]) == ("asked", "unknown", 1)


HOLDS = """
import os, signal, sys
from amplifier_foundation.sessions.lock import owner_lock
with owner_lock({"bundles": ["echo"], "projects": [sys.argv[1]]}):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_is_told_until_it_is_started_again_or_forgotten(
    background: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project, other = project_of(), "/another/folder"
    for folder in (project, other):
        subprocess.run([sys.executable, "-c", HOLDS, folder], check=False)
    assert invoke(["ps"]) == exits.FAILED
    err = capsys.readouterr().err
    assert [line.partition(" was killed. ")[2] != "" for line in err.splitlines()] == [True, True]
    assert f"of {shorten_home(project)} was killed. Start it again with: amplifier up; or forget it with: " in err
    invoke(["ps", "--json"])
    told = json.loads(capsys.readouterr().out)["data"]
    assert (told["processes"], sorted(each["projects"] for each in told["killed"])) == (
        [],
        sorted([[project], [other]]),
    )
    assert invoke(["stop", "--all"]) == exits.OK
    assert "had been killed." in capsys.readouterr().err
    assert [each["projects"] for each in killed_owners()] == [[other]]
    with owner_lock({"bundles": ["echo"], "projects": [other], "socket": ""}):
        assert killed_owners() == []
    assert invoke(["ps"]) == exits.OK


def counting(name: str, asked: list[str]) -> Callable[..., Any]:
    """Return the store's method `name`, which notes that it was called."""
    real = getattr(SqliteStore, name)

    def counted(*arguments: Any, **options: Any) -> Any:
        asked.append(name)
        return real(*arguments, **options)

    return counted


async def test_the_figures_cost_the_same_queries_however_many_deliveries_there_are(
    running: Any, say: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    for name in ("delivery_counts", "deliveries", "get", "sessions", "read"):
        monkeypatch.setattr(SqliteStore, name, counting(name, asked))
    queries = []
    for number in range(1, 4):
        await running.up.manager.fire("broken", {})
        await running.until("broken", "dead", count=number)
        asked.clear()
        await say("ps")
        queries.append(
            asked.count("delivery_counts") + asked.count("get") + asked.count("sessions") + asked.count("read")
        )
    assert queries == [1, 1, 1]


async def test_one_row_of_one_table_adds_a_column_to_ps_to_up_and_to_json(
    running: Any, say: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = columns.Column("refused", "REFUSED", counts=("refused",), style="red")
    monkeypatch.setattr(columns, "COLUMNS", (*columns.COLUMNS, refused))
    await running.up.manager.fire("careful", {"n": 1})
    await running.until("careful", "refused")
    _, out, _ = await say("ps", "--json")
    assert [row["refused"] for row in rows(out).values()] == [0, 0, 1, 0]
    _, out, _ = await say("ps")
    heading, *lines = out.splitlines()
    assert heading.endswith("REFUSED")
    assert lines[2].endswith(" 1")

    view = RunView(Console(file=io.StringIO(), force_terminal=True, width=200, legacy_windows=False))
    view.expect(running.up.bundle, running.up.project)
    view.show_counts(await running.up.manager._engine.store.delivery_counts(), {})
    assert "refused" in drawn(view)[0]
    [careful] = [line for line in drawn(view) if "careful" in line]
    assert careful.split()[-2:] == ["1", "-"]


def drawn(view: RunView) -> list[str]:
    """Return the lines of the live table."""
    out = io.StringIO()
    Console(file=out, width=200).print(view._table())
    return [line for line in out.getvalue().splitlines() if line.strip()]


def test_a_cause_of_the_state_is_not_told_again_as_that_of_the_postponed_events() -> None:
    cause = f"its budget is spent {'x' * 80}"
    row = columns.new_row("/p", "echo/asked", state="degraded", reason=cause, postponed=1, postponed_reason=cause)
    row["postponed_until"] = "2030-01-01T00:00:00Z"
    [column] = [column for column in columns.COLUMNS if column.key == "postponed"]
    assert columns.cell(column, row, str) == "1 until 2030-01-01T00:00:00Z"
    assert columns.cut_causes([row]) == [f"echo/asked: {cause}"]
