"""A session whose process was killed is seen as interrupted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from amplifier_core import SessionRecord
from amplifier_core.errors import StoreDamaged
from amplifier_foundation.sessions.presence import KEY, as_it_is, is_gone, this_host, this_process

PROGRAM = """
from amplifier_foundation.sessions.presence import this_process
print(this_process(), flush=True)
input()
"""


def record(process: str) -> SessionRecord:
    return SessionRecord("s", metadata={KEY: process})


@pytest.mark.parametrize("killed", [True, False])
def test_a_session_runs_for_as_long_as_its_process(
    killed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        name = child.stdout.readline().decode().strip()
        assert not is_gone(name)
        assert as_it_is(record(name)).status == "running"
        if killed:
            child.kill()
        else:
            child.communicate(b"\n")
        child.wait()
    seen = as_it_is(record(name))
    assert (seen.status, seen.error) == ("interrupted", "its process ended while it ran")
    assert list((tmp_path / "processes").iterdir()) == []


def test_a_session_of_this_process_runs() -> None:
    assert not is_gone(this_process())


@pytest.mark.parametrize("content", [b"", b"\0" * 13, b"web\xe9-1a2b3c4d", b"a" * 100_000])
def test_a_damaged_id_of_the_host_is_named_with_the_remedy_and_left(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path))
    (tmp_path / "host").write_bytes(content)
    with pytest.raises(StoreDamaged, match=r"host: is damaged: .* Put back a copy of it; without one, remove it\."):
        this_host()
    assert (tmp_path / "host").read_bytes() == content
    (tmp_path / "host").unlink()
    made = this_host()
    assert (tmp_path / "host").read_text() == made
    assert [each.name for each in tmp_path.iterdir()] == ["host"]


def test_what_a_store_keeps_leads_to_no_other_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path))
    other = tmp_path / "up.lock"
    other.write_text("kept")
    assert is_gone("../up")
    assert other.read_text() == "kept"


def test_a_record_that_names_no_process_is_taken_at_its_word() -> None:
    assert as_it_is(SessionRecord("s")).status == "running"
