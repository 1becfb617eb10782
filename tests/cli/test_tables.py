"""Every table at terminals of 40, 80 and 120 columns and in a pipe: ids stay whole, lines fit, times are a person's."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread

import pytest
from rich.cells import cell_len

from amplifier_core import SessionRecord, TriggerEvent, TriggerType, load_plugins
from amplifier_foundation import open_inbox
from amplifier_foundation.background.approvals import Approval, save
from amplifier_foundation.cli import exits, invoke
from amplifier_foundation.cli.output import timestamp
from amplifier_foundation.flows.journal import Entry

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SESSION = "a-session-with-a-long-id-0123456789ab"
TASK_SESSION = "another-long-id-of-a-session-ba9876543210"
RUN = "run-of-a-long-workflow-0123456789ab"
BUNDLE = "bundle-of-many-words"
QUEUE = f"{BUNDLE}/coding-workers"
IMPORTED = "0190a1b2-0000-7000-8000-000000000001"
LONG = "長い名前 of a session, Überprüfung aller Änderungen an 部品 und Teilen " * 3
AT = datetime(2026, 7, 1, 12, 30, tzinfo=UTC)
TEXT = f"""---
bundle: {{name: {BUNDLE}, version: 1.0.0}}
providers: [{{module: provider-playbook, config: {{otherwise: {{say: "{LONG}"}}}}}}]
background_sessions:
  - name: coding-workers
    triggers: [{{module: trigger-timer, config: {{cron: "0 3 * * *", timezone: Europe/Berlin}}}}]
---
"""
CASES = {
    "approvals list": ("approvals", "approval"),
    "auth list": ("auth", "ANTHROPIC_API_KEY"),
    "bundle list": ("bundles/registering", BUNDLE),
    "bundle show": ("bundles/showing", "providers[0].module"),
    "bundle validate --codes": ("bundles/validating", "AMP102"),
    "config show": ("config", "retention.max_size"),
    "cost --by session": ("cost", f"{BUNDLE}-"),
    "docs": ("docs", "first-session"),
    "doctor": ("doctor", "permissions"),
    "flow list": ("flow", RUN),
    f"flow show {RUN}": ("flow", "the-first-task"),
    "issue list": ("issue", "1"),
    "permission list": ("permission", ""),
    "plugin list": ("plugins/listing", "trigger-file-watcher"),
    "provider list": ("provider", "playbook"),
    "ps": ("ps", QUEUE),
    "session import": ("sessions/importing", "0190a1b2"),
    "session list": ("sessions/reading", SESSION),
    "store info": ("store", "messages"),
    "trigger dead": ("triggers/dead_letters", ""),
    "trigger list": ("triggers/listing", "coding-workers"),
    "trigger simulate --days 2": ("triggers/simulate", ""),
    "trust --list": ("trust", "project/bundle.md"),
}
"""The module that prints a table, and an id in it, by command."""
FACT = re.compile(r"[a-z]+ +[0-9a-f]{64}$|/\S+: ")
"""A line beside the table."""


async def _fill(project: Path) -> None:
    """Store what tables show: long names, wide characters, long ids."""
    store, where = open_inbox(load_plugins(environ={})), str(project.resolve())
    await store.create(SessionRecord(SESSION, project=where, name=LONG, status="completed", bundle=BUNDLE))
    metadata = {"flow": {"name": f"a-workflow-{'x' * 60}", "input": {}}}
    await store.create(SessionRecord(RUN, project=where, status="failed", metadata=metadata))
    entry = Entry("the-first-task", "the-first-task", "completed", LONG, TASK_SESSION)
    await store.append(RUN, [entry.to_message()], at=0)
    for number in (1, 2):
        event = TriggerEvent(TriggerType.FILE_CHANGE, "trigger-file-watcher", file_path=LONG, change_type="created")
        await store.enqueue(where, QUEUE, f"{QUEUE}/trigger-file-watcher#1", event)
        claimed = await store.claim(where, QUEUE, owner="o", lease=60.0, session_id=f"{SESSION[:-1]}{number}")
        assert claimed is not None
        if number == 1:
            await store.dead_letter(claimed, reason=f"{LONG}\nTraceback")
    now, call = datetime.now(UTC), {"command": LONG}
    expires = now + timedelta(days=1)
    ids = ("approval", "pending", where, QUEUE, claimed.delivery_id, SESSION)
    approval = Approval(*ids, "bash", call, "h", "k", LONG, LONG, ["Allow", "Deny"], now, expires)  # type: ignore[arg-type]
    await save(store, where, QUEUE, {"approval": approval})
    await store.close()


@pytest.fixture
def filled(home: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose tables have rows."""
    home.mkdir()
    (project / "bundle.md").write_text(TEXT, encoding="utf-8")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-key-of-a-test")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home / "claude"))
    (home / "claude" / "projects" / "p").mkdir(parents=True)
    said = {
        "type": "user",
        "uuid": "u1",
        "sessionId": IMPORTED,
        "cwd": str(project),
        "timestamp": "2026-01-01T00:00:00Z",
    }
    line = json.dumps({**said, "message": {"role": "user", "content": LONG}})
    (home / "claude" / "projects" / "p" / f"{IMPORTED}.jsonl").write_text(f"{line}\n", encoding="utf-8")
    for command in (["bundle", "add", BUNDLE, "."], ["issue", "create", LONG], ["trust", "--yes"], ["run", "hello"]):
        assert invoke(command) == exits.OK
    asyncio.run(_fill(project))
    return project


Show = Callable[..., str]


