"""No command, export, log line or stored failure shows a secret, whatever its form."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import TriggerEvent, TriggerType
from amplifier_core.llm_errors import AuthenticationError
from amplifier_core.plugins import load_plugins
from amplifier_core.storage import SessionRecord
from amplifier_core.utils.secrets import redact_error
from amplifier_foundation import Bundle, PreparedBundle, open_inbox
from amplifier_foundation.cli import invoke
from amplifier_foundation.cli.log_lines import FORMAT, RedactingFormatter
from amplifier_foundation.cli.output import print_table
from amplifier_foundation.cli.running.showing import arguments_line
from amplifier_foundation.cli.view import RunView
from amplifier_foundation.documents.safe_text import one_line
from amplifier_foundation.operations.history import LINE, describe, first_line
from amplifier_foundation.sessions import lineage_html
from amplifier_foundation.sessions.failures import describe_failure
from amplifier_foundation.sessions.lineage import Node
from amplifier_foundation.sessions.records import new_record
from amplifier_hooks_logging.lines import line_of
from amplifier_provider_openai.errors import Translator
from amplifier_provider_replay.files import make_safe
from tests.secret_shapes import make_shapes

pytestmark = pytest.mark.slow

SHAPES = list(make_shapes())
SESSION = "the-session-1"


def require_hidden(shown: str) -> None:
    """Fail when more than one of a hundred secrets is shown."""
    leaks = [(name, secret) for name, _, secret in SHAPES if secret in shown or json.dumps(secret)[1:-1] in shown]
    assert len(leaks) <= len(SHAPES) // 100, leaks


async def fill(project: Path) -> None:
    """Store sessions, failures and events with a secret in every text, as a version without a redactor would."""
    store, folder = open_inbox(load_plugins(environ={})), str(project.resolve())
    await store.create(SessionRecord(SESSION, project=folder, status="completed"))
    calls = [{"id": "1", "tool": "t", "arguments": {"text": text}} for _, text, _ in SHAPES]
    messages = [{"role": role, "content": text} for _, text, _ in SHAPES for role in ("user", "tool")]
    await store.append(SESSION, [*messages, {"role": "assistant", "content": "", "tool_calls": calls}], at=0)
    for number, (_, text, _) in enumerate(SHAPES):
        await store.create(
            SessionRecord(
                f"failed-{number:03}", project=folder, parent_id=SESSION, status="failed", error=text, name=text
            )
        )
        event = TriggerEvent(TriggerType.TIMER, "trigger-timer", data={"tick": text, "url": text})
        await store.enqueue(folder, "b/a", "b/a/trigger-timer#1", event)
        claimed = await store.claim(folder, "b/a", owner="o", lease=60.0, session_id=f"failed-{number:03}")
        assert claimed is not None
        await store.dead_letter(claimed, reason=text)
    await store.close()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The data folder, and the project."""
    home, project = tmp_path_factory.mktemp("home") / "home", tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AMPLIFIER_HOME", str(home))
        asyncio.run(fill(project))
    return home, project


