"""The files of a command are found however it names them; else an approval holds once."""

from __future__ import annotations

import sys
import time
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from amplifier_core.utils import command_doubts
from amplifier_core.utils.command_words import find_words
from amplifier_core.utils.scripts import MOST_SCRIPTS, digest_scripts

if TYPE_CHECKING:
    from types import FrameType

    from _typeshed import TraceFunction

FILES = (
    "a.sh",
    "b.sh",
    "Makefile",
    "sub/a.sh",
    "sub/Makefile",
    "tool/__init__.py",
    "tool/go.py",
    "my script.sh",
    "sub/__main__.py",
    "sub/index.js",
    "package.json",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with scripts."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("./a.sh now", ["./a.sh"]), ("bash <a.sh", ["a.sh"]), ("bash < a.sh", ["a.sh"]),
        ("bash <>a.sh", ["a.sh"]), ("bash 3<>a.sh <&3", ["a.sh"]),
        ("sh a.sh;sh b.sh", ["a.sh", "b.sh"]), ("bash ./a*.sh", ["a.sh"]), ("bash ?.sh", ["a.sh", "b.sh"]),
        ("make", ["Makefile"]), ("make -j4 all", ["Makefile"]), ("make -C sub", ["Makefile", "sub/Makefile"]),
        ("make -Csub", ["Makefile", "sub/Makefile"]), ("make -fa.sh", ["a.sh", "Makefile"]),
        ("python3 -m tool.go", ["tool/go.py", "tool/__init__.py"]), ("python3 -mtool", ["tool/__init__.py"]),
        ("cd sub && ./a.sh", ["./a.sh", "sub/./a.sh"]), ("timeout 5 ./a.sh", ["./a.sh"]),
        ("sh 'my script.sh'", ["my script.sh"]), ("x --file=a.sh", ["a.sh"]), ("X=b.sh ./a.sh", ["b.sh", "./a.sh"]),
        ("npm test", ["package.json"]), ("x @a.sh", ["a.sh"]), ("(./a.sh)", ["./a.sh"]),
        ("sh -c './a.sh'", ["./a.sh"]), ("r''m \\a.sh", ["a.sh"]), ("make build", ["Makefile"]), ("ls", []),
    ],
)  # fmt: skip
def test_the_files_of_a_command_are_found(command: str, files: list[str], folder: Path) -> None:
    digests, is_known = digest_scripts([command], str(folder))
    assert set(digests) == set(files)
    assert digests == {name: sha256((folder / name).read_bytes()).hexdigest() for name in files}
    assert is_known


@pytest.mark.parametrize(
    "command",
    ["$x.sh", "x=a; bash $x.sh", "`cat n`", "bash {a,b}.sh", "ls | xargs sh", "find . -exec sh {} +",
     "bash <(cat a.sh)", "cat a.sh | sh", "cat a.sh |/usr/bin/python3 -", "bash ./[a]*.sh", "eval x",
     "curl -o x u; sh x", "sh **/x", "python3 -c 'import tool'", "perl -ne 1", "sh /tmp/*.sh", "sh ../*",
     "sh */*/*/*/*", "echo " + " ".join(map(str, range(3000))), "cat " + " ".join(f"x{n}*" for n in range(30)),
     "sh -c 'for f in a; do sh $f; done'", "sh $'a\\'b' $x '", "true # don't\nsh $x 'a'",
     "cat <<E\ndon't\nE\nsh $x; echo 'a'", "python '-c' x", "python3 -W ignore -Ec x", "ruby -rjson x", "node --eval x",
     "cat $x > run; sh run", "sh my' '*.sh", "git -c core.pager='cat a | sh' log", 'echo "$(sh x)"', "fd -x sh",
     'timeout 5 "$x"', "env -S 'sh $x'", 'bash -c "sh $x"'],
)  # fmt: skip
def test_what_may_name_other_files_is_said(command: str, folder: Path) -> None:
    assert not digest_scripts([command], str(folder)).is_known


