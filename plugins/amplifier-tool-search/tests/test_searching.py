"""Searching a real folder by ripgrep and by Python: both find the same."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import ModuleCoordinator
from amplifier_core.permissions import PermissionGate, Policy, parse_permissions
from amplifier_core.validation.behavioral import ToolBehaviorTests
from amplifier_core.validation.structural import ToolStructuralTests
from amplifier_tool_search import check_config, config_schema, mount, tool
from tests.programs import require

from .conftest import make

if TYPE_CHECKING:
    from .conftest import Call

pytestmark = pytest.mark.slow


class TestStructure(ToolStructuralTests):
    """The structure of every tool's module."""


class TestBehavior(ToolBehaviorTests):
    """The behavior of every tool."""


def write(work: Path, **files: str | bytes) -> None:
    for name, content in files.items():
        put(work, name, content)


def put(work: Path, name: str, content: str | bytes) -> None:
    (work / name).parent.mkdir(parents=True, exist_ok=True)
    (work / name).write_bytes(content.encode() if isinstance(content, str) else content)


@pytest.fixture
def tree(work: Path) -> Path:
    for name in ("a.py", "sub/b.py", "sub/c.ts", "docs/d.md", ".hidden/e.py"):
        put(work, name, f"one {name}\nneedle 1\nthree\nNeedle 2\nfive\n")
    return work


async def test_lines_are_found_with_their_numbers_in_the_order_of_paths(tree: Path, call: Call) -> None:
    output = (await call(r"^needle \d$", path="sub")).output
    assert output == {
        "matches": [
            {"file_path": "sub/b.py", "line": 2, "text": "needle 1"},
            {"file_path": "sub/c.ts", "line": 2, "text": "needle 1"},
        ],
        "count": 2,
        "truncated": False,
    }


async def test_lines_around_are_returned_too(tree: Path, call: Call) -> None:
    output = (await call("needle", path="a.py", context=2, ignore_case=True)).output
    assert output["matches"] == [
        {"file_path": "a.py", "line": 2, "text": "needle 1", "before": ["one a.py"], "after": ["three", "Needle 2"]},
        {"file_path": "a.py", "line": 4, "text": "Needle 2", "before": ["needle 1", "three"], "after": ["five"]},
    ]


@pytest.mark.parametrize(
    ("given", "files"),
    [
        ({}, [".hidden/e.py", "a.py", "docs/d.md", "sub/b.py", "sub/c.ts"]),
        ({"type": "py"}, [".hidden/e.py", "a.py", "sub/b.py"]),
        ({"files": "sub/*.{py,ts}"}, ["sub/b.py", "sub/c.ts"]),
        ({"files": "*.py", "path": "sub"}, ["sub/b.py"]),
        ({"files": "sub/**", "type": "md"}, []),
        ({"path": "a.py"}, ["a.py"]),
    ],
)
async def test_the_names_of_files_are_listed(tree: Path, call: Call, given: dict[str, Any], files: list[str]) -> None:
    assert (await call("needle", output="files", **given)).output["files"] == files


async def test_fitting_lines_are_counted(tree: Path, call: Call) -> None:
    output = (await call("needle", output="count", ignore_case=True, path="sub")).output
    assert output["counts"] == [{"file_path": "sub/b.py", "count": 2}, {"file_path": "sub/c.ts", "count": 2}]


async def test_a_fixed_text_is_no_expression(work: Path, call: Call) -> None:
    write(work, a="x.y(\nxzy(\n-e\n")
    assert [each["line"] for each in (await call("x.y(", fixed=True)).output["matches"]] == [1]
    assert [each["line"] for each in (await call("-e", fixed=True)).output["matches"]] == [3]
    assert [each["line"] for each in (await call("--help|-e")).output["matches"]] == [3]


@pytest.mark.parametrize("output", ["content", "files", "count"])
async def test_results_come_in_pieces(work: Path, call: Call, output: str) -> None:
    for number in range(7):
        put(work, f"{number}.txt", "needle\n" * (3 if output == "content" else 1))
    whole = (await call("needle", output=output)).output
    [name] = {"matches", "files", "counts"} & set(whole)
    assert (whole["truncated"], "next_offset" in whole) == (False, False)
    read: list[Any] = []
    offset: int | None = 0
    while offset is not None:
        piece = (await call("needle", output=output, max_results=5, offset=offset)).output
        read, offset = read + piece[name], piece.get("next_offset")
        assert piece["truncated"] is (offset is not None)
    assert read == whole[name]


async def test_many_long_lines_come_in_pieces_too(work: Path, call: Call) -> None:
    write(work, a=("needle" + "x" * 900 + "\n") * 900)
    output = (await call("needle", max_results=1000)).output
    assert output["truncated"] is True
    assert output["next_offset"] == output["count"] < 300
    assert {len(match["text"]) for match in output["matches"]} == {500}
    assert output["matches"][0]["text"].endswith("x…")


