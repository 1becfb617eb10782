"""What `amplifier trigger` says of the future, on real timers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.cli import exits, invoke
from tests.core.conftest import Site, site

__all__ = ["site"]

BUNDLE = """---
bundle: {name: times}
background_sessions:
  - name: report
    triggers:
      - {module: trigger-timer, config: {cron: "30 2 * * *", timezone: Europe/Berlin}}
      - {module: trigger-timer, name: eve, config: {at: 2026-03-29T12:00:00+02:00}}
  - name: tick
    triggers: [{module: trigger-timer, config: {interval: 1ms}}]
  - name: files
    triggers: [{module: trigger-session-event, config: {event_names: [x]}}]
---
"""

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture(autouse=True)
def bundle(project: Path) -> Path:
    path = project / "bundle.md"
    path.write_text(BUNDLE, encoding="utf-8")
    return path


def simulated(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert invoke(["trigger", "simulate", "--json", *arguments]) == exits.OK
    return json.loads(capsys.readouterr().out)["data"]


def test_a_simulation_shows_every_fire_and_marks_the_change_of_the_clocks(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["trigger", "simulate", "--from", "2026-03-28T00:00", "--days", "3", "-n", "3"]) == exits.OK
    lines = [line for line in capsys.readouterr().out.splitlines() if "report" in line]
    assert [" ".join(line.split()) for line in lines] == [
        "Sat 2026-03-28 02:30:00 +0100 Europe/Berlin 2026-03-28T01:30:00Z report trigger-timer",
        "Sun 2026-03-29 03:00:00 +0200 Europe/Berlin 2026-03-29T01:00:00Z report trigger-timer"
        " clocks go forward: 02:30 does not exist",
        "Sun 2026-03-29 12:00:00 +0200 UTC+02:00 2026-03-29T10:00:00Z report eve",
        "Mon 2026-03-30 02:30:00 +0200 Europe/Berlin 2026-03-30T00:30:00Z report trigger-timer",
    ]


def test_a_fire_after_a_change_of_the_clocks_is_marked_too(capsys: pytest.CaptureFixture[str], bundle: Path) -> None:
    bundle.write_text(BUNDLE.replace("30 2 * * *", "0 9 * * *"), encoding="utf-8")
    fires = simulated(capsys, "--from", "2026-10-24T00:00Z", "--days", "2", "-n", "2")["fires"]
    notes = [fire["note"] for fire in fires if fire["background_session"] == "report"]
    assert notes == ["", "clock changed from +0200 to +0100"]


def test_a_short_interval_does_not_flood_a_simulation(capsys: pytest.CaptureFixture[str]) -> None:
    told = simulated(capsys, "--from", "2026-03-28T00:00Z")
    assert sum(fire["background_session"] == "tick" for fire in told["fires"]) == 200
    assert told["more"] == [
        {"background_session": "tick", "trigger": "trigger-timer", "count": 10_000, "counted": False}
    ]
    assert invoke(["trigger", "simulate", "--from", "2026-03-28T00:00Z", "-n", "1"]) == exits.OK
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "… and 6 more of report: trigger-timer",
        "… and more than 10,000 more of tick: trigger-timer",
    ]


def test_a_simulation_of_many_timers_is_bounded_in_all(capsys: pytest.CaptureFixture[str], bundle: Path) -> None:
    timers = ", ".join(f"{{module: trigger-timer, name: t{number}, config: {{interval: 1m}}}}" for number in range(60))
    many = f"---\nbundle: {{name: many}}\nbackground_sessions: [{{name: s, triggers: [{timers}]}}]\n---\n"
    bundle.write_text(many, encoding="utf-8")
    begin = ("trigger", "simulate", "--from", "2026-03-28T00:00Z")
    assert invoke([*begin]) == exits.OK
    out, err = capsys.readouterr()
    assert err == "The first 2,000 fires are shown, and there are more: --total 20000\n"
    assert len(out.splitlines()) == 1 + 2_000 + 50 + 1
    assert out.splitlines()[-1] == "… and more of 10 other triggers"
    assert invoke([*begin, "--days", "0.00208", "--total", "70", "--json"]) == exits.OK  # 3 minutes: 2 fires each
    out, err = capsys.readouterr()
    told = json.loads(out)["data"]
    assert (len(told["fires"]), sum(each["count"] for each in told["more"])) == (70, 50)
    assert err == "The first 70 fires are shown, and there are more: --total 700\n"
    assert invoke([*begin, "--days", "0.00208", "--total", "120"]) == exits.OK
    assert capsys.readouterr().err == ""


def test_a_bundle_without_timers_has_nothing_to_simulate(capsys: pytest.CaptureFixture[str], bundle: Path) -> None:
    bundle.write_text("---\nbundle: {name: b}\nbackground_sessions: [{name: a}]\n---\n", encoding="utf-8")
    assert invoke(["trigger", "simulate"]) == exits.OK
    assert capsys.readouterr() == ("", "No trigger of the bundle fires at a known time in these days.\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--from", "yesterday"], "'yesterday' is not a time; write it as 2026-03-28T00:00Z"),
        (["--from", "9999-12-31T00:00Z"], "the calendar ends before that"),
        (["--days", "0"], "not in the range"),
    ],
)
def test_a_time_that_cannot_be_simulated_is_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["trigger", "simulate", *arguments]) == exits.USAGE
    assert message in capsys.readouterr().err


def test_a_list_of_triggers_says_when_each_fires_next(capsys: pytest.CaptureFixture[str], bundle: Path) -> None:
    bundle.write_text(BUNDLE.replace("2026-03-29T12", "2999-03-29T12").replace("[x]", "[]"), encoding="utf-8")
    assert invoke(["trigger", "list", "--json"]) == exits.OK
    cron, once, tick, events = json.loads(capsys.readouterr().out)["data"]
    assert cron["next_fire"].endswith(":30:00Z")
    assert once["next_fire"] == "2999-03-29T10:00:00Z"
    assert (tick["waiting"], tick["lag"], tick["dropped"]) == (0, 0.0, 0)
    assert events["next_fire"] == ""
    assert invoke(["trigger", "list"]) == exits.OK
    heading, *rows = capsys.readouterr().out.splitlines()
    assert "NEXT FIRE" in heading
    assert "2999-03-29T10:00:00Z" in rows[1]


def test_a_tick_of_a_timer_wakes_a_session(capsys: pytest.CaptureFixture[str], bundle: Path) -> None:
    bundle.write_text(
        "---\nbundle: {name: b}\n"
        "providers: [{module: provider-playbook, config: {otherwise: {say: 'Good morning.'}}}]\n"
        "background_sessions:\n  - name: a\n    instruction: Say good morning.\n"
        "    triggers: [{module: trigger-timer, config: {interval: 1h, immediate: true}}]\n---\n",
        encoding="utf-8",
    )
    assert invoke(["up", "--once"]) == exits.OK
    capsys.readouterr()
    assert invoke(["trigger", "list", "--json"]) == exits.OK
    [row] = json.loads(capsys.readouterr().out)["data"]
    assert (row["done"], row["waiting"], row["dead"]) == (1, 0, 0)
    assert row["next_fire"] > row["last_event"]


MISTAKEN = """
from amplifier_core import Upcoming, hookimpl

