"""Find the scripts that a command names."""

from __future__ import annotations

from pathlib import Path

import pytest

from amplifier_core.utils.scripts import find_scripts


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("work/a.sh", "work/dir/b.py", "work/my tool.sh", "work/notes.txt", "bundle/c.js", "else/d.sh"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text")
    (tmp_path / "work/plain").write_text("#!/bin/sh\n")
    (tmp_path / "work/mode").write_text("x")
    (tmp_path / "work/mode").chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("./a.sh", ["a.sh"]),
        ("sh a.sh && python3 dir/b.py", ["a.sh", "b.py"]),
        ('"$HERE"/a.sh --quiet', ["a.sh"]),
        ("${THERE}/c.js", ["c.js"]),
        ("bash -c 'cat x; ./a.sh'", ["a.sh"]),
        ("'./my tool.sh'", ["my tool.sh"]),
        ("./plain; ./mode", ["plain", "mode"]),
        ("X=./a.sh; (sh $X)", ["a.sh"]),
        ("prettier notes.txt", []),
        ("python3 -u notes.txt a.sh", ["notes.txt", "a.sh"]),
        ("/usr/bin/env bash notes.txt", ["notes.txt"]),
        ("true; sh notes.txt", ["notes.txt"]),
        ("sh a.sh notes.txt", ["a.sh"]),
        ("sh ../else/d.sh; /bin/sh; echo 'no end", []),
        ("a\0b", []),
        ("~nobody-of-this-name/x.sh", []),
        ("x" * 10_000, []),
        ("sh a.sh a.sh", ["a.sh"]),
    ],
)
def test_a_command_names_scripts_in_its_folders(folder: Path, command: str, names: list[str]) -> None:
    variables = {"HERE": str(folder / "work"), "THERE": str(folder / "bundle")}
    assert [path.name for path in find_scripts(command, str(folder / "work"), variables)] == names