# what is left out


async def test_ignored_files_are_left_out_unless_they_are_named_or_asked_for(work: Path, call: Call) -> None:
    put(work, ".gitignore", "*.log\n/build/\n!keep.log\n")
    put(work, "sub/.gitignore", "*.py\n")
    for name in ("a.log", "keep.log", "build/x.txt", "sub/b.py", "sub/build/y.txt", "c.py", "node_modules/z.txt"):
        put(work, name, "needle\n")
    assert (await call("needle", output="files")).output["files"] == ["c.py", "keep.log", "sub/build/y.txt"]
    assert (await call("needle", output="files", path="build")).output["files"] == ["build/x.txt"]
    assert (await call("needle", output="files", path="sub/b.py")).output["files"] == ["sub/b.py"]
    assert (await call("needle", output="files", ignored=True)).output["files"] == [
        "a.log", "build/x.txt", "c.py", "keep.log", "sub/b.py", "sub/build/y.txt",
    ]  # fmt: skip


async def test_git_lists_the_same_files(work: Path, call: Call) -> None:
    chance = random.Random(20261123)
    names = ("a", "b", "ab", "x.py", ".h", "a b", "caf\u00e9")
    for _ in range(60):
        folders = chance.choices(("d", "e", "d/f", "."), k=1)[0]
        put(work, f"{folders}/{chance.choice(names)}", "needle\n")
    for folder in (".", "d"):
        rules = chance.choices(
            ("a*", "!ab", "/b", "e/", "*.py", "!x.py", "d/*", "!d/f", "?", "[a-c]", "# no", ".*"), k=4
        )
        put(work, f"{folder}/.gitignore", "\n".join(rules) + "\n")
    subprocess.run(["git", "init", "--quiet", str(work)], check=True)
    command = ["git", "ls-files", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=work, capture_output=True, text=True, check=True).stdout.split("\0")
    wanted = sorted(name for name in listed if name and not name.endswith(".gitignore"))
    found = (await call("needle", output="files", max_results=1000)).output["files"]
    assert sorted(found) == wanted
    assert 0 < len(wanted) < 25


SECRETS = (".env", "deep/.env.local", "deep/a.pem", ".aws/config", ".ssh/id_rsa")


async def test_secrets_are_left_out_also_through_links_and_hidden_folders(
    work: Path, call: Call, coordinator: ModuleCoordinator
) -> None:
    for name in (*SECRETS, "ok.txt", ".github/workflows/ci.yml"):
        put(work, name, "needle\n")
    (work / "link.txt").symlink_to(".env")
    (work / "folder").symlink_to(".aws")
    (work / "out.txt").symlink_to("../outside.txt")
    (work / "up").symlink_to("..")
    for is_guarded in (False, True):
        if is_guarded:
            coordinator.guard(PermissionGate(Policy([]), work))
        output = (await call("needle", output="files", ignored=True)).output
        assert (output["files"], output["skipped"]) == ([".github/workflows/ci.yml", "ok.txt"], 6)
        output = (await call("needle", path=".aws")).output
        assert (output["matches"], output["skipped"]) == ([], 1)


@pytest.mark.parametrize("effect", ["deny", "ask"])
@pytest.mark.parametrize("rule", ["read_file(private/**)", "search(private/**)", "*(**/private/*.txt)"])
async def test_what_may_not_be_read_is_left_out(
    work: Path, call: Call, coordinator: ModuleCoordinator, effect: str, rule: str
) -> None:
    for name in ("private/x.txt", "public/x.txt"):
        put(work, name, "needle\n")
    (work / "other.txt").symlink_to("private/x.txt")
    section = {effect: [rule], "allow": ["search"]}
    coordinator.guard(PermissionGate(Policy([parse_permissions(section, "settings", is_own=True)]), work))
    output = (await call("needle")).output
    assert ([match["file_path"] for match in output["matches"]], output["skipped"]) == (["public/x.txt"], 2)


@pytest.mark.parametrize("path", ["..", "../outside.txt", "/etc/passwd", "out.txt", "up/outside.txt", "~"])
async def test_no_search_begins_outside(work: Path, call: Call, path: str) -> None:
    (work / "out.txt").symlink_to("../outside.txt")
    (work / "up").symlink_to("..")
    result = await call("needle", path=path)
    assert result.error["type"] == "OutsideFolder"


