"""What is kept of changed files: the contents that an undo needs, within a bound."""

from __future__ import annotations

import logging
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation import forget_files
from amplifier_foundation.paths import data_home
from amplifier_foundation.sessions.file_changes import LARGEST_STEP, FileChanges, read_content
from amplifier_foundation.sessions.undoing import plan_undo, read_chains, restore

pytestmark = pytest.mark.usefixtures("home")


async def write(changes: FileChanges, path: Path, data: bytes) -> None:
    await changes.keep(str(path), sha256(data).hexdigest())
    path.write_bytes(data)


def kept(session_id: str, *contents: bytes) -> list[bool]:
    return [read_content(session_id, sha256(each).hexdigest()) is not None for each in contents]


async def test_of_a_large_file_what_a_turn_wrote_itself_is_not_kept_and_each_turn_is_undone(tmp_path: Path) -> None:
    path, history = tmp_path / "large", list[dict[str, Any]]()
    texts = [os.urandom(LARGEST_STEP + 1) for _ in range(6)]
    path.write_bytes(texts[0])
    changes = FileChanges("s", lambda: history)
    for data in texts[1:]:
        if data in texts[1::3]:
            history.append({"role": "user", "content": "go on"})
        await write(changes, path, data)
        history.append({"role": "tool", "content": "done"})
    assert kept("s", *texts[:5]) == [True, False, False, True, False]
    all_changes = read_chains(["s"])[0].changes
    for turn, content in ((all_changes[3:], texts[3]), (all_changes[:3], texts[0])):
        [chain] = read_chains(["s"])
        step = plan_undo(chain, {each.id for each in turn})
        assert step is not None and not step.problem
        restore([step], "s", len(history))
        assert path.read_bytes() == content


async def test_what_somebody_else_wrote_between_two_changes_of_a_turn_is_kept(tmp_path: Path) -> None:
    path, theirs = tmp_path / "large", os.urandom(LARGEST_STEP + 1)
    changes = FileChanges("s")
    await write(changes, path, os.urandom(LARGEST_STEP + 1))
    path.write_bytes(theirs)
    await write(changes, path, b"")
    assert kept("s", theirs) == [True]


async def test_a_program_that_deletes_a_session_forgets_what_is_kept_of_its_files(tmp_path: Path) -> None:
    path = tmp_path / "small"
    path.write_text("secret")
    for session_id in ("s", "other"):
        await write(FileChanges(session_id), path, b"new")
    forget_files(["s"])
    assert [each.name for each in (data_home() / "undo").iterdir() if each.is_dir()] == ["other"]


async def test_each_content_of_a_small_file_is_kept(tmp_path: Path) -> None:
    path, changes = tmp_path / "small", FileChanges("s")
    for number in range(4):
        await write(changes, path, b"%d" % number)
    assert kept("s", b"0", b"1", b"2") == [True, True, True]


async def test_a_session_that_loses_its_first_changes_for_room_says_so_once(
    home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home.mkdir(mode=0o700)
    (home / "settings.yaml").write_text("retention: {undo: 1MB}\n")
    (home / "settings.yaml").chmod(0o600)
    changes = FileChanges("s")
    path, texts = tmp_path / "large", [os.urandom(17_000_000) for _ in range(3)]
    for data in texts:
        path.write_bytes(data)
        with caplog.at_level(logging.WARNING):
            await write(changes, path, b"")
    assert kept("s", *texts) == [False, False, False]
    [said] = caplog.messages
    assert said.startswith("the first changes of session s cannot be undone any more") and "retention.undo" in said
