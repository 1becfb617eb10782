"""Find the scripts that a command names."""

from __future__ import annotations

from pathlib import Path

import pytest

from amplifier_core.utils.scripts import find_scripts

SUB = ["s.sh", "plain-text"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (
        "work/a.sh",
        "work/dir/b.py",
        "work/my tool.sh",
        "work/notes.txt",
        "bundle/c.js",
        "else/d.sh",
        "work/sub/s.sh",
        "work/sub/plain-text",
        "work/Makefile",
        "work/package.json",
        "work/fmt/__main__.py",
        "work/rules",
        "bundle/checks/e",
    ):
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
        ("sh notes.txt; true", ["notes.txt"]),
        ("cd sub; sh ./s.sh", ["s.sh"]),
        ("cd sub && sh plain-text", ["plain-text"]),
        ('cd "$THERE"; node c.js', ["c.js"]),
        ("for f in sub/*.sh; do sh $f; done", ["s.sh"]),
        ('for f in sub/*; do\n  sh -e "$f"; done', SUB),
        ("for f in sub/*; do [ -x $f ] && ./$f; done", SUB),
        ("for f in s.sh plain-text; do . sub/$f; done; cd sub", SUB),
        ('for f in "$THERE"/checks/*; do sh "$f"; done', ["e"]),
        ("find sub -name '*.sh' -exec sh {} +", ["a.sh", "my tool.sh", "s.sh"]),
        ("cat sub/* | sh", SUB),
        ("sh sub/*", SUB),
        ("make fmt", ["Makefile"]),
        ("make -f rules all", ["rules", "Makefile"]),
        ("make --makefile=rules", ["rules", "Makefile"]),
        ("npm run lint", ["package.json"]),
        ("python3 -m fmt", ["__main__.py"]),
        ("python3 fmt/", ["__main__.py"]),
        ("node --test .", ["package.json"]),
        ("bash -c 'python3 -mfmt'", ["__main__.py"]),
        ("ruff check *.sh sub/*", []),
        ("python3 -m black *.sh", []),
        ('sh "$HERE"/a.sh sub/*.sh notes.txt', ["a.sh"]),
        ("for f in sub/*; do prettier $f; done", []),
        ("find . -name '*.sh' | wc -l", []),
        ("black . --config notes.txt; ls source notes.txt", []),
        ("true\n. notes.txt", ["notes.txt"]),
        ("X=. make -f rules; source ./notes.txt", ["rules", "Makefile", "notes.txt"]),
        ("ls \\\n. notes.txt", []),
        ("if true; then . notes.txt; fi", ["notes.txt"]),
        ("bash -c '. notes.txt'", ["notes.txt"]),
        ("(. notes.txt) && X=1 source rules", ["notes.txt", "rules"]),
        ("; " * 20_000 + "\n" * 50_000 + "x", []),
    ],
)
def test_a_command_names_scripts_in_its_folders(folder: Path, command: str, names: list[str]) -> None:
    variables = {"HERE": str(folder / "work"), "THERE": str(folder / "bundle")}
    assert sorted(path.name for path in find_scripts(command, str(folder / "work"), variables)) == sorted(names)
