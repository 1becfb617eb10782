"""Finding files by name and lines by pattern in a real folder."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import ModuleCoordinator
from amplifier_core.permissions import PermissionGate, Policy, parse_permissions
from amplifier_tool_filesystem import mount
from amplifier_tool_filesystem.actions import SEARCHES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from amplifier_core import ToolResult

    Call = Callable[..., Awaitable[Any]]  # of a ToolResult, whose output may be anything

FILES = ["a.txt", "a/b.py", "a/deep/c.py", "a-b.py", "src/x.ts", "src/y.tsx", "src/z.js", ".hidden.py"]


@pytest.fixture
def tree(work: Path) -> Path:
    """A folder with files, and folders that are skipped."""
    for name in [*FILES, ".git/config.py", "a/__pycache__/b.py", "node_modules/m/index.js"]:
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(f"This is {name}\nline two\n")
    return work


# glob


@pytest.mark.parametrize(
    ("pattern", "files"),
    [
        ("**", [".hidden.py", "a-b.py", "a.txt", "a/b.py", "a/deep/c.py", "src/x.ts", "src/y.tsx", "src/z.js"]),
        ("*.py", [".hidden.py", "a-b.py", "a/b.py", "a/deep/c.py"]),
        ("./*.py", [".hidden.py", "a-b.py"]),
        ("a/*.py", ["a/b.py"]),
        ("a/**/*.py", ["a/b.py", "a/deep/c.py"]),
        ("**/**/c.py", ["a/deep/c.py"]),
        ("a/**", ["a/b.py", "a/deep/c.py"]),
        ("*.{ts,tsx}", ["src/x.ts", "src/y.tsx"]),
        ("{a,src}/*.{py,js}", ["a/b.py", "src/z.js"]),
        ("src/[xy].*", ["src/x.ts", "src/y.tsx"]),
        ("?.txt", ["a.txt"]),
        ("A.txt", []),
    ],
)
async def test_files_that_fit_are_listed_in_the_order_of_their_paths(
    tree: Path, call: Call, pattern: str, files: list[str]
) -> None:
    output = (await call("glob", pattern=pattern)).output
    assert output == {"files": files, "count": len(files), "truncated": False}
    assert files == sorted(files)


async def test_a_list_that_is_too_long_is_cut(tree: Path, call: Call) -> None:
    output = (await call("glob", pattern="*.py", max_results=2)).output
    assert output == {"files": [".hidden.py", "a-b.py"], "count": 2, "truncated": True}
    assert (await call("glob", pattern="*.py", max_results=4)).output["truncated"] is False


async def test_a_pattern_counts_from_the_folder_it_is_looked_for_in(tree: Path, call: Call) -> None:
    assert (await call("glob", pattern="deep/*", path="a")).output["files"] == ["a/deep/c.py"]


async def test_a_skipped_folder_is_searched_when_it_is_named(tree: Path, call: Call) -> None:
    assert (await call("glob", pattern="*", path=".git")).output["files"] == [".git/config.py"]


@pytest.mark.parametrize("pattern", ["../*", "a/../../*", "/etc/*", "/", "{a,b}" * 7])
async def test_a_pattern_that_cannot_be_below_the_folder_is_refused(tree: Path, call: Call, pattern: str) -> None:
    for result in (await call("glob", pattern=pattern), await call("grep", pattern="x", files=pattern)):
        assert result.error is not None
        assert result.error["type"] == "InvalidInput"


async def test_a_folder_that_is_not_there_or_a_file_cannot_be_listed(tree: Path, call: Call) -> None:
    errors = [(await call("glob", pattern="*", path=path)).error for path in ("nowhere", "a.txt")]
    assert errors == [
        {"message": "nowhere: No such file or directory", "type": "FileNotFoundError"},
        {"message": "a.txt is a file; glob looks for files in a folder", "type": "NotADirectoryError"},
    ]


async def test_a_name_that_is_no_utf8_is_shown_with_replacements(work: Path, call: Call) -> None:
    (work / os.fsdecode(b"caf\xe9")).write_text("needle")
    assert (await call("glob", pattern="caf*")).output["files"] == [r"caf\xe9"]
    assert (await call("grep", pattern="needle")).output["matches"][0]["file_path"] == r"caf\xe9"


# grep


async def test_matching_lines_are_listed_with_their_numbers(tree: Path, call: Call) -> None:
    output = (await call("grep", pattern=r"^line \w+$", files="a/**")).output
    assert output == {
        "matches": [
            {"file_path": "a/b.py", "line": 2, "text": "line two"},
            {"file_path": "a/deep/c.py", "line": 2, "text": "line two"},
        ],
        "count": 2,
        "truncated": False,
    }


async def test_the_mark_at_the_start_of_a_file_is_no_part_of_its_first_line(work: Path, call: Call) -> None:
    (work / "marked.cs").write_bytes(b"\xef\xbb\xbfusing one\nusing two\n")
    found = (await call("grep", pattern="^using")).output["matches"]
    assert [(each["line"], each["text"]) for each in found] == [(1, "using one"), (2, "using two")]


async def test_case_is_ignored_when_asked_for(tree: Path, call: Call) -> None:
    assert (await call("grep", pattern="THIS", path="a.txt")).output["count"] == 0
    assert (await call("grep", pattern="THIS", path="a.txt", ignore_case=True)).output["count"] == 1


async def test_too_many_matches_are_cut(tree: Path, call: Call) -> None:
    output = (await call("grep", pattern="line", max_results=3)).output
    assert ([match["file_path"] for match in output["matches"]], output["truncated"]) == (
        [".hidden.py", "a-b.py", "a.txt"],
        True,
    )


async def test_binary_files_are_not_searched(work: Path, call: Call) -> None:
    (work / "binary").write_bytes(b"needle\0")
    (work / "text").write_bytes(b"\xff needle\r\n")
    matches = (await call("grep", pattern="needle$")).output["matches"]
    assert matches == [{"file_path": "text", "line": 1, "text": "\ufffd needle"}]


async def test_long_lines_are_searched_up_to_a_limit_and_shown_shortened(work: Path, call: Call) -> None:
    (work / "long").write_text(
        "x" * 65_530 + "needle" + "y" * 100_000 + "needle\nx needle\n" + "x" * 65_531 + "needle\n"
    )
    matches = (await call("grep", pattern="needle")).output["matches"]
    assert [(match["line"], len(match["text"])) for match in matches] == [(1, 500), (2, 8)]


async def test_a_bad_pattern_is_a_failure_that_says_what_is_wrong(work: Path, call: Call) -> None:
    for pattern in ("(", "a{99999999999999}"):
        result = await call("grep", pattern=pattern)
        assert result.error is not None
        assert result.error["message"].startswith("pattern is not a regular expression: ")


async def test_a_place_that_is_not_there_cannot_be_searched(work: Path, call: Call) -> None:
    assert (await call("grep", pattern="x", path="nowhere")).error == {
        "message": "nowhere: No such file or directory",
        "type": "FileNotFoundError",
    }


async def search_without_end(work: Path, seconds: float) -> ToolResult:
    coordinator = ModuleCoordinator(session_id="test")
    await mount(coordinator, {"working_dir": str(work), "grep_timeout": seconds})
    (work / "a").write_text("a" * 64 + "!")
    result: ToolResult = await coordinator.get("tools", "grep").execute({"pattern": "(a+)+$"})
    return result


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> asyncio.Queue[asyncio.subprocess.Process]:
    """The processes that searches start, as they start."""
    start, processes = asyncio.create_subprocess_exec, asyncio.Queue[asyncio.subprocess.Process]()

    async def note(*args: Any, **kwargs: Any) -> asyncio.subprocess.Process:
        process = await start(*args, **kwargs)
        processes.put_nowait(process)
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", note)
    return processes


async def test_a_search_that_takes_too_long_is_given_up_with_its_process(
    work: Path, started: asyncio.Queue[asyncio.subprocess.Process]
) -> None:
    result = await search_without_end(work, 0.1)
    assert result.error == {
        "message": "gave up after 0.1 s; narrow `path` or `files`, or use a simpler pattern",
        "type": "TimeoutError",
    }
    assert started.get_nowait().returncode == -signal.SIGKILL


async def test_a_cancelled_search_ends_its_process(
    work: Path, started: asyncio.Queue[asyncio.subprocess.Process]
) -> None:
    searching = asyncio.ensure_future(search_without_end(work, 600))
    process = await started.get()
    searching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await searching
    assert process.returncode == -signal.SIGKILL


async def test_a_pattern_is_not_longer_than_a_person_writes(tree: Path, call: Call) -> None:
    result = await call("glob", pattern="{" + "," * 20_000)
    assert result.error == {
        "message": "the pattern has 20001 characters, 1000 are allowed; search in steps",
        "type": "InvalidInput",
    }
    assert (await call("glob", pattern="{" * 500 + "," * 500)).output["files"] == []


@pytest.mark.parametrize("coordinator", ["here"], indirect=True)
async def test_searches_take_turns(tree: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    began, running, most = asyncio.create_subprocess_exec, 0, 0

    async def count(*arguments: Any, **options: Any) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        process = await began(*arguments, **options)
        communicate = process.communicate

        async def end(data: bytes | None = None) -> Any:
            nonlocal running
            try:
                return await communicate(data)
            finally:
                running -= 1

        process.communicate = end  # type: ignore[method-assign]
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", count)
    results = await asyncio.gather(*(call("grep", pattern="This") for _ in range(12)))
    assert {result.output["count"] for result in results} == {len(FILES)}
    assert (most, running) == (SEARCHES, 0)


# what a search leaves out


def guard(coordinator: ModuleCoordinator, work: Path, **section: Any) -> None:
    """Hold a session to permissions."""
    coordinator.guard(PermissionGate(Policy([parse_permissions(section, "user settings", is_own=True)]), work))


@pytest.fixture
def keys(work: Path) -> Path:
    """A folder with secrets, a link to one, and folders that rules may be about."""
    for name in (".env", "deep/a.pem", ".aws/config", "private/x.txt", "public/x.txt", "id_rsa.pub"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text("SECRET=1\n")
    (work / "link.txt").symlink_to(".env")
    (work / "other.txt").symlink_to("private/x.txt")
    return work


async def search(call: Call, path: str = ".") -> tuple[list[str], int]:
    """Return the files with matches and the number of those left out; glob and grep agree."""
    lines = (await call("grep", pattern="SECRET", path=path)).output
    files = (await call("glob", pattern="**", path=path)).output
    assert files.get("skipped", 0) == lines.get("skipped", 0)
    assert files["files"] == [line["file_path"] for line in lines["matches"]]
    return files["files"], files.get("skipped", 0)


@pytest.mark.parametrize("is_guarded", [True, False])
async def test_a_search_leaves_secrets_out_and_says_how_many(
    keys: Path, call: Call, coordinator: ModuleCoordinator, is_guarded: bool
) -> None:
    if is_guarded:
        guard(coordinator, keys)
    assert await search(call) == (["id_rsa.pub", "other.txt", "private/x.txt", "public/x.txt"], 4)
    assert await search(call, ".aws") == ([], 1)


@pytest.mark.parametrize("rule", ["read_file(private/**)", "*(PRIVATE/*.txt)", "*(**/private/x.txt)"])
@pytest.mark.parametrize("effect", ["deny", "ask"])
async def test_a_search_leaves_out_what_may_not_be_read(
    keys: Path, call: Call, coordinator: ModuleCoordinator, effect: str, rule: str
) -> None:
    guard(coordinator, keys, **{effect: [rule]}, allow=["grep", "glob", "*(.env)"])
    assert await search(call) == (["id_rsa.pub", "public/x.txt"], 6)


async def test_a_search_that_the_person_allowed_finds_what_it_was_asked_about(
    keys: Path, call: Call, coordinator: ModuleCoordinator
) -> None:
    guard(coordinator, keys, ask=["grep", "g*(private/**)"])
    assert await search(call, "private") == (["private/x.txt"], 0)
    assert (await search(call))[0] == ["id_rsa.pub", "public/x.txt"]


@pytest.mark.parametrize("coordinator", ["here"], indirect=True)
async def test_a_file_named_to_grep_is_for_the_permissions(
    keys: Path, call: Call, coordinator: ModuleCoordinator
) -> None:
    guard(coordinator, keys, deny=["read_file(private/**)"])
    assert (await call("grep", pattern="SECRET", path=".env")).output["count"] == 1
    assert (await call("grep", pattern="SECRET", path="private/x.txt")).output == {
        "matches": [], "count": 0, "truncated": False, "skipped": 1,
    }  # fmt: skip
