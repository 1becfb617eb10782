"""A rule that refuses a path holds for patterns, for folders that a command walks, and for the history of git."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from amplifier_core.permissions import PermissionGate, Policy, parse_permissions
from amplifier_tool_bash.commands.decoding import describe_command
from amplifier_tool_bash.commands.files import expand
from amplifier_tool_bash.commands.parsing import parse
from tests.programs import require

NAMES = (
    "ab",
    "bb",
    "a*",
    "*",
    "[x",
    "a[b",
    ".env",
    ".x/y",
    "a.c",
    "a b1",
    "ax/x",
    "bx/x",
    "cx/x/y",
    "x/.h",
    "[ab",
    "é",
)


@pytest.fixture
async def decide(mount_tools: Any, work: Path) -> Any:
    """Return the decision about a command, where `private` is refused and `asked.txt` is asked for."""
    require("bwrap")
    for name in ("private/key.txt", "pub/a.txt", "pub/b.txt", "asked.txt", "deep/in/secret.pem"):
        (work / name).parent.mkdir(exist_ok=True, parents=True)
        (work / name).write_text("x\n")
    (work / "way").symlink_to("private")
    (work / "pub" / "way").symlink_to("../private")
    subprocess.run([require("git"), "init", "-q", str(work)], check=True)
    coordinator = await mount_tools(sandbox="bubblewrap")
    section = {
        "deny": ["bash(private/**)", "bash(rm *)", "bash(curl*)"],
        "ask": ["*(asked.txt)"],
        "allow": ["bash(cat *)", "bash(touch *)", "bash(grep *)"],
    }
    gate = PermissionGate(Policy([parse_permissions(section, "user settings", is_own=True)]), work)
    coordinator.guard(gate)
    tool = coordinator.get("tools", "bash")
    return lambda command, **given: gate.decide("bash", {"command": command, **given}, tool.accesses).effect


@pytest.mark.parametrize(
    "command",
    ["cat priv*/key.txt", "cat p*/k*", "cat */key.txt", "cat [p]rivate/key.txt", "cat pr?vate/*", "cat 'priv'*/key.txt",
     "cat way/key*", "cat w*/key.txt", "ls -d pri*", "echo private/*", "head -1 pub/../priv*/key.txt", "wc */*.txt",
     "cat pub/*/key.txt", "grep x p*/key.txt", "cd pub && cat ../p*/key.txt", "git show HEAD:private/key.txt",
     "cat private/key.txt", "jq . priv*/key.txt", "git grep . HEAD:private"],
)  # fmt: skip
def test_a_pattern_is_no_way_around_a_refusal(command: str, decide: Any) -> None:
    assert decide(command) == "deny"


@pytest.mark.parametrize(
    "command",
    ["grep -r x", "grep -r x .", "grep -nR x pub", "grep --recursive x .", "grep -d recurse x .", "rg x", "rg x .",
     "find .", "find -L pub", "ls -R", "ls --recursive .", "du -a", "tree", "diff -r . pub", "diff . pub",
     "git grep x", "git grep . HEAD", "git show HEAD", "git log -p", "git diff", "git cat-file -p abc",
     "git status", "git ls-files", "git show HEAD:pub/a.txt", "git log --oneline --stat", "git diff -- ':(glob)p*/**'",
     "jq -n 'import \"key\" as $k {search:\"./private\"}; $k'", "jq 'include \"private/key\"; .' pub/a.txt",
     "md5sum -c list", "cat a*.txt", "touch x && cat pub/a*", "cat <pub/*"],
)  # fmt: skip
def test_what_may_read_a_refused_path_is_asked(command: str, decide: Any) -> None:
    assert decide(command) == "ask"


@pytest.mark.parametrize(
    "command",
    ["cat pub/*.txt", "ls *", "ls", "grep x pub/*.txt", "grep -r x deep", "rg x deep", "find deep", "du -s deep",
     "git log --oneline -5", "git log --format=%s -- pub", "git branch", "git rev-parse HEAD", "cat deep/[ab].txt",
     "echo 'priv*/key.txt'", "grep 'p*' pub/a.txt", "jq .included pub/a.txt"],
)  # fmt: skip
def test_what_reads_elsewhere_needs_no_question(command: str, decide: Any) -> None:
    expected = "deny" if command == "ls *" else "allow"  # it shows the names in `private`
    assert decide(command) == expected


async def test_what_read_file_is_refused_no_command_reads_unasked(mount_tools: Any, work: Path) -> None:
    require("bwrap")
    for name in ("private/a", "notes"):
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_text("x\n")
    coordinator = await mount_tools(sandbox="bubblewrap")
    section = {"deny": ["read_file(private/**)", "read_file(notes)", "write_file(migrations/**)"]}
    gate = PermissionGate(Policy([parse_permissions(section, "user settings", is_own=True)]), work)
    coordinator.guard(gate)
    tool = coordinator.get("tools", "bash")

    def decide(command: str) -> str:
        return gate.decide("bash", {"command": command}, tool.accesses).effect

    assert decide("cat private/a") == decide("git show HEAD:private/a") == decide("cat p*/a") == "deny"
    assert decide("cat notes") == decide("make >migrations/1.sql") == "deny"
    assert decide("grep -r x .") == decide("git log -p") == "ask"
    assert decide("ls migrations") == "allow"


def test_the_folder_of_a_call_is_read(decide: Any) -> None:
    assert decide("ls", cwd="private") == "deny"
    assert decide("ls", cwd="pub") == "allow"


async def test_without_rules_about_paths_nothing_more_is_asked(mount_tools: Any, work: Path) -> None:
    (work / "f").write_text("x")
    tool = (await mount_tools(sandbox="bubblewrap")).get("tools", "bash")
    for command in ("grep -r x .", "git log -p", "cat f*", "find ."):
        assert "opaque" not in {access.form for access in tool.accesses({"command": command})}


def test_a_folder_of_very_many_files_is_asked(tmp_path: Path) -> None:
    for number in range(2001):
        (tmp_path / f"f{number}").touch()
    [*_, last] = describe_command("cat f*", str(tmp_path), is_confined=True)
    assert last.form != "text"
    assert "opaque" in {access.form for access in describe_command("cat f*", str(tmp_path), is_confined=True)}


def test_a_file_whose_name_is_an_option_is_asked(tmp_path: Path) -> None:
    assert {access.form for access in describe_command("wc *", str(tmp_path), is_confined=True)} == {"harmless", "text"}
    (tmp_path / "--files0-from=list").touch()
    assert "opaque" in {access.form for access in describe_command("wc *", str(tmp_path), is_confined=True)}


@pytest.mark.parametrize(
    "pattern",
    ["*", "a*", ".*", "?b", "*/x", "a*/../*", "'*'", r"\**", "'a*'*", "*.[ch]", "[!a]*", "[^a]*", "[[:alpha:]]*", "[ab",
     "[a/b]*", "a[b", "'['*", "*'['", "./*", "a//x*", "**", "?", "[]a]*", "[a-c]*x", '"a b"*', "x/[.]*", "*/*/*"],
)  # fmt: skip
def test_a_pattern_fits_no_less_than_in_bash(pattern: str, tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).touch()
    shown = subprocess.run(["bash", "-c", f"printf '%s\\0' {pattern}"], cwd=tmp_path, capture_output=True, text=True)
    word = parse(f"cat {pattern}")[0].words[1]
    in_bash = {name for name in shown.stdout.split("\0")[:-1] if (tmp_path / name).exists()}
    found = set(expand(word.pattern, str(tmp_path))) if word.glob is not None else {word.text}
    assert {str(tmp_path / name) for name in in_bash} - {str(tmp_path / name) for name in found} == set()
    if "[" not in pattern and word.glob is not None and pattern != ".*":
        assert len(found) == len(in_bash), shlex.quote(pattern)
