"""Notifications: who is told what, and when; targets that fail, hang or redirect; nothing old, nothing twice."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from amplifier_core.testing import VirtualClock
from amplifier_foundation import Activity
from amplifier_foundation.background import notify_targets
from amplifier_foundation.background.notifications import Notifications
from amplifier_foundation.cli import exits, invoke
from tests import forks

DELIVERY = SimpleNamespace(delivery_id="d-1", session_id="s-1")
WRITE = """
import os, sys
open(sys.argv[1] + ".env", "w").write(os.environ["AMPLIFIER_TEXT"])
open(sys.argv[1], "ab").write(sys.stdin.buffer.read())
"""
WAIT = """
import os, sys, time
open(sys.argv[2], "w").close()
while not os.path.exists(sys.argv[3]): time.sleep(0.01)
"""


def dead(reason: str = "it broke", name: str = "review") -> Activity:
    return Activity("dead", name, {"delivery": DELIVERY, "reason": reason}, "b/review", "/p")


def state(status: str, reason: str = "") -> Activity:
    return Activity("state", "review", {"status": status, "reason": reason}, "b/review", "/p")


def writing(file: Path) -> list[str]:
    return [sys.executable, "-c", WRITE, str(file)]


def told(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


async def until_sleeping(clock: VirtualClock, tasks: int = 1) -> None:
    await until(lambda: clock.sleeping >= tasks)


class Hook(ThreadingHTTPServer):
    """A web server that keeps what is posted, and answers with a status."""

    status = 204

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.posted: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.url = f"http://127.0.0.1:{self.server_port}/hook?a=b"


class Answering(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Hook)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.posted.append(({name.lower(): text for name, text in self.headers.items()}, json.loads(body)))
        self.send_response(self.server.status)
        self.send_header("Location", "http://127.0.0.1:1/private")
        self.end_headers()

    def log_message(self, *arguments: Any) -> None: ...


@contextmanager
def serving() -> Iterator[Hook]:
    with Hook() as hook:
        thread = Thread(target=hook.serve_forever)
        thread.start()
        try:
            yield hook
        finally:
            hook.shutdown()
            thread.join()


async def test_the_first_event_is_told_at_once_and_those_of_a_minute_together(tmp_path: Path) -> None:
    clock, file = VirtualClock(), tmp_path / "told"
    notifications = Notifications([{"on": ["given_up"], "command": writing(file)}], clock)
    async with notifications.telling():
        notifications.observe(dead("first"))
        await until_sleeping(clock)
        for n in range(30):
            notifications.observe(dead(f"number {n}"))
        assert [each["count"] for each in told(file)] == [1]
        await clock.advance(60)
        await until(lambda: len(told(file)) == 2)
    first, second = told(file)
    assert first["text"] == "review gave up an event: first"
    assert first["events"][0]["delivery_id"] == "d-1"
    assert (second["count"], len(second["events"])) == (30, 20)
    assert second["text"].startswith("30 events: review gave up an event: number 0")
    assert (tmp_path / "told.env").read_text(encoding="utf-8") == second["text"]


async def test_what_waits_at_the_end_is_told_and_a_target_hears_only_what_it_asked_for(tmp_path: Path) -> None:
    clock, file, other = VirtualClock(), tmp_path / "told", tmp_path / "other"
    entries = [{"on": ["given_up"], "command": writing(file)}, {"on": ["budget"], "command": writing(other)}]
    notifications = Notifications(entries, clock)
    async with notifications.telling():
        notifications.observe(dead())
        await until_sleeping(clock)
        notifications.observe(dead())
    assert [each["count"] for each in told(file)] == [1, 1]
    assert told(other) == []


async def test_a_background_session_is_told_as_degraded_after_a_minute_and_once(tmp_path: Path) -> None:
    clock, file = VirtualClock(), tmp_path / "told"
    notifications = Notifications([{"on": ["degraded"], "command": writing(file)}], clock)
    async with notifications.telling():
        notifications.observe(state("degraded", "no answer"))
        await until_sleeping(clock)
        await clock.advance(59)
        notifications.observe(state("running"))
        await clock.advance(60)
        assert told(file) == []
        notifications.observe(state("degraded", "no answer"))
        await until_sleeping(clock)
        await clock.advance(60)
        await until(lambda: len(told(file)) == 1)
        notifications.observe(state("degraded", "still no answer"))
        await clock.advance(180)
    assert [each["text"] for each in told(file)] == ["review is degraded: no answer"]


async def test_one_that_is_on_its_way_at_the_end_arrives(tmp_path: Path) -> None:
    file, begun, may_end = tmp_path / "told", tmp_path / "begun", tmp_path / "may-end"
    command = [sys.executable, "-c", f"{WAIT}{WRITE}", str(file), str(begun), str(may_end)]
    notifications = Notifications([{"on": ["given_up"], "command": command}], VirtualClock())
    async with notifications.telling():
        notifications.observe(dead())
        await until(begun.exists)
        notifications.observe(dead("another"))
        asyncio.get_running_loop().call_soon(may_end.touch)
    assert [each["events"][0]["reason"] for each in told(file)] == ["it broke", "another"]


async def test_a_question_is_told_once_and_those_of_before_the_start_never(tmp_path: Path) -> None:
    clock, file = VirtualClock(), tmp_path / "told"
    before = SimpleNamespace(id="old", tool="bash", question="?", created=clock.now())
    await clock.advance(10)
    notifications = Notifications([{"on": ["approval"], "command": writing(file)}], clock)
    fresh = SimpleNamespace(id="new", tool="bash", question="Run it?", created=clock.now())
    async with notifications.telling():
        for _ in range(2):
            notifications.observe(Activity("held", "review", {"questions": [before, fresh]}, "b/review", "/p"))
    [only] = told(file)
    assert (only["count"], only["events"][0]["approval_id"]) == (1, "new")
    assert only["text"] == "review waits for approval of bash: amplifier approvals show new"


async def test_a_budget_is_told_when_it_is_spent_and_not_again_after_a_start(tmp_path: Path) -> None:
    spent = Activity("budget_spent", "review", {"reason": "cost $2 of $2 today", "until": "x"}, "b/review", "/p")
    for begins, count in ((True, 1), (False, 0)):
        clock, file = VirtualClock(), tmp_path / f"told-{begins}"
        notifications = Notifications([{"on": ["budget"], "command": writing(file)}], clock)
        async with notifications.telling():
            if begins:
                notifications.observe(Activity("session", "review", {}, "b/review", "/p"))
            notifications.observe(spent)
            notifications.observe(spent)
        assert [each["count"] for each in told(file)] == [1] * count


async def test_a_webhook_gets_the_json_with_its_token_and_without_secrets(
    monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setenv("HOOK_TOKEN", "t-0123456789abcdef")
    monkeypatch.setenv("OTHER_API_KEY", "sk-live-0123456789abcdef")
    with serving() as hook:
        entry = {"on": ["given_up"], "webhook": hook.url, "token": "secret://HOOK_TOKEN"}
        notifications = Notifications([entry], VirtualClock())
        async with notifications.telling():
            notifications.observe(dead("refused: sk-live-0123456789abcdef"))
        [(headers, body)] = hook.posted
    assert headers["authorization"] == "Bearer t-0123456789abcdef"
    assert headers["content-type"] == "application/json"
    assert (body["schema"], body["count"], body["events"][0]["event"]) == ("amplifier/notification/1", 1, "given_up")
    assert "sk-live" not in json.dumps(body)


@pytest.mark.parametrize(("status", "said"), [(302, "it redirects (HTTP 302), which is not"), (500, "HTTP 500")])
async def test_a_redirect_is_not_followed_and_an_error_is_a_warning(
    status: int, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    with serving() as hook:
        hook.status = status
        notifications = Notifications([{"on": ["given_up"], "webhook": hook.url}], VirtualClock())
        async with notifications.telling():
            notifications.observe(dead())
        assert len(hook.posted) == 1
    [warning] = caplog.messages
    assert said in warning
    assert warning.startswith("the webhook at 127.0.0.1 was not told of 1 events")


async def test_failing_targets_are_warnings_once_a_minute_and_hold_up_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify_targets, "TIME_LIMIT", 0.2)
    monkeypatch.setenv("PATH", str(tmp_path))
    clock, file = VirtualClock(), tmp_path / "told"
    commands = ["/nowhere/program"], [sys.executable, "-c", "raise SystemExit('out of order')"], ["/bin/sleep", "60"]
    entries = [{"on": ["given_up"], "command": each} for each in (*commands, writing(file))]
    entries.append({"on": ["given_up"], "desktop": True})
    notifications = Notifications(entries, clock)
    async with notifications.telling():
        for _ in range(5):
            notifications.observe(dead())
        await until_sleeping(clock, len(entries))
        assert len(caplog.messages) == 4
        notifications.observe(dead())
        await clock.advance(60)
        await until_sleeping(clock, len(entries))
    said = "\n".join(caplog.messages)
    assert (
        said.count("does not start") == said.count("it ended with 1: out of order") == said.count("has not ended") == 2
    )
    assert said.count("notify-send is not installed") == 1
    assert [each["count"] for each in told(file)] == [5, 1]


async def test_the_desktop_is_told_by_notify_send(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "notify-send"
    program.write_text('#!/bin/sh\nfor each in "$@"; do echo "$each"; done > "${0%/*}/shown"\n', encoding="utf-8")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    notifications = Notifications([{"on": ["given_up"], "desktop": True}], VirtualClock())
    async with notifications.telling():
        notifications.observe(dead("--help; $(id)"))
    text = "review gave up an event: --help; $(id)"
    assert (tmp_path / "shown").read_text(encoding="utf-8") == f"--app-name=amplifier\n--\n{text}\n{text}\n"


# the settings


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("{on: [given_up]}", "needs one target"),
        ("{on: [given_up], desktop: true, command: [a]}", "needs one target"),
        ("{on: [], desktop: true}", "on"),
        ("{on: [dead], desktop: true}", "on"),
        ("{on: [given_up], webhook: 'http://example.org/'}", "needs https, or insecure: true"),
        ("{on: [given_up], webhook: 'file:///etc/passwd'}", "http or https address"),
        ("{on: [given_up], webhook: 'https://e.org/', token: plain}", "secret"),
    ],
)
def test_a_wrong_entry_is_refused(
    home: Path, project: Path, capsys: pytest.CaptureFixture[str], entry: str, problem: str
) -> None:
    assert invoke(["config", "set", "notify", f"[{entry}]"]) == exits.USAGE
    assert problem in capsys.readouterr().err


def test_the_list_is_set_by_a_command_and_told_by_doctor(
    home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["config", "set", "notify", "[{on: [given_up, approval], command: [/nowhere/mail, me]}]"]) == exits.OK
    assert invoke(["config", "get", "notify"]) == exits.OK
    invoke(["doctor", "--json"])
    out = capsys.readouterr().out
    assert '[{"on": ["given_up", "approval"], "command": ["/nowhere/mail", "me"]}]' in out
    assert "/nowhere/mail is not installed: it tells nobody" in out


BUNDLE = """---
bundle: {name: b}
providers: [{module: provider-playbook, config: {rules: []}}]
background_sessions:
  - name: review
    instruction_template: "{data}"
    max_attempts: 1
    triggers: [{module: trigger-manual}]
---
Review.
"""


@pytest.mark.parametrize("scope", ["user", "project"])
def test_up_tells_of_an_event_given_up_unless_the_project_that_says_so_is_not_trusted(
    home: Path, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scope: str
) -> None:
    monkeypatch.delenv("AMPLIFIER_TRUST", raising=False)
    file = tmp_path / "told"
    (project / "bundle.md").write_text(BUNDLE, encoding="utf-8")

    def amplifier(*arguments: str) -> subprocess.CompletedProcess[str]:
        return forks.run(arguments, cwd=project)

    amplifier("trust", "bundle.md", "--yes")
    folder = home if scope == "user" else project / ".amplifier"
    folder.mkdir(exist_ok=True)
    entry = {"on": ["given_up"], "command": writing(file)}
    (folder / "settings.yaml").write_text(json.dumps({"notify": [entry]}), encoding="utf-8")
    amplifier("trigger", "fire", "review", "--data", "{}")
    done = amplifier("up", "--once")
    if scope == "project":
        assert (done.returncode, told(file)) == (exits.WAITING, []), done.stderr
        assert "is not trusted" in done.stderr
        return
    assert done.returncode == exits.FAILED, done.stderr
    [only] = told(file)
    assert only["events"][0]["background_session"] == "review"
