"""What `amplifier why` tells of events that background sessions really handled."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.cli import exits, invoke

BUNDLE = """---
bundle: {name: chain}
providers: [{module: provider-playbook, config: {otherwise: {say: "ok"}}}]
background_sessions:
  - name: first
    triggers: [{module: trigger-manual}]
    on_complete_emit: work:done
  - name: second
    triggers: [{module: trigger-session-event, config: {event_names: ["work:*"]}}]
    on_complete_emit: work:more
  - name: bad
    max_attempts: 1
    instruction_template: "{nothing}"
    triggers: [{module: trigger-session-event, config: {event_names: ["work:done"]}}]
---
"""


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert invoke([*arguments]) == exits.OK
    text = re.sub(r"\b(first|second)-[0-9a-f]{12}\b", r"\1-ID", capsys.readouterr().out)
    text = re.sub(r"\d{4}-\d\d-\d\dT[0-9:]+Z  [0-9a-f]{8}", "TIME", text)
    text = re.sub(r" by \S+ \(command line\)  \S+Z", " by ME", text)
    return re.sub(r", \d+\.\d\d s, \$0", "", text)


@pytest.fixture(scope="module")
def handled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose bundle was run once, fired by hand; the data folder is in it."""
    folder = tmp_path_factory.mktemp("why")
    (folder / "bundle.md").write_text(BUNDLE, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("AMPLIFIER_HOME", str(folder / "home"))
        assert invoke(["trigger", "fire", "first"]) == exits.OK
        assert invoke(["-q", "up", "--once"]) == exits.FAILED  # one event is given up
    return folder


@pytest.fixture
def links(
    home: Path, handled: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[dict[str, Any]]:
    """What is told of the first session."""
    monkeypatch.chdir(handled)
    monkeypatch.setenv("AMPLIFIER_HOME", str(handled / "home"))
    assert invoke(["session", "list", "--json"]) == exits.OK
    listed = json.loads(capsys.readouterr().out)["data"]
    session_id = next(row["session_id"] for row in listed if row["session_id"].startswith("first-"))
    told_of: list[dict[str, Any]] = explained(capsys, session_id)["links"]
    return told_of


def explained(capsys: pytest.CaptureFixture[str], asked: str) -> Any:
    capsys.readouterr()
    assert invoke(["why", asked, "--json"]) == exits.OK
    return json.loads(capsys.readouterr().out)["data"]


def test_a_chain_is_drawn_from_its_first_event_with_every_decision(
    links: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = next(link["id"] for link in links if link["asked"])
    rules = (
        "data, duration, event_data, event_name, event_summary, output, session_id, session_name, source, "
        "source_session_id, trigger, trigger_id"
    )
    fault = f"trigger-session-event: instruction_template names {{nothing}}; this event has only: {rules}"
    drawn = told(capsys, "why", asked[:10]).splitlines()
    bad = f"        ├── chain/bad (trigger-session-event#1)  dead after 1 attempt: {fault}"
    [where] = [number for number, line in enumerate(drawn) if "chain/bad" in line]
    assert drawn.pop(where).strip("│├└─ ") == bad.strip("│├└─ ")
    assert drawn[:5] == [
        "by hand  TIME",
        "└── ▶ chain/first (trigger-manual#1)  done  → first-ID  completed  1 turn, 2 messages",
        "    ├── trigger fire by ME",
        "    ├── event session:completed  TIME  woke nothing",
        "    └── event work:done  TIME",
    ]
    assert [line.strip("│├└─ ") for line in drawn[5:]] == [
        "chain/second (trigger-session-event#1)  done  → second-ID  completed  1 turn, 2 messages",
        "event session:completed  TIME  woke nothing",
        "event work:more  TIME",
        "chain/second (trigger-session-event#1)  refused: this background session caused it itself "
        "(self_trigger: true in the trigger's config accepts it)",
    ]


def test_an_event_that_woke_nothing_is_told_with_who_listens(
    links: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    silent = next(link["id"] for link in links if "woke nothing" in link["summary"])
    assert told(capsys, "why", silent).splitlines()[-1] == (
        "It woke no background session. Events of sessions have woken chain/bad (by work:done); "
        "chain/second (by work:done, work:more)."
    )
    data = explained(capsys, silent)
    assert data["listeners"] == {"chain/bad": ["work:done"], "chain/second": ["work:done", "work:more"]}


def test_programs_are_given_every_link_with_the_place_of_the_one_above(links: list[dict[str, Any]]) -> None:
    assert [link["above"] for link in links][:2] == [None, 0]
    dead = next(link for link in links if link.get("state") == "dead")
    done = links[dead["above"]]
    assert (done["kind"], done["source_session_id"]) == ("event", links[1]["id"])
    assert (dead["queue"], dead["attempts"], dead["kind"]) == ("chain/bad", 1, "delivery")


def test_an_unknown_id_is_not_found(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["why", "nowhere"]) == exits.NOT_FOUND
    assert "nothing stored has an id that begins with 'nowhere'" in capsys.readouterr().err


def test_the_tag_in_a_line_of_up_is_enough(
    background: Path, amplifier: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for data in ('{"what": "a"}', "{}"):  # one is answered, and one given up before it has a session
        assert invoke(["trigger", "fire", "asked", "--data", data]) == exits.OK
    tags = re.findall(r" [✓✗] asked +(\S{4}) ", amplifier("up", "--once").stdout)
    assert len(tags) == 2
    for tag in tags:
        [asked] = [link for link in explained(capsys, tag)["links"] if link["asked"]]
        assert asked["session_id"].startswith(f"asked-{tag}")
