"""What an editor sees of background sessions, and their questions."""

from __future__ import annotations

import asyncio
import fcntl
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_acp import following
from amplifier_core.errors import StoreUnavailable
from amplifier_core.storage import SessionRecord
from amplifier_storage_sqlite.store import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

PATIENCE = 60.0
"""Seconds."""

WATCHER = """---
bundle: {name: watcher}
providers:
  - module: provider-playbook
    config:
      delay_ms: DELAY
      rules:
        - when: {user: '^go'}
          say: "I write."
          call: {tool: write_file, input: {file_path: out.txt, content: "done"}}
        - when: {tool: write_file, output: 'denied'}
          say: "Refused."
        - when: {tool: write_file}
          say: "Written."
tools: [{module: tool-filesystem}]
permissions: {ask: ["write_file"]}
background_sessions:
  - name: writer
    instruction_template: go
    triggers: [{module: trigger-manual}]
---
You write.
"""


@contextmanager
def up(editors: Any, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run the background sessions of a folder."""
    command = [sys.executable, "-m", "amplifier_foundation", "up", "bundle.md"]
    with (folder / "up.txt").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=editors.environment, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE)


class Failing(SqliteStore):
    """A store that fails for a moment: at its second and third look at a session."""

    looks = 0

    async def get(self, session_id: str) -> SessionRecord:
        self.looks += 1
        if self.looks in (2, 3):
            raise StoreUnavailable("sessions.db", "database is locked")
        return await super().get(session_id)


@contextmanager
def living_process(home: Path) -> Iterator[str]:
    """Hold the lock of a process, as sessions name it."""
    (home / "processes").mkdir(parents=True)
    with (home / "processes" / "1-other.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield "1-other"


def until_up(editors: Any, folder: Path) -> None:
    """Wait until the background sessions run."""
    while "writer" not in editors.run("ps", folder=folder):
        pass


def test_a_running_background_session_is_listed_followed_and_continued(editors: Any, make: Callable[..., Path]) -> None:
    folder = make(WATCHER.replace("DELAY", "700").replace('["write_file"]', "[]"))
    editor = editors.start()
    with up(editors, folder):
        until_up(editors, folder)
        editors.run("trigger", "fire", "writer", folder=folder)
        listed: list[dict[str, str]] = []
        while not listed:
            listed = editor.call("session/list", cwd=str(folder))["sessions"]
        session = listed[0]["sessionId"]
        editor.load(session, folder)
        editor.until(lambda: "Written." in editor.text_of(session))
        assert editor.updates_of(session, "user_message_chunk")[0]["content"]["text"].startswith("go")
    fork = editor.call("session/fork", sessionId=session, cwd=str(folder))["sessionId"]
    assert editor.prompt(fork, "go on")["stopReason"] == "end_turn"


def test_the_question_of_a_background_session_reaches_the_editor_on_its_project(
    editors: Any, make: Callable[..., Path]
) -> None:
    folder = make(WATCHER.replace("DELAY", "0"))
    editor = editors.start()
    session = editor.new(folder)
    with up(editors, folder):
        until_up(editors, folder)
        editors.run("trigger", "fire", "writer", folder=folder)
        editor.until(lambda: bool(editor.questions))
        [question] = editor.questions
        assert question["params"]["sessionId"] == session
        assert question["params"]["toolCall"]["title"] == "writer: write_file out.txt"
        while not (folder / "out.txt").exists():
            editor.call("session/list")
        assert " (editor)\n" in editors.run("logs", "writer", folder=folder)
    assert (folder / "out.txt").read_text() == "done"


def test_the_question_of_a_background_session_is_asked_again_when_its_session_is_closed(
    editors: Any, make: Callable[..., Path]
) -> None:
    folder = make(WATCHER.replace("DELAY", "0"))
    editor = editors.start()
    other, session = editor.new(folder), editor.new(folder)
    editor.allow = lambda asked: None if asked["sessionId"] == session else asked["options"][0]["optionId"]
    with up(editors, folder):
        until_up(editors, folder)
        editors.run("trigger", "fire", "writer", folder=folder)
        editor.until(lambda: bool(editor.questions))
        editor.call("session/close", sessionId=session)
        editor.until(lambda: len(editor.questions) == 2)
        assert [each["params"]["sessionId"] for each in editor.questions] == [session, other]
        while not (folder / "out.txt").exists():
            editor.call("session/list")


async def test_a_session_is_followed_from_what_was_shown_and_past_a_store_that_fails_for_a_moment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(following, "LOOK", 0.0)
    store, told = Failing(tmp_path / "sessions.db", 1.0), list[dict[str, Any]]()
    with living_process(tmp_path / "home") as process:
        record = await store.create(SessionRecord("one", project=str(tmp_path), metadata={"process": process}))
        await store.append("one", [{"role": "user", "content": text} for text in ("shown", "meanwhile")], at=0)
        record = await store.get("one")
        assert following.is_elsewhere(record)
        task = asyncio.create_task(following.follow(store, record, 1, lambda update: told.append(update["content"])))
        while store.looks < 4:
            await asyncio.sleep(0)
        await store.append("one", [{"role": "user", "content": "later"}], at=2)
        await store.update("one", status="completed")
        await asyncio.wait_for(task, PATIENCE)
    assert [each["text"] for each in told] == ["meanwhile", "later"]
    await store.close()


async def test_a_session_whose_messages_are_damaged_is_followed_no_longer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))
    store, told = SqliteStore(tmp_path / "sessions.db", 1.0), list[dict[str, Any]]()
    with living_process(tmp_path / "home") as process:
        await store.create(SessionRecord("one", project=str(tmp_path), metadata={"process": process}))
        await store.append("one", [{"role": "user", "content": text} for text in ("shown", "damaged")], at=0)
        await store.close()
        with closing(sqlite3.connect(tmp_path / "sessions.db")) as db, db:
            db.execute("UPDATE messages SET digest = 0 WHERE position = 1")
        store = SqliteStore(tmp_path / "sessions.db", 1.0)
        record = await store.get("one")
        await asyncio.wait_for(following.follow(store, record, 1, told.append), PATIENCE)
    assert told == []
    assert "is followed no longer" in caplog.text and "store salvage" in caplog.text
    await store.close()


@pytest.mark.parametrize("is_taken_again", [False, True])
async def test_a_prompt_waits_no_longer_than_a_moment_for_what_was_said_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_taken_again: bool
) -> None:
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(following, "LOOK", 0.0)
    store = SqliteStore(tmp_path / "sessions.db", 1.0)
    task = asyncio.create_task(asyncio.sleep(PATIENCE))  # as if the store could not be read
    with living_process(tmp_path / "home") as process:
        metadata = {"process": process} if is_taken_again else {}
        await store.create(SessionRecord("one", project=str(tmp_path), metadata=metadata))
        await following.finish(task, store, "one")
    await asyncio.wait({task}, timeout=0)
    assert task.cancelled() is not is_taken_again
    task.cancel()
    await store.close()