@pytest.mark.parametrize(
    "command",
    [
        "session list -n 1000",
        "session list -n 1000 --json",
        f"session show {SESSION}",
        f"session show {SESSION} --json",
        f"session export {SESSION}",
        f"session export {SESSION} --format markdown",
        f"session export {SESSION} --json",
        "session tree",
        "session tree --format mermaid",
        "session tree --format dot",
        "session tree --format json",
        "session tree --format html",
        "trigger dead",
        "trigger dead --json",
        "logs -n 10000",
        "logs -n 10000 --jsonl",
        f"why {SESSION}",
        f"why {SESSION} --json",
        "ps",
        "ps --json",
        "cost --json",
    ],
)
def test_a_command_shows_no_stored_secret(
    command: str, filled: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    home, project = filled
    monkeypatch.setenv("AMPLIFIER_HOME", str(home))
    monkeypatch.chdir(project)
    invoke(command.split())
    out, err = capfd.readouterr()
    assert out
    require_hidden(out + err)
    if command.endswith(("--json", "json")):
        assert json.loads(out)


def test_an_export_to_a_file_holds_no_secret(
    filled: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home, project = filled
    monkeypatch.setenv("AMPLIFIER_HOME", str(home))
    monkeypatch.chdir(project)
    commands = {
        "a.md": ["session", "export", SESSION, "--format", "markdown"],
        "a.jsonl": ["session", "export", SESSION],
        "a.html": ["session", "tree", "--format", "html"],
    }
    for name, command in commands.items():
        assert invoke([*command, "-o", str(tmp_path / name)]) == 0
        require_hidden((tmp_path / name).read_text(encoding="utf-8"))
    assert all(json.loads(line) for line in (tmp_path / "a.jsonl").read_text(encoding="utf-8").splitlines())


def log_line(text: str) -> str:
    record = logging.LogRecord("x", logging.WARNING, "f", 1, "a trigger failed: %s", (text,), None)
    return RedactingFormatter(FORMAT).format(record)


def error_in_place(text: str) -> str:
    error = RuntimeError(text)
    error.__cause__ = OSError(text)
    redact_error(error)
    return f"{error!r} {error.__cause__!r}"


def stored_config(text: str) -> str:
    prepared = PreparedBundle.of(Bundle.from_dict({"bundle": {"name": "b"}}))
    config = {"session": {}, "tools": [{"module": "tool-x", "config": {"base_url": text, "deep": [text]}}]}
    return str(new_record(prepared, "s-1", config=config).config)


SINKS: dict[str, Callable[[str], Any]] = {
    "an error": error_in_place,
    "a failure": lambda text: describe_failure(RuntimeError(text)),
    "a provider's failure": lambda text: describe_failure(AuthenticationError(text, provider="house")),
    "a provider's error": lambda text: Translator("m", []).hide(text, 10_000),
    "a log line": log_line,
    "a line of hooks-logging": lambda text: line_of("tool:post", {"result": text}, {}, raw=True).decode(),
    "a stored configuration": stored_config,
    "a recording": lambda text: json.dumps(make_safe({"request": {"messages": [{"content": text}]}})),
}


def test_no_text_of_others_steers_the_terminal_or_passes_for_a_line_of_a_log() -> None:
    text = "HTTP 500: \x1b]0;owned\x07\x1b[2J\nforged line"
    try:
        raise OSError(text)
    except OSError as error:
        known = (type(error), error, error.__traceback__)
    record = logging.LogRecord("x", logging.WARNING, "f", 1, "a trigger failed: %s", (text,), known)
    first, *traced = RedactingFormatter(FORMAT).format(record).split("\n")
    assert first == "amplifier: WARNING: a trigger failed: HTTP 500: �]0;owned��[2J\\nforged line"
    assert all(each.startswith("  ") and each.replace("�", " ").isprintable() for each in traced)
    assert traced[-1].strip() == "forged line"


def test_a_secret_of_two_lines_is_hidden_in_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPLOY_SECRET", "correct horse battery\nstaple of alpha")
    try:
        raise ValueError(f"cannot log in with {os.environ['DEPLOY_SECRET']}")
    except ValueError as error:
        known = (type(error), error, error.__traceback__)
    record = logging.LogRecord("x", logging.ERROR, "f", 1, "failed", (), known)
    record.stack_info = f"Stack:\n  {os.environ['DEPLOY_SECRET']}"
    assert "horse" not in (told := RedactingFormatter(FORMAT).format(record))
    assert all(line.startswith("  ") for line in told.splitlines()[1:])


@pytest.mark.parametrize("sink", SINKS)
def test_no_secret_reaches_a_sink(sink: str) -> None:
    require_hidden("\n".join(str(SINKS[sink](text)) for _, text, _ in SHAPES))


def test_no_secret_reaches_the_log_of_up(capfd: pytest.CaptureFixture[str]) -> None:
    view = RunView(dated=True)
    for _, text, _ in SHAPES:
        view.say("failed", "queue", text)
        view.note(text)
    shown = capfd.readouterr().out
    assert "[REDACTED]" in shown
    require_hidden(shown)


KEY = "sk-proj-4f9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c"
SHORTENED: dict[str, Callable[[str], str]] = {
    "a line": lambda text: one_line(text, LINE),
    "the first line": first_line,
    "a call of run": lambda text: arguments_line({"path": text}),
    "a file": lambda text: describe(TriggerEvent(TriggerType.FILE_CHANGE, "trigger-file-watcher", file_path=text)),
    "the page of a tree": lambda text: page_of(text),
}


def page_of(text: str) -> str:
    session = SessionRecord(SESSION, project="/p", status="completed")
    filler = "word " * ((lineage_html.TEXT - 110) // 5)
    return lineage_html.lineage_page([Node(session)], {SESSION: [{"role": "user", "content": filler + text}]}, "t")


@pytest.mark.parametrize("sink", SHORTENED)
def test_no_part_of_a_secret_is_left_where_a_text_is_cut(sink: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = "correct horse\nbattery staple"
    monkeypatch.setenv("HOUSE_TOKEN", known)
    for before in range(0, 120, 7):
        for secret in (KEY, known):
            shown = SHORTENED[sink]("word " * (before // 5) + "." * (before % 5) + " " + secret)
            assert [start for start in range(4, len(secret) - 8) if secret[start : start + 8] in shown] == [], shown


def test_the_arguments_of_a_call_are_shown_without_the_secrets_at_their_names() -> None:
    assert arguments_line({"user": "me", "password": "sesame"}) == "me [REDACTED]"


def test_a_table_keeps_its_columns(capfd: pytest.CaptureFixture[str]) -> None:
    print_table(("A", "B"), [("https://me:hunter2@host", "b"), ("short", "c")], empty="")
    lines = capfd.readouterr().out.splitlines()
    assert {line.index(last) for line, last in zip(lines, "Bbc", strict=True)} == {len("https://[REDACTED]@host") + 2}


def test_the_password_of_a_bundles_address_is_not_echoed(
    home: Path, project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for command in (["bundle", "validate"], ["bundle", "show"], ["run", "hello", "-b"]):
        invoke([*command, "https://me:hunter2-hunter2@127.0.0.1:9/bundle.md"])
    for kind in ("text", "json", "sarif"):
        invoke(["bundle", "validate", "--format", kind, "https://me:hunter2-hunter2@127.0.0.1:9/b.md", "./missing"])
    out, err = capfd.readouterr()
    assert "127.0.0.1:9" in out + err
    assert "hunter2" not in out + err


def test_an_unknown_option_with_a_secret_is_not_echoed(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    invoke(["ps", "https://me:hunter2-hunter2@host"])
    assert "https://[REDACTED]@host" in capfd.readouterr().err


def test_a_long_path_hides_no_cause_behind_it() -> None:
    path = f"/dev/shm/{'deep/' * 30}home/amplifier.db"
    line = first_line(f"{path}: the disk is full; what was acknowledged is kept. Free some space and try again")
    assert line.startswith("…") and "home/amplifier.db: the disk is full; " in line
    assert len(line) <= LINE
    assert first_line("/home/amplifier.db: the disk is full") == "/home/amplifier.db: the disk is full"