async def test_what_is_no_text_file_is_passed_over(work: Path, call: Call) -> None:
    write(work, binary=b"needle\0", utf16="\ufeffneedle".encode("utf-16"), text=b"\xff needle\r\n", empty=b"")
    os.mkfifo(work / "fifo")
    put(work, "late", b"x" * 9000 + b"\n\0 needle\nneedle")
    put(work, "mark", b"\xef\xbb\xbfneedle")
    found = (await call("needle$")).output["matches"]
    assert [(match["file_path"], match["line"], match["text"].strip("\0")) for match in found] == [
        ("late", 2, " needle"), ("late", 3, "needle"), ("mark", 1, "needle"), ("text", 1, "\ufffd needle"),
    ]  # fmt: skip
    assert (await call("needle", path="fifo")).error["type"] == "NotARegularFile"


async def test_a_name_that_is_no_utf8_is_shown_with_its_bytes(work: Path, call: Call) -> None:
    (work / os.fsdecode(b"caf\xe9")).write_text("needle")
    (work / "a\n/dev/fd/0:1:b").parent.mkdir(parents=True)
    (work / "a\n/dev/fd/0:1:b").write_text("needle")
    found = (await call("needle", output="files")).output["files"]
    assert found == ["a\n/dev/fd/0:1:b", r"caf\xe9"]


# both ways

PATTERNS = [
    "needle", "^$", "^needle", "needle$", r"\bneedle\b", r"n.{2,4}le", "(?i)NEEDLE", "[^a-z]+$", r"\d+", r"\w+\s\w+",
    "a|b|é", "ne+dle?", "é", "x*", r"\.", "(needle)(?P<n> )?", r"\S$", "日",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
async def test_ripgrep_and_python_find_the_same(work: Path, pattern: str) -> None:
    require("rg")
    chance = random.Random(5)
    words = ["needle", "Needle", "", "a", "é", "x1", "12 needle", "needle ", "日本", ".", "\t", "y" * 700, "nEEdle"]
    for number in range(40):
        ends = chance.choice(["\n", "\r\n"])
        put(work, f"{chance.choice('abc')}/{number}.txt", ends.join(chance.choices(words, k=chance.randint(0, 30))))
    both = [(await make(work, ripgrep=ripgrep)).get("tools", "search") for ripgrep in (True, False)]
    for given in ({}, {"context": 3}, {"output": "count"}, {"output": "files"}, {"ignore_case": True, "offset": 20}):
        asked = {"pattern": pattern, "max_results": 50, **given}
        by_ripgrep, by_python = [(await each.execute(asked)).output for each in both]
        assert by_ripgrep == by_python


async def test_more_files_than_one_call_of_ripgrep_takes_are_searched(work: Path) -> None:
    require("rg")
    for number in range(2_100):
        put(work, f"{number:04}.txt", "needle\n")
    found = (
        await (await make(work))
        .get("tools", "search")
        .execute({"pattern": "needle", "offset": 2_050, "output": "files"})
    )
    assert found.output["files"] == [f"{number:04}.txt" for number in range(2_050, 2_100)]


@pytest.mark.parametrize("pattern", [r"(?<=x)needle", r"(n)e\1?edle", "(?!a)needle", "|".join(["needle"] * 30_000)])
async def test_a_pattern_that_ripgrep_does_not_know_is_searched_by_python(work: Path, call: Call, pattern: str) -> None:
    write(work, a="xneedle\n")
    assert (await call(pattern)).output["count"] == 1


@pytest.mark.parametrize("pattern", ["(", "a{99999999999999}", "[z-a]"])
async def test_a_pattern_that_is_none_is_a_failure(work: Path, call: Call, pattern: str) -> None:
    write(work, a="x\n")
    error = (await call(pattern)).error
    assert error["message"].startswith("pattern is not a regular expression: ")


@pytest.mark.parametrize("is_there", [True, False])
async def test_the_program_is_looked_for_once_and_never_in_the_project(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    traced = tmp_path / "traced"
    for folder in (work / "bin", tmp_path / "bin"):
        put(folder, "rg", f'#!/bin/sh\nprintf "%s\\n" "$0" "$@" "$(env)" >> {traced}\nexit 1\n')
        (folder / "rg").chmod(0o755)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "rg").symlink_to(work / "bin" / "rg")
    monkeypatch.setenv("PATH", f".:bin:{work}/bin:{tmp_path}/linked:{tmp_path / 'bin' if is_there else '/nowhere'}")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(work / "rc"))
    monkeypatch.chdir(work)
    write(work, a="needle\n")
    search = (await make(work)).get("tools", "search")
    result = await search.execute({"pattern": "--pre=sh", "fixed": True})
    assert result.output["count"] == 0
    assert traced.exists() is is_there
    if is_there:
        program, *arguments = traced.read_text().splitlines()
        assert program == str(tmp_path / "bin" / "rg")
        assert arguments[0] == "--no-config"
        assert arguments[arguments.index("--") + 1] == "--pre=sh"
        assert not any(each.startswith("--pre") for each in arguments[: arguments.index("--")])
        assert "RIPGREP_CONFIG_PATH" not in traced.read_text()