class Mistaken:
    def configure(self, config): pass
    async def watch(self): yield
    async def stop(self): pass
    def upcoming(self, after): yield FIRES

@hookimpl
def amplifier_register_trigger(register):
    register("trigger-mistaken", Mistaken)
"""
NAIVE = "trigger-mistaken: its upcoming yields an Upcoming whose at is no datetime with a time zone"
FIRES = {
    "after": "trigger-mistaken: its upcoming yields datetime, not Upcoming",
    "Upcoming(after.replace(tzinfo=None))": NAIVE,
    "Upcoming('tomorrow')": NAIVE,
    "{}['at']": "KeyError: 'at' ({file}:8)",
}


@pytest.mark.parametrize("fires", FIRES)
@pytest.mark.parametrize("command", ["list", "simulate"])
def test_a_trigger_with_a_mistake_in_its_times_is_named_and_the_others_are_shown(
    site: Site, bundle: Path, capsys: pytest.CaptureFixture[str], fires: str, command: str
) -> None:
    site.plugin("acme", MISTAKEN.replace("FIRES", fires))
    trigger = "  - {name: acme, triggers: [{module: trigger-mistaken}]}"
    bundle.write_text(BUNDLE.replace("background_sessions:", f"background_sessions:\n{trigger}"), encoding="utf-8")
    assert invoke(["trigger", command]) == exits.OK
    out, err = capsys.readouterr()
    told = FIRES[fires].format(file=site.folder / "acme.py")
    assert f"the fires of trigger 'trigger-mistaken' of background session 'acme' are not known: {told}\n" in err
    assert "tick" in out