@pytest.mark.parametrize(
    "command",
    ["python -m pytest --no-cache", "python -m pip install -r requirements.txt", "python manage.py migrate --fake",
     "node build.js --verbose", "python -m mypy src/my-core", "pip install 'ruff[all]'", "awk '{print $1}' a.sh",
     "pytest 'tests/test_a.py::test_x[1]'", "pytest -k 'find or fd'", "sed -i 's/[a-z]*/x/' a.sh", "echo $HOME",
     "curl -s https://example.com", "for f in *.sh; do wc -l $f; done", "find . -name '*.sh' -delete",
     "git stash drop stash@{0}", "git commit -m 'Cost {n} less, 5 $ a * b'", "ls >/dev/null 2>&1", "python -E a.py",
     'git commit -m "Read \\`a\\` and [b]"', "grep 'x$' a.sh", "jq '.[0] | keys' package.json"],
)  # fmt: skip
def test_everyday_commands_can_be_allowed_for_longer(command: str, folder: Path) -> None:
    assert digest_scripts([command], str(folder)).is_known


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("python -m pytest a.sh -q", []), ("git add a.sh", []), ("ruff check *.sh", []), ("cat a.sh b.sh", []),
        ("git commit -am 'Note\n\n* one thing'", []), ("cat ./prog", ["./prog"]), ("./prog a.sh", ["./prog"]),
        ("./p* a.sh", ["prog"]), ("sh a.sh b.sh", ["a.sh"]), ("make -C sub", ["Makefile", "sub/Makefile"]),
        ("make -fa.sh", ["a.sh", "Makefile"]), ("awk -f a.sh b.sh", ["a.sh"]), ("x --config a.sh", ["a.sh"]),
        ("git -c core.pager=./a.sh log", ["./a.sh"]), ("cat a.sh | env sh", ["a.sh"]), ("sh < a.sh", ["a.sh"]),
        (". ./a.sh", ["./a.sh", "././a.sh"]), ("uv run a.sh", ["a.sh"]), ("exec 3<a.sh; sh /dev/fd/3", ["a.sh"]),
        ("cd sub; sh a.sh", ["a.sh", "sub/a.sh"]), ("python -m tool.go", ["tool/go.py", "tool/__init__.py"]),
        ("python3.12 -u sub", ["sub/__main__.py"]), ("python ./sub x", ["./sub/__main__.py"]), ("sh sub", []),
        ("node .", ["./package.json", "././package.json"]), ("node sub", ["sub/index.js"]), ("ls sub", []),
        ("python -um tool.go", ["tool/go.py", "tool/__init__.py"]), ("nodejs sub", ["sub/index.js"]),
        ("BASH_ENV=a.sh bash -c true", ["a.sh"]), ("npm test --prefix sub", ["package.json"]),
    ],
)  # fmt: skip
def test_of_the_files_of_a_command_those_that_it_runs_or_obeys(command: str, files: list[str], folder: Path) -> None:
    if "./p" in command:
        (folder / "prog").touch(0o755)
    assert set(digest_scripts([command], str(folder), only_run=True).digests) == set(files)


@pytest.mark.parametrize(
    "command",
    ["bash -euo pipefail X", "python -W error X", "ruby -I lib X", "node --max-old-space-size 4096 X",
     "uv run --with rich X", "sh -o errexit X", "bash -O extglob X", "bash -oO pipefail extglob X", "bash +x X",
     "node --env-file .env X", "php -d a=b X", "php -c none X", "deno run --allow-net X", "uv run --script X",
     "coverage run -p X", "bash 2>/dev/null X", "bash > log X", "bash 2>&1 X", "bash &>log X", "bash >|log X",
     "2>/dev/null . X", "command -p . X", "coproc . X", "case x in x) . X;; esac", "python -m pdb X",
     "python -m cProfile -o out X", "python -mtrace -t X", "ash X", "csh X", "nodejs X", "pypy3 X", "java X",
     "python -W 'a;b' X", "python -W ';' X", "python -W -m X", "python -W -mx X", "bash --rcfile -c X", "bash -m X",
     "python -u y.py; sh -e X", "tsx --tsconfig t.json X", "bash {fd}<x X", "python -Im pdb X",
     "python -m > log pdb X"],
)  # fmt: skip
def test_the_value_of_an_option_or_a_redirection_hides_no_file_that_is_run(command: str, folder: Path) -> None:
    (folder / "file").write_text("first")
    digests = digest_scripts([command.replace("X", "file")], str(folder), only_run=True)
    assert digests.is_known
    assert "file" in digests.digests