# limits

RUNAWAY = "(a+)+$"


async def test_a_search_that_takes_too_long_is_ended(work: Path) -> None:
    write(work, a="a" * 64 + "!")
    search = (await make(work, ripgrep=False, timeout=0.3)).get("tools", "search")
    assert (await search.execute({"pattern": RUNAWAY})).error == {
        "message": "gave up after 0.3 s; narrow `path` or `files`, or use a simpler pattern",
        "type": "TimeoutError",
    }


async def test_a_cancelled_search_ends_its_process_and_ripgrep(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "began")
    put(tmp_path, "bin/rg", f"#!/bin/sh\necho $$ > {tmp_path}/began\nexec /bin/sleep 600\n")
    (tmp_path / "bin" / "rg").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    write(work, a="needle\n")
    search = (await make(work)).get("tools", "search")
    searching = asyncio.ensure_future(search.execute({"pattern": "needle"}))
    child = int(await asyncio.to_thread((tmp_path / "began").read_text))
    searching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await searching
    deadline = asyncio.get_running_loop().time() + 30
    while is_running(child):  # its new parent reaps it
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "(sleep) Z" not in Path(f"/proc/{pid}/stat").read_text() if Path("/proc").exists() else True


async def test_a_search_whose_session_is_gone_ends_by_itself(work: Path) -> None:
    write(work, a="a" * 64 + "!")
    search = {
        "pattern": RUNAWAY, "path": ".", "fixed": False, "ignore_case": False, "files": "**", "type": "**",
        "output": "content", "context": 0, "ignored": False, "max_results": 1, "offset": 0, "root": str(work),
        "closed": [], "ripgrep": "", "seconds": -4.9,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", "from amplifier_tool_search.searching import main; main()"],
        input=json.dumps(search), text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGALRM


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "'pattern' is missing"),
        ({"pattern": ""}, "'pattern' must not be empty"),
        ({"pattern": "a\0b"}, "'pattern' has characters that no text has"),
        ({"pattern": "\ud800"}, "'pattern' has characters that no text has"),
        ({"pattern": "x", "glob": "*"}, "unknown field 'glob'; known are pattern, path, fixed"),
        ({"pattern": "x", "type": "python"}, "'type' must be one of c, config, cpp"),
        ({"pattern": "x", "output": "lines"}, "'output' must be one of content, files, count, not 'lines'"),
        ({"pattern": "x", "context": 21}, "'context' must be from 0 to 20, not 21"),
        ({"pattern": "x", "offset": -1}, "'offset' must be 0 or more, not -1"),
        ({"pattern": "x", "max_results": True}, "'max_results' must be of type integer, not bool"),
        ({"pattern": "x", "files": "../*"}, "not a pattern below a folder: '../*'"),
        (None, "the input must be an object, not NoneType"),
    ],
)
async def test_input_that_does_not_fit_is_a_failure(work: Path, given: Any, message: str) -> None:
    write(work, a="x\n")
    error = (await (await make(work)).get("tools", "search").execute(given)).error
    assert error["type"] == "InvalidInput"
    assert error["message"].startswith(message)


# mounting


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"ripgrepp": True}, "ripgrepp: unknown key; did you mean 'ripgrep'?"),
        ({"ripgrep": "no"}, "ripgrep: Input should be a valid boolean"),
        ({"timeout": 0}, "timeout: Input should be greater than 0"),
        ({"working_dir": "/nowhere"}, "working_dir: /nowhere is not a folder"),
    ],
)
async def test_a_configuration_that_cannot_work_is_refused_by_its_key(config: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"tool-search: {message}")):
        await mount(ModuleCoordinator(session_id="test"), config)
    with pytest.raises(ValueError, match="tool-search"):
        check_config(config)


def test_the_schema_of_the_configuration_describes_every_key() -> None:
    properties = config_schema()["properties"]
    assert set(properties) == {"working_dir", "ripgrep", "timeout"}
    assert all(about["description"] for about in properties.values())


def test_mounting_loads_nothing_that_searches() -> None:
    code = """
import asyncio, sys
import amplifier_core.models
from amplifier_core import ModuleCoordinator
coordinator = ModuleCoordinator(session_id="test")
before = set(sys.modules)
from amplifier_tool_search import mount
asyncio.run(mount(coordinator))
print(sorted(set(sys.modules) - before))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    own = [f"amplifier_tool_search{module}" for module in ("", ".schemas", ".tool")]
    assert done.stdout.strip() == str(own)
    assert tool.SearchTool.name == "search"
