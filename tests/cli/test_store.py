"""Run `amplifier store` on real files: info, check, backup, restore, salvage, compact, copy."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.cli import exits, invoke
from amplifier_foundation.sessions.lock import owner_lock
from amplifier_foundation.sessions.presence import this_process
from amplifier_storage_sqlite import open_sqlite

pytestmark = pytest.mark.usefixtures("home")

BUNDLE = """---
bundle: {name: echo}
providers:
  - module: provider-playbook
    config: {rules: [], otherwise: {say: "You said: {prompt}"}}
---
Answer.
"""

Told = Callable[..., tuple[int, str, str]]


@pytest.fixture
def told(project: Path, capsys: pytest.CaptureFixture[str]) -> Told:
    (project / "bundle.md").write_text(BUNDLE)

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = invoke(arguments)
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def session(told: Told) -> str:
    return str(data(told("run", "hello", "--json"))["session_id"])


def data(answer: tuple[int, str, str]) -> Any:
    return json.loads(answer[1])["data"]


def damage(home: Path) -> None:
    store = home / "amplifier.db"
    content = bytearray(store.read_bytes())
    content[:4096] = bytes(4096)
    store.write_bytes(content)


@pytest.mark.usefixtures("home", "session")
def test_info_shows_what_takes_room(told: Told, home: Path) -> None:
    code, out, _ = told("store", "info")
    assert code == exits.OK
    assert re.search(r"^KIND +ROWS +SIZE$", out, re.M)
    assert re.search(r"^messages +2 +[0-9.]+ kB$", out, re.M)
    assert f"{home / 'amplifier.db'}: " in out
    assert "0 backups. Make one with: amplifier store backup" in out
    found = data(told("store", "info", "--json"))
    assert {use["kind"]: use["rows"] for use in found["uses"]}["sessions"] == 1
    assert set(found) == {"place", "bytes", "free", "uses", "largest", "backups", "other_backups", "replaced"}


def test_a_store_that_is_not_there_yet_is_said(told: Told, home: Path) -> None:
    for verb in ("info", "check", "backup", "restore", "salvage", "compact"):
        code, _, err = told("store", verb)
        assert code == (exits.NOT_FOUND if verb == "restore" else exits.TRY_AGAIN), verb
        assert f"{home / 'amplifier.db'}: " in err, verb
    assert not (home / "amplifier.db").exists()


def test_a_backup_brings_a_deleted_session_back(told: Told, session: str, home: Path) -> None:
    made = data(told("store", "backup", "--json"))
    assert Path(made["path"]).parent == home / "backups"
    assert told("session", "delete", session, "--yes")[0] == exits.OK
    code, out, err = told("store", "restore", "--yes")
    assert (code, out) == (exits.OK, f"restored {made['path']}\n")
    assert "Deleted since the backup, and coming back: 1 session." in err
    kept = err.partition("The store before it is kept: ")[2].strip()
    assert data(told("store", "info", "--json"))["replaced"] == [kept]
    assert f"kept by a restore until you delete it: {kept}\n" in told("store", "info")[1]
    assert [each["session_id"] for each in data(told("session", "list", "--json"))] == [session]


def test_a_store_that_was_lost_is_told_with_its_newest_backup(told: Told, session: str, home: Path) -> None:
    assert told("store", "backup")[0] == exits.OK
    newest = told("store", "backup")[1].strip()
    (home / "amplifier.db").unlink()
    said = f"was not there: a new store is made, and is empty. To go back to {newest}: amplifier store restore"
    assert said in told("session", "list")[2]
    assert said not in told("session", "list")[2]
    assert told("store", "restore", "--yes")[0] == exits.OK
    assert session in told("session", "list")[1]


def test_a_restore_keeps_no_store_where_none_was(told: Told, session: str, home: Path) -> None:
    for asks_json in (False, True):
        assert told("store", "backup")[0] == exits.OK
        (home / "amplifier.db").unlink()
        code, out, err = told("store", "restore", "--yes", *(["--json"] if asks_json else []))
        assert (code, "is kept" in err) == (exits.OK, False)
        assert not asks_json or json.loads(out)["data"]["replaced"] is None


def test_a_backup_goes_where_it_is_told_and_never_over_a_file(told: Told, session: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    assert told("store", "backup", str(copy))[:2] == (exits.OK, f"{copy}\n")
    code, _, err = told("store", "backup", str(copy))
    assert (code, "is there already" in err) == (exits.TRY_AGAIN, True)
    assert told("store", "restore", str(copy), "--yes")[0] == exits.OK
    assert session in told("session", "list")[1]


def test_a_restore_counts_what_was_handled_since_and_what_the_backup_lacks(
    told: Told, session: str, project: Path, home: Path
) -> None:
    queue = (
        "background_sessions: [{name: clerk, instruction_template: x, triggers: [{module: trigger-manual}]}]\n---\nA"
    )
    (project / "bundle.md").write_text(BUNDLE.replace("---\nA", queue))
    assert told("trigger", "fire", "clerk")[0] == exits.OK
    assert told("store", "backup")[0] == exits.OK
    assert told("up", "--once", "-q")[0] == exits.OK
    assert told("trigger", "fire", "clerk")[0] == exits.OK
    assert told("run", "more", "--resume", session, "--accept")[0] == exits.OK
    code, _, err = told("store", "restore")
    counts = "Handled since the backup: 1 event. Those that wait in it, and those of file watchers and timers, are"
    lacks = r"The backup lacks 1 waiting event and 3 sessions, in whole or in part\.\n"  # of the event, of `up`, longer
    assert (code, counts in err) == (exits.USAGE, True)
    assert re.search(lacks, err)
    found = data(told("store", "restore", "--yes", "--json"))
    assert found["losses"] == {"handled": 1, "waiting": 1, "sessions": 3, "returning": 0}
    assert told("pause", "clerk")[2] == "echo/clerk is paused\n"
    assert told("up", "--once", "-q")[0] == exits.OK
    assert "clerk-" not in told("session", "list")[1]  # its event waits
    assert told("store", "restore", "--yes")[2].startswith("Handled since") is False


@pytest.mark.usefixtures("home", "session")
def test_a_mistyped_backup_is_refused_before_anything_is_counted_or_made(told: Told, tmp_path: Path) -> None:
    missing = tmp_path / "typo.db"
    for asked in ((), ("--yes",)):
        code, out, err = told("store", "restore", str(missing), *asked)
        assert (code, out) == (exits.NOT_FOUND, "")
        assert err == f"amplifier: {missing}: is not a file. Name a backup; see: amplifier store info\n"
    assert not missing.exists()


@pytest.mark.usefixtures("home", "session")
def test_nothing_is_restored_unasked_or_while_background_sessions_run(told: Told, home: Path) -> None:
    told("store", "backup")
    before = (home / "amplifier.db").stat().st_ino
    code, _, err = told("store", "restore")
    assert (code, "use --yes" in err) == (exits.USAGE, True)
    with owner_lock({"bundles": ["watcher"], "projects": ["/p"]}):
        code, _, err = told("store", "restore", "--yes")
    assert (code, "runs watcher" in err) == (exits.CONFLICT, True)
    assert (home / "amplifier.db").stat().st_ino == before


def test_a_damaged_store_is_checked_salvaged_and_replaced(told: Told, session: str, home: Path) -> None:
    assert told("store", "check")[:2] == (exits.OK, "")
    damage(home)
    code, _, err = told("session", "list")
    assert code == exits.FAILED
    assert "amplifier store salvage" in err
    code, out, _ = told("store", "check")
    assert (code, "amplifier store salvage" in out) == (exits.FAILED, True)
    restored = Path(data(told("store", "salvage", "--json"))["path"])
    assert (
        "What was handled since the backup, and what it lacks, is unknown."
        in told("store", "restore", str(restored))[2]
    )
    restored.unlink()
    found = data(told("store", "salvage", "--json"))
    assert (found["rows"]["messages"], found["rows"]["sessions"], found["lost"]) == (2, 1, [])
    assert told("store", "restore", found["path"], "--yes")[0] == exits.OK
    assert [each["session_id"] for each in data(told("session", "list", "--json"))] == [session]
    assert told("store", "check", "--json")[0] == exits.OK


def test_losses_are_listed(told: Told, session: str, home: Path) -> None:
    store = home / "amplifier.db"
    store.write_bytes(store.read_bytes().replace(b'"hello"', b'"jello"'))
    code, out, err = told("store", "salvage")
    assert code == exits.FAILED
    assert "lost: 1 rows of messages are damaged\n" in out
    assert f"lost: session {session}: 1 of its messages are missing\n" in out
    assert "Use it with: amplifier store restore " in err


@pytest.mark.usefixtures("home", "session")
def test_a_store_is_compacted(told: Told) -> None:
    assert told("store", "compact")[0] == exits.OK
    done = data(told("store", "compact", "--full", "--json"))
    assert done["after"] <= done["before"]
    assert done["free"] == 0


def test_a_storage_without_an_administration_says_so(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMPLIFIER_STORAGE", "storage-jsonl")
    code, _, err = told("store", "info")
    assert code == exits.USAGE
    assert "storage-jsonl offers no administration" in err


@pytest.fixture
def copied(told: Told, session: str, tmp_path: Path) -> Path:
    path = tmp_path / "copy.db"
    assert told("store", "copy", "sqlite", str(path))[0] == exits.OK
    return path


def test_a_store_is_copied_and_used_in_place_of_the_old_one(told: Told, session: str, tmp_path: Path) -> None:
    path = tmp_path / "copy \U0001f600.db"
    code, out, err = told("store", "copy", "sqlite", str(path))
    assert code == exits.OK
    assert re.search(r"^messages +2 +[0-9a-f]{16}$", out, re.M)
    assert "copying messages: 2\n" in err
    assert "Everything is copied, and the same. The old store stays as it is: " in err
    advice = re.search(r"^Use the new one with: amplifier (.+)$", err, re.M)
    assert advice is not None
    assert told(*shlex.split(advice[1]))[0] == exits.OK
    assert told("run", "again", "--resume", session)[0] == exits.OK
    assert data(told("session", "show", session, "--json"))["turn_count"] == 2
    assert "Use the new one" not in told("store", "copy", "settings", str(tmp_path / "third.db"))[1]


def test_the_totals_of_a_copy_are_json(told: Told, copied: Path, home: Path) -> None:
    code, out, err = told("store", "copy", "settings", str(copied), "--json")
    assert code == exits.OK
    found = json.loads(out)["data"]
    assert (found["from"], found["to"]) == (str(home / "amplifier.db"), str(copied))
    assert (found["was_there"], found["left_out"], found["totals"]["messages"]["rows"]) == (True, [], 2)
    assert "Everything" not in err


def test_a_copy_of_a_changed_store_goes_elsewhere(told: Told, session: str, copied: Path) -> None:
    assert told("run", "again", "--resume", session)[0] == exits.OK
    code, _, err = told("store", "copy", "sqlite", str(copied))
    assert (code, "is not empty, and holds no copy of this store" in err) == (exits.CONFLICT, True)


def test_a_store_in_use_is_not_copied(told: Told, session: str, home: Path, tmp_path: Path) -> None:
    path = tmp_path / "copy.db"
    with owner_lock({"bundles": ["watcher"], "projects": ["/p"]}):
        code, _, err = told("store", "copy", "sqlite", str(path))
    assert (code, "runs watcher" in err) == (exits.CONFLICT, True)
    store = open_sqlite({"path": home / "amplifier.db"})
    asyncio.run(store.update(session, status="running", metadata={"process": this_process()}))
    asyncio.run(store.close())
    code, _, err = told("store", "copy", "sqlite", str(path))
    assert (code, f"runs session '{session}'" in err) == (exits.CONFLICT, True)
    assert not path.exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("nowhere", "copy.db"), exits.NOT_FOUND, "unknown storage 'nowhere'"),
        (("old.db", "copy.db"), exits.TRY_AGAIN, "old.db: is not there"),
        (("sqlite", "settings"), exits.USAGE, "FROM and TO are the same store"),
        (("sqlite", "link.db"), exits.USAGE, "FROM and TO are the same store"),
        (("sqlite", "jsonl"), exits.USAGE, "storage-jsonl cannot be copied: its package offers no transfer"),
        (("sqlite", "copy.db", "--to-config", "speed=1"), exits.USAGE, "unknown key 'speed'"),
        (("sqlite", "copy.db", "--to-config", "path"), exits.USAGE, "'path' has no value"),
        (("sqlite",), exits.USAGE, "Missing argument 'TO'"),
    ],
)
@pytest.mark.usefixtures("session")
def test_a_copy_between_stores_that_cannot_be_is_refused(
    told: Told, home: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    Path("link.db").symlink_to(home / "amplifier.db")
    found, _, err = told("store", "copy", *arguments)
    assert (found, message in err) == (code, True), err
    assert not Path("copy.db").exists()


def test_a_quiet_copy_shows_no_progress(told: Told, session: str, tmp_path: Path) -> None:
    code, _, err = told("--quiet", "store", "copy", "sqlite", str(tmp_path / "copy.db"))
    assert (code, "copying" in err) == (exits.OK, False)


def test_a_store_of_a_newer_version_is_no_reason_to_try_again(told: Told, session: str, home: Path) -> None:
    with closing(sqlite3.connect(home / "amplifier.db")) as db:
        db.execute("PRAGMA user_version = 999")
    for command in (("session", "list"), ("store", "check"), ("run", "--resume", session, "hello")):
        code, _, err = told(*command)
        assert (code, "newer version (schema 999" in err) == (exits.CONFLICT, True), command
