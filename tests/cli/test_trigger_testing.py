"""What an event would wake, and what would wake a background session, on real triggers."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import SessionEvent
from amplifier_core.plugins import load_plugins
from amplifier_core.storage import DurableStore
from amplifier_foundation import open_inbox
from amplifier_foundation.cli import exits, invoke
from amplifier_foundation.sessions.lock import owner_lock

BUNDLE = """---
bundle: {name: b}
background_sessions:
  - name: reviewer
    instruction: Review it.
    key: "{file_path}"
    priority: 3
    debounce: {period: 2s}
    if: "change_type != 'deleted'"
    triggers:
      - {module: trigger-file-watcher, config: {patterns: ["*.py"], ignore: [build/]}}
      - {module: trigger-manual, instruction_template: "Review {what}."}
  - name: listener
    triggers: [{module: trigger-session-event, config: {event_names: ["work:*"], if: "data.n > 1"}}]
  - name: hook
    triggers: [{module: trigger-webhook, config: {events: [push], secret_env: NO_SUCH_SECRET}}]
  - name: clock
    triggers: [{module: trigger-timer, config: {interval: 1ms, immediate: true}}]
  - {name: silent}
---
"""

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture(autouse=True)
def bundle(project: Path) -> Path:
    path = project / "bundle.md"
    path.write_text(BUNDLE, encoding="utf-8")
    return path


def verdicts(capsys: pytest.CaptureFixture[str], **event: Any) -> dict[str, dict[str, Any]]:
    """Return what is said of an event, by the trigger or the session without one."""
    Path("event.json").write_text(json.dumps(event), encoding="utf-8")
    capsys.readouterr()
    assert invoke(["trigger", "test", "event.json", "--json"]) == exits.OK
    rows = json.loads(capsys.readouterr().out)["data"]
    return {(row["trigger"] or row["background_session"]).removeprefix("b/"): row for row in rows}


def test_the_one_that_would_run_is_told_with_its_key_and_what_it_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    told = verdicts(capsys, type="file_change", file_path="src/a.py", change_type="modified")
    runs = told.pop("reviewer/trigger-file-watcher#1")
    assert runs["instruction"] == "Review it.\n\nFile changed: src/a.py (modified)"
    assert (runs["mode"], runs["key"], runs["priority"]) == ("queued", "src/a.py", 3)
    assert runs["debounce"] == {"key": "src/a.py", "period": 2.0, "timeout": None}
    assert {name: row["reason"] for name, row in told.items()} == {
        "reviewer/trigger-manual#2": "it is fired by hand, and this is a file_change event",
        "listener/trigger-session-event#1": "it fires on events of sessions, and this is a file_change event",
        "hook/trigger-webhook#1": "it fires on requests, and this is a file_change event",
        "clock/trigger-timer#1": "it fires at times, and this is a file_change event",
        "silent": "it has no trigger: only amplifier trigger fire wakes it",
    }


def test_a_written_change_of_a_file_has_the_data_of_a_real_one(
    bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle.write_text(BUNDLE.replace("instruction: Review it.", 'instruction_template: "{change} {path} {absolute}"'))
    told = verdicts(capsys, type="file_change", file_path="src/a.py", change_type="modified")
    runs = told["reviewer/trigger-file-watcher#1"]
    assert runs["instruction"] == f"modified src/a.py {bundle.parent / 'src' / 'a.py'}"
    told = verdicts(
        capsys, type="file_change", file_path="src/a.py", change_type="modified", data={"change": "created"}
    )
    assert told["reviewer/trigger-file-watcher#1"]["instruction"].startswith("created src/a.py")


@pytest.mark.parametrize(
    ("trigger", "event", "reason"),
    [
        ("reviewer/trigger-file-watcher#1", {"file_path": "a.txt"}, "no pattern names a.txt"),
        ("reviewer/trigger-file-watcher#1", {"file_path": "build/a.py"}, "build/a.py is ignored"),
        ("reviewer/trigger-file-watcher#1", {"file_path": "/elsewhere/a.py"}, "/elsewhere/a.py is not below "),
        ("reviewer/trigger-file-watcher#1", {}, "it has no file_path"),
        (
            "reviewer/trigger-file-watcher#1",
            {"file_path": "a.py", "change_type": "deleted"},
            "its 'if' does not hold: change_type != 'deleted'",
        ),
        ("reviewer/trigger-file-watcher#1", {"file_path": "a.py", "depth": 9}, "longer than max_depth"),
        ("reviewer/trigger-file-watcher#1", {"file_path": "a.py", "source": "x"}, "the event comes from x"),
        ("listener/trigger-session-event#1", {"event_name": "play"}, "event_names are work:*, and this one is play"),
        ("listener/trigger-session-event#1", {"event_name": "work:a"}, "its 'if' does not hold: data.n > 1"),
        ("listener/trigger-session-event#1", {"event_name": "work:a", "data": {"n": 2}}, None),
        ("hook/trigger-webhook#1", {"event_name": "fork"}, "events are push, and this one is fork"),
        ("hook/trigger-webhook#1", {"event_name": "push", "data": {"path": "/x"}}, "its path is /hook, not /x"),
        ("hook/trigger-webhook#1", {"event_name": "push"}, None),
        ("clock/trigger-timer#1", {"module": "trigger-timer"}, None),
        ("silent/trigger-manual", {}, None),
        (
            "reviewer/trigger-manual#2",
            {},
            "it would be accepted, then fail: trigger-manual: instruction_template names",
        ),
    ],
)
def test_why_a_background_session_would_not_run_is_said(
    trigger: str, event: dict[str, Any], reason: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = {"file-watcher": "file_change", "session-event": "session_event"}
    name = trigger.partition("trigger-")[2].partition("#")[0]
    told = verdicts(capsys, type=kinds.get(name, name), **event)[trigger]
    assert told["runs"] is (reason is None)
    assert told["reason"] is None if reason is None else reason in told["reason"]


def test_a_test_is_told_to_people_and_stores_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Path("event.json").write_text('{"type": "manual", "data": {"what": "it"}}', encoding="utf-8")
    assert invoke(["trigger", "test", "event.json"]) == exits.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[:7] == [
        "reviewer: would run",
        "  trigger-manual#2: mode queued, priority 3, after 2 s without another; prompt:",
        "    Review it.",
        "",
        "    Review it.",
        "listener: would run",
        "  by hand: mode queued; prompt:",
    ]
    assert inside(lambda store: store.delivery_counts()) == []


def inside(ask: Any) -> Any:
    """Return what the store answers."""

    async def asked() -> Any:
        store = open_inbox(load_plugins(environ={}))
        answer = await ask(store)
        await store.close()
        return answer

    return asyncio.run(asked())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"type": "timer", "dta": {}}', "event.json: dta: unknown key; did you mean 'data'?"),
        ('{"type": "timr"}', "did you mean 'timer'?"),
        ('{"data": {}}', "event.json: type: this key is required"),
        ('{"type": "timer", "timestamp": "soon"}', "event.json: timestamp: "),
        ("[1]", "must hold a JSON object"),
        ("{", "is not JSON"),
        ('{"type": "timer", "data": {"n": Infinity}}', "is not JSON: event.data.n: inf"),
    ],
)
def test_an_event_that_cannot_be_read_is_refused(text: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("event.json").write_text(text, encoding="utf-8")
    assert invoke(["trigger", "test", "event.json"]) == exits.USAGE
    assert message in capsys.readouterr().err


def test_a_watch_shows_events_that_a_test_reads_and_keeps_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["trigger", "watch", "clock", "--jsonl", "-n", "2"]) == exits.OK
    out, err = capsys.readouterr()
    first, second = map(json.loads, out.splitlines())
    assert (first["trigger"], first["event"]["data"]["tick"], second["event"]["data"]["tick"]) == (
        "trigger-timer#1", 1, 2,
    )  # fmt: skip
    assert "trigger-timer#1 is armed; nothing runs, nothing is stored" in err
    assert verdicts(capsys, **first["event"])["clock/trigger-timer#1"]["runs"] is True
    state = inside(lambda store: store.trigger_state(str(Path.cwd().resolve()), "b/clock/trigger-timer#1"))
    assert (state, inside(lambda store: store.delivery_counts())) == ({}, [])


def test_a_watch_says_what_would_be_refused(capsys: pytest.CaptureFixture[str], bundle: Path) -> None:
    bundle.write_text(BUNDLE.replace("name: clock", 'name: clock\n    if: "data.tick > 5"'), encoding="utf-8")
    assert invoke(["trigger", "watch", "clock", "-n", "1"]) == exits.OK
    assert "would be refused: its 'if' does not hold: data.tick > 5" in capsys.readouterr().out


def test_a_watch_begins_with_what_was_emitted_since_up_has_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    async def emitted(store: DurableStore) -> None:
        await store.save_trigger_state(str(Path.cwd().resolve()), "b/listener/trigger-session-event#1", {"sequence": 0})
        for number, name in ((1, "work:a"), (2, "play"), (3, "work:b")):
            await store.emit(SessionEvent(name, {"n": number}))

    inside(emitted)
    assert invoke(["trigger", "watch", "listener", "--jsonl", "-n", "1"]) == exits.OK
    assert json.loads(capsys.readouterr().out)["event"]["event_name"] == "work:b"


def test_a_port_that_up_has_is_named_with_who_has_it(
    capsys: pytest.CaptureFixture[str], bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "s")
    with socket.create_server(("127.0.0.1", 0)) as taken, owner_lock({"projects": [str(Path.cwd().resolve())]}):
        config = f"port: {taken.getsockname()[1]}, secret_env: SECRET"
        bundle.write_text(BUNDLE.replace("secret_env: NO_SUCH_SECRET", config), encoding="utf-8")
        assert invoke(["trigger", "watch", "hook"]) == exits.FAILED
    err = capsys.readouterr().err
    assert "cannot listen at 127.0.0.1" in err
    assert "runs the same triggers; stop it with: amplifier stop --all" in err


def test_there_must_be_something_to_watch(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["trigger", "watch", "silent"]) == exits.FAILED
    assert "only amplifier trigger fire wakes it" in capsys.readouterr().err
    assert invoke(["trigger", "watch", "nobody"]) == exits.NOT_FOUND
    err = capsys.readouterr().err
    assert "no background session 'nobody'. There are: clock, hook, listener, reviewer, silent" in err


def test_what_is_fired_by_hand_counts_for_the_trigger_that_declares_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["trigger", "fire", "reviewer"]) == exits.OK
    capsys.readouterr()
    assert invoke(["trigger", "list", "--json"]) == exits.OK
    rows = json.loads(capsys.readouterr().out)["data"]
    assert [row["waiting"] for row in rows if row["background_session"] == "reviewer"] == [0, 1]


def test_what_is_fired_by_hand_passes_the_conditions_of_the_session(
    capsys: pytest.CaptureFixture[str], bundle: Path
) -> None:
    bundle.write_text(BUNDLE.replace("change_type != 'deleted'", "data.really"), encoding="utf-8")
    assert invoke(["trigger", "fire", "reviewer"]) == exits.FAILED
    assert capsys.readouterr().err == "reviewer: refused: its 'if' does not hold: data.really\n"