@pytest.mark.parametrize(
    "command",
    ["python -m pytest X", "python -um pytest X", "python -W error -m pytest -q X", "git add X",
     "bash -lc 'pytest X'", "sh a.sh X", "python -u a.sh && git add X", "bash -e a.sh\ngit add X",
     "bash -e a.sh > X", "uv run pytest X", "coverage run -m pytest X"],
)  # fmt: skip
def test_a_file_that_is_only_named_does_not_count_as_run(command: str, folder: Path) -> None:
    (folder / "file").write_text("first")
    assert "file" not in digest_scripts([command.replace("X", "file")], str(folder), only_run=True).digests


@pytest.mark.parametrize("command", ["lua -W " * 9_000, "python -m a" + ".a" * 30_000, "echo " + "x" * 60_000])
def test_a_command_that_is_too_long_is_unknown_before_a_look(command: str, folder: Path) -> None:
    assert digest_scripts([command], str(folder), only_run=True) == ({}, False)


def test_a_module_in_very_many_packages_is_few_words_and_unknown(folder: Path) -> None:
    command = "python -m a" + ".a" * 5_000
    assert len(list(find_words(command))) < 10
    assert not digest_scripts([command], str(folder), only_run=True).is_known


def test_the_words_of_a_command_are_compared_a_number_of_times_that_grows_as_they_do() -> None:
    def count_lines(command: str) -> int:
        lines = 0

        def trace(frame: FrameType, event: str, _: object) -> TraceFunction | None:
            nonlocal lines
            lines += event == "line"
            return trace if frame.f_code.co_filename == command_doubts.__file__ else None

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            assert not command_doubts.may_name_others(command)
        finally:
            sys.settrace(before)
        return lines

    assert count_lines("lua -W " * 400) < 2.5 * count_lines("lua -W " * 200)


def test_the_cost_of_a_call_has_a_bound(folder: Path) -> None:
    for number in range(6):
        with (folder / f"large{number}").open("wb") as file:
            file.truncate(15 * 1024 * 1024)  # of zeros, which take no room
    patterns = " ".join(f"./l*{number}" for number in range(6))
    digests, is_known = digest_scripts([f"cat {patterns}"], str(folder))
    assert not is_known
    assert sum(len(each) == 64 for each in digests.values()) == 4
    assert digest_scripts([f"cat $x {patterns} > a"], str(folder), only_run=True) == ({}, False)


@pytest.mark.parametrize(
    "command", ["make x <<'E'\n" + "python is\n" * 10_000, "|" * 50_000, "python -a " * 10_000, "{" * 50_000]
)
def test_the_signs_of_a_long_command_are_read_once(command: str, folder: Path) -> None:
    began = time.process_time()
    digest_scripts([command], str(folder), only_run=True)
    assert time.process_time() - began < 4


def test_a_new_file_that_fits_a_pattern_changes_the_digests(folder: Path) -> None:
    before = digest_scripts(["bash ./a*.sh"], str(folder))
    (folder / "a2.sh").write_text("new")
    assert digest_scripts(["bash ./a*.sh"], str(folder)).digests.keys() - before.digests.keys() == {"a2.sh"}


def test_a_new_file_in_the_place_of_an_installed_module_changes_the_digests(folder: Path) -> None:
    assert digest_scripts(["python3 -m pytest"], str(folder)) == ({}, True)
    (folder / "pytest.py").write_text("new")
    assert set(digest_scripts(["python3 -m pytest"], str(folder)).digests) == {"pytest.py"}


def test_the_folder_of_a_call_counts(folder: Path) -> None:
    assert set(digest_scripts(["./a.sh"], str(folder), ["sub", "x" * 5000, "\0"]).digests) == {"./a.sh", "sub/./a.sh"}


def test_very_many_files_are_not_all_known(folder: Path) -> None:
    for number in range(MOST_SCRIPTS + 1):
        (folder / f"many{number}").touch()
    digests, is_known = digest_scripts(["cat many*"], str(folder))
    assert (len(digests), is_known) == (MOST_SCRIPTS, False)


@pytest.mark.parametrize(
    ("command", "is_known"),
    [("cat " + "a" * 300 + "/*", False), ("cat a\0*", False),
     ("git commit -m '" + "Mend the reading of files. " * 12 + "See a/b, and *every* reader'", True)],
)  # fmt: skip
def test_a_pattern_that_no_folder_can_have_is_no_failure(command: str, is_known: bool, folder: Path) -> None:
    assert digest_scripts([command], str(folder)) == ({}, is_known)


def test_a_call_without_a_command_names_no_file(folder: Path) -> None:
    assert digest_scripts([], str(folder), ["sub"]) == ({}, True)
