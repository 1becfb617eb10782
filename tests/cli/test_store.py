"""Run `amplifier store` on real files: info, check, backup, restore, salvage, compact."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.cli import exits, invoke
from amplifier_foundation.sessions.lock import owner_lock

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
    assert set(found) == {"place", "bytes", "free", "uses", "largest", "backups"}


def test_a_store_that_is_not_there_yet_is_said(told: Told, home: Path) -> None:
    for verb in ("info", "check", "backup", "restore", "salvage", "compact"):
        code, _, err = told("store", verb)
        assert code == exits.TRY_AGAIN, verb
        assert f"{home / 'amplifier.db'}: " in err, verb
    assert not (home / "amplifier.db").exists()


def test_a_backup_brings_a_deleted_session_back(told: Told, session: str, home: Path) -> None:
    made = data(told("store", "backup", "--json"))
    assert Path(made["path"]).parent == home / "backups"
    assert told("session", "delete", session, "--yes")[0] == exits.OK
    code, out, err = told("store", "restore", "--yes")
    assert (code, out) == (exits.OK, f"restored {made['path']}\n")
    assert "The store before it is kept: " in err
    assert [each["session_id"] for each in data(told("session", "list", "--json"))] == [session]


def test_a_backup_goes_where_it_is_told_and_never_over_a_file(told: Told, session: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    assert told("store", "backup", str(copy))[:2] == (exits.OK, f"{copy}\n")
    code, _, err = told("store", "backup", str(copy))
    assert (code, "is there already" in err) == (exits.TRY_AGAIN, True)
    assert told("store", "restore", str(copy), "--yes")[0] == exits.OK
    assert session in told("session", "list")[1]


@pytest.mark.usefixtures("home", "session")
def test_nothing_is_restored_unasked_or_while_background_sessions_run(told: Told, home: Path) -> None:
    told("store", "backup")
    before = (home / "amplifier.db").stat().st_ino
    code, _, err = told("store", "restore")
    assert (code, "use --yes" in err) == (exits.USAGE, True)
    with owner_lock({"bundles": ["watcher"]}):
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
    found = data(told("store", "salvage", "--json"))
    assert (found["rows"]["messages"], found["rows"]["sessions"], found["lost"]) == (2, 1, [])
    assert told("store", "restore", found["path"], "--yes")[0] == exits.OK
    assert [each["session_id"] for each in data(told("session", "list", "--json"))] == [session]
    assert told("store", "check", "--json")[0] == exits.OK


def test_losses_are_listed(told: Told, session: str, home: Path) -> None:
    store = home / "amplifier.db"
    store.write_bytes(store.read_bytes().replace(b'"hello"', b'"jello"'))
    code, out, err = told("store", "salvage")
    assert code == exits.OK
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
