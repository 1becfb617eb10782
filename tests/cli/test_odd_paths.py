"""Projects whose paths are not ASCII, or not UTF-8: every command works in them as elsewhere, in every locale."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.cli import exits
from amplifier_foundation.documents.safe_text import shell_word
from tests.programs import miss

ASCII = {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
"""A locale whose names of files are not UTF-8, on every system."""

BUNDLE = """---
bundle: {name: reviews}
providers: [{module: provider-playbook, config: {otherwise: {say: "seen {prompt}"}}}]
background_sessions: [{name: asked, instruction: Look.}]
---
You review.
"""


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A project in a folder whose name is no UTF-8."""
    folder = tmp_path / os.fsdecode(b"b-\xff")
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("this file system takes UTF-8 alone")
    (folder / "bundle.md").write_text(BUNDLE)
    return folder


def test_background_sessions_run_in_a_project_whose_path_is_not_utf_8(odd: Path, amplifier: Any) -> None:
    assert amplifier("trigger", "fire", "asked", cwd=odd).returncode == exits.OK
    done = amplifier("up", "--once", cwd=odd)
    assert (done.returncode, "seen" in done.stdout) == (exits.OK, True), done.stderr
    listed = json.loads(amplifier("session", "list", "--json", cwd=odd).stdout)["data"]
    assert sorted(each["status"] for each in listed) == ["completed", "idle"]
    assert amplifier("up", "--detach", cwd=odd).returncode == exits.OK
    assert "running" in amplifier("ps", cwd=odd).stdout
    assert amplifier("stop", "--all", cwd=odd).returncode == exits.OK


def run_in(locale: dict[str, str], *arguments: str | bytes, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "AMPLIFIER_TRUST": "", **locale}
    program = [sys.executable, "-P", "-m", "amplifier_foundation"]
    return subprocess.run([*program, *arguments], cwd=cwd, env=environment, capture_output=True, check=False)


@pytest.fixture
def cologne(tmp_path: Path, home: Path) -> Path:
    """A project in a folder with a name that is not ASCII, which is trusted by a program in UTF-8."""
    folder = tmp_path / "k\u00f6ln"
    folder.mkdir()
    (folder / "bundle.md").write_text(BUNDLE)
    done = run_in({"LC_ALL": "C.UTF-8"}, "trust", "--yes", cwd=folder)
    assert done.returncode == exits.OK, done.stderr
    return folder


@pytest.fixture
def latin(tmp_path: Path) -> dict[str, str]:
    """A locale whose text is Latin-1."""
    command = ["localedef", "-i", "de_DE", "-f", "ISO-8859-1", str(tmp_path / "de_DE.ISO-8859-1")]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        miss("localedef makes no locale here")
    return {"LC_ALL": "de_DE.ISO-8859-1", "LOCPATH": str(tmp_path)}


def test_a_folder_is_one_project_in_every_locale(cologne: Path, home: Path) -> None:
    assert run_in(ASCII, "up", "--detach", cwd=cologne).returncode == exits.OK
    try:
        second = run_in({"LC_ALL": "C.UTF-8"}, "up", "--detach", cwd=cologne)
        assert (second.returncode, b"a folder has one such process" in second.stderr) == (exits.CONFLICT, True)
        run = run_in({"LC_ALL": "C.UTF-8"}, "run", "hello", cwd=cologne)
        assert (run.returncode, run.stdout) == (exits.OK, b"seen hello\n")
        for each in ({"LC_ALL": "C.UTF-8"}, ASCII):
            assert len(json.loads(run_in(each, "session", "list", "--json", cwd=cologne).stdout)["data"]) == 2
    finally:
        stopped = run_in({"LC_ALL": "C.UTF-8"}, "stop", "--all", cwd=cologne)
    assert (stopped.returncode, b"has ended" in stopped.stderr + stopped.stdout) == (exits.OK, True)
    assert f"Watching {cologne}" in (home / "logs" / "up.log").read_text(encoding="utf-8")


def test_a_program_that_calls_the_command_line_runs_once_in_every_locale(home: Path, tmp_path: Path) -> None:
    (tmp_path / "wrap.py").write_text(
        'print("begun", flush=True)\nfrom amplifier_foundation.__main__ import main\nmain()\n', encoding="utf-8"
    )
    code = "from amplifier_foundation.__main__ import main\nimport sys\nsys.argv = ['amplifier', '--version']\nmain()\n"
    given_twice = code.replace("'--version'", "'--version', '--quiet'")
    for program, given in ((["wrap.py", "--version"], ""), (["-"], code), (["-"], given_twice)):
        done = subprocess.run(
            [sys.executable, *program],
            cwd=tmp_path,
            env={**os.environ, **ASCII},
            input=given,
            capture_output=True,
            text=True,
            check=True,
        )
        assert (done.stdout.count("begun"), done.stdout.count("amplifier 0.")) == (0 if given else 1, 1)


def test_a_terminal_that_is_not_utf_8_types_and_shows_text_in_its_own_encoding(
    cologne: Path, latin: dict[str, str]
) -> None:
    typed = run_in(latin, "run", "gr\u00f6\u00dfe".encode("latin-1"), cwd=cologne)
    assert (typed.returncode, typed.stdout) == (exits.OK, "seen gr\u00f6\u00dfe\n".encode("latin-1"))
    named = run_in(latin, "run", "hi", "-b", str(cologne).encode(), cwd=cologne.parent)
    assert (named.returncode, named.stdout) == (exits.OK, b"seen hi\n")
    again = run_in({**latin, "PYTHONIOENCODING": "utf-8"}, "run", "gr\u00f6\u00dfe".encode(), cwd=cologne)
    assert again.stdout == "seen gr\u00f6\u00dfe\n".encode()


def test_a_remedy_can_be_pasted_where_the_terminal_does_not_show_its_characters(cologne: Path) -> None:
    assert run_in({"LC_ALL": "C.UTF-8"}, "untrust", ".", cwd=cologne).returncode == exits.OK
    told = run_in(ASCII, "run", "hi", cwd=cologne)
    assert told.returncode == exits.WAITING
    word = told.stderr.decode("ascii").strip().rpartition("amplifier trust ")[2]
    pasted = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True)
    assert pasted.stdout.decode() == str(cologne)


@pytest.mark.parametrize("text", ["plain", "it's\\", "k\u00f6ln", "a b\nc\x1b", os.fsdecode(b"b-\xff"), "\u200c"])
def test_a_word_of_a_command_is_the_text_for_a_shell(text: str) -> None:
    word = shell_word(text)
    assert word.isprintable()
    pasted = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True)
    assert os.fsdecode(pasted.stdout) == text