@pytest.fixture
def at_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Show]:
    """Run a command at a terminal of so many columns; return what a person sees."""

    def show(width: int, *command: str) -> str:
        other, side = pty.openpty()
        shown: list[bytes] = []
        reading = Thread(target=_read_all, args=(other, shown))
        reading.start()
        with monkeypatch.context() as patch:
            patch.setenv("NO_COLOR", "1")
            patch.setenv("TERM", "xterm")
            patch.setenv("COLUMNS", str(width))
            patch.setattr(sys, "stdout", os.fdopen(side, "w", encoding="utf-8"))
            assert invoke(command) in (exits.OK, exits.FAILED)
            sys.stdout.close()
        reading.join()
        os.close(other)
        return re.sub(r"\x1b\[[0-2]?m", "", b"".join(shown).decode().replace("\r\n", "\n"))  # bold is no colour

    return show


def _read_all(side: int, into: list[bytes]) -> None:
    try:
        while data := os.read(side, 65536):
            into.append(data)
    except OSError:  # the other side is closed
        return


def test_every_command_with_a_table_is_looked_at() -> None:
    folder = ROOT / "amplifier_foundation" / "cli"
    printing = {
        str(path.relative_to(folder).with_suffix(""))
        for path in folder.rglob("*.py")
        if "print_table(" in path.read_text(encoding="utf-8")
    } - {"output", "sessions/tracing", "host", "store_copy"}  # no turns, no other host, and no other store are here
    assert {module for module, _ in CASES.values()} - {"issue"} == printing


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_table_breaks_an_id_or_leaves_the_terminal(width: int, filled: Path, at_terminal: Show) -> None:
    for command, (_, its_id) in CASES.items():
        shown = at_terminal(width, *command.split())
        assert its_id in shown, command
        lines = [line for line in shown.splitlines() if not FACT.match(line)]
        value = 12 if "VALUE" in shown or "LARGEST" in shown else 0  # what a key has is never left out
        ids = [cell_len(line.partition("  ")[0]) + value for line in lines if its_id]
        assert [line for line in lines if cell_len(line.rstrip()) > max(width, *ids, 0)] == [], command
        narrow = [0 < len(line.strip()) <= 2 for line in lines]
        assert not any(all(narrow[start : start + 3]) for start in range(len(narrow) - 2)), (command, shown)
        assert "\x1b" not in shown


def test_a_pipe_gets_every_column_whole(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command, (_, its_id) in CASES.items():
        capsys.readouterr()
        assert invoke(command.split()) in (exits.OK, exits.FAILED)
        shown = capsys.readouterr().out
        assert its_id in shown, command
    invoke(["session", "list"])
    heading, *rows = capsys.readouterr().out.splitlines()
    assert {row[heading.index("NAME") :] for row in rows if not row.startswith(BUNDLE)} == {"", LONG.rstrip()}


def test_a_column_is_shortened_first_and_then_left_out_and_that_is_told(
    filled: Path, at_terminal: Show, capsys: pytest.CaptureFixture[str]
) -> None:
    narrow, usual, wide = (at_terminal(width, "session", "list").splitlines()[0].split() for width in (40, 80, 120))
    assert narrow == ["SESSION"]
    assert usual == ["SESSION", "STATUS", "NAME"]
    assert wide == ["SESSION", "STATUS", "TURNS", "MESSAGES", "UPDATED", "NAME"]
    narrowly, usually = capsys.readouterr().err.splitlines()
    assert narrowly == "Left out for want of room: STATUS, TURNS, MESSAGES, UPDATED, NAME"
    assert usually == "Left out for want of room: TURNS, MESSAGES, UPDATED"
    assert "長い名前 of a sess" in at_terminal(80, "session", "list")


def test_a_long_tree_has_a_bound_at_a_terminal_alone(
    filled: Path, at_terminal: Show, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = at_terminal(120, "session", "tree")
    assert invoke(["session", "tree"]) == exits.OK
    in_a_pipe = capsys.readouterr().out
    monkeypatch.setattr("amplifier_foundation.cli.sessions.tree.SHOWN", 1)
    assert len(at_terminal(120, "session", "tree").splitlines()) < len(whole.splitlines())
    assert at_terminal(120, "session", "tree", "-n", "1000") == whole
    capsys.readouterr()
    assert invoke(["session", "tree"]) == exits.OK
    assert capsys.readouterr().out == in_a_pipe


def test_words_wrap_and_stay_whole(filled: Path, at_terminal: Show) -> None:
    rows = at_terminal(40, "bundle", "validate", "--codes").split()
    assert "".join(rows).count("…") == 0


@pytest.fixture
def in_india(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A person whose clock is 5:30 h ahead of UTC."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        yield
    time.tzset()


def test_people_get_local_times_and_programs_utc(
    filled: Path, in_india: None, at_terminal: Show, capsys: pytest.CaptureFixture[str]
) -> None:
    assert timestamp(AT) == "2026-07-01T12:30:00Z"
    assert "+05:30" in at_terminal(120, "session", "list")
    assert "+05:30" not in at_terminal(120, "session", "list", "--json")
    dead = json.loads(at_terminal(120, "trigger", "dead", "--json"))["data"]
    assert dead[0]["updated"].endswith("Z")
    capsys.readouterr()
    invoke(["ps"])
    assert "+05:30" not in capsys.readouterr().out
    shown = at_terminal(200, "ps")
    since = re.search(rf"{SESSION[:-1]}2 since (\S+)", shown)
    assert since is not None
    assert since[1].endswith("+05:30")
    assert "+05:30" not in at_terminal(200, "ps", "--json")
    assert "+05:30" in at_terminal(200, "logs")
    assert "+05:30" not in at_terminal(200, "logs", "--jsonl")
