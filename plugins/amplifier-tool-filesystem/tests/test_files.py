"""Reading, writing and editing real files."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import stat
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import HookResult, ModuleCoordinator, TriggerEvent, TriggerType
from amplifier_foundation.bundle.templates import build_instruction
from amplifier_loop_basic.config import LoopConfig
from amplifier_tool_filesystem import mount
from amplifier_tool_filesystem.folder import Folder
from amplifier_tool_filesystem.locking import run_to_end
from amplifier_tool_filesystem.writing import write_file

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from amplifier_core import ToolResult

    Call = Callable[..., Awaitable[Any]]  # of a ToolResult, whose output may be anything


def problem(result: ToolResult) -> tuple[str, str]:
    assert result.success is False
    assert result.error is not None
    return result.error["type"], result.error["message"]


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


# reading


async def test_a_small_file_is_read_as_a_whole_and_as_it_is(work: Path, call: Call) -> None:
    (work / "a.txt").write_bytes(b"one\r\ntwo\r\nthree")
    result = await call("read_file", file_path="a.txt")
    assert result.success
    assert result.output == {"file_path": "a.txt", "content": "one\r\ntwo\r\nthree", "lines": 3, "truncated": False}


async def test_an_empty_file_has_no_lines(work: Path, call: Call) -> None:
    (work / "empty").touch()
    assert (await call("read_file", path="empty")).output == {
        "file_path": "empty",
        "content": "",
        "lines": 0,
        "truncated": False,
    }


@pytest.mark.parametrize(
    ("offset", "limit", "content", "truncated"),
    [
        (1, 2, "1\n2\n", True),
        (2, None, "2\n3\n4\n", False),
        (3, 2, "3\n4\n", False),
        (3, 1, "3\n", True),
        (4, 9, "4\n", False),
        (4, 10**30, "4\n", False),
    ],
)
async def test_lines_are_read_from_an_offset_up_to_a_limit(
    work: Path, call: Call, offset: int, limit: int | None, content: str, truncated: bool
) -> None:
    (work / "a").write_text("1\n2\n3\n4\n")
    given = {"offset": offset} | ({"limit": limit} if limit else {})
    output = (await call("read_file", file_path="a", **given)).output
    assert (output["content"], output["truncated"]) == (content, truncated)


@pytest.mark.parametrize("offset", [5, 6, 1000])
async def test_an_offset_past_the_end_is_said(work: Path, call: Call, offset: int) -> None:
    (work / "a").write_text("1\n2\n3\n4\n")
    result = await call("read_file", file_path="a", offset=offset)
    assert problem(result) == ("InvalidInput", f"offset {offset} is past the end of a")


async def test_an_offset_reaches_beyond_lines_of_any_length(work: Path, call: Call) -> None:
    (work / "a").write_bytes(b"x" * 200_000 + b"\n" + b"y" * 65_535 + b"\nhere\n")
    assert (await call("read_file", file_path="a", offset=3)).output["content"] == "here\n"


async def test_a_long_file_is_cut_after_a_line(work: Path, call: Call) -> None:
    (work / "a").write_text("0123456789\n" * 10)
    output = (await call("read_file", file_path="a")).output
    assert (output["content"], output["lines"], output["truncated"]) == ("0123456789\n" * 5, 5, True)


async def test_a_file_of_exactly_the_limit_is_not_cut(work: Path, call: Call) -> None:
    (work / "a").write_text("x" * 64)
    output = (await call("read_file", file_path="a")).output
    assert (len(output["content"]), output["truncated"]) == (64, False)


@pytest.mark.parametrize(
    "line", ['{"a": "\\\\n"}\n', "\n", "plain text of a line\n", "ä\x01\t\n", "\x1b[0m\n", "привет мир\n"]
)
async def test_each_part_of_a_long_file_is_whole_for_a_loop_and_tells_that_it_goes_on(work: Path, line: str) -> None:
    (work / "a").write_text(line * (400_000 // len(line)))
    coordinator = ModuleCoordinator(session_id="test")
    coordinator.register_capability("session.working_dir", str(work))
    await mount(coordinator)
    read, texts, offset, goes_on = coordinator.get("tools", "read_file"), list[str](), 1, True
    while goes_on:
        result = await read.execute({"file_path": "a", "offset": offset})
        shown = result.get_serialized_output()
        assert len(shown) <= LoopConfig().max_result_chars
        told = json.loads(shown)
        assert len(shown) > 150_000 or not told["truncated"]
        texts.append(result.output["content"])
        offset, goes_on = offset + told["lines"], told["truncated"]
    assert len(texts) > 1
    assert "".join(texts) == (work / "a").read_text()


async def test_a_long_line_is_cut_between_characters(work: Path, call: Call) -> None:
    (work / "a").write_text("x" + "ä" * 100)
    output = (await call("read_file", file_path="a")).output
    assert (output["content"], output["truncated"]) == ("x" + "ä" * 63, True)
    assert "invalid_utf8" not in output


async def test_bytes_that_are_no_utf8_are_replaced_and_reported(work: Path, call: Call) -> None:
    (work / "latin").write_bytes(b"caf\xe9\n")
    output = (await call("read_file", file_path="latin")).output
    assert (output["content"], output["invalid_utf8"]) == ("caf\ufffd\n", True)


async def test_a_binary_file_is_refused_by_name(work: Path, call: Call) -> None:
    (work / "logo.png").write_bytes(b"\x89PNG\0\0")
    result = await call("read_file", file_path="logo.png")
    assert problem(result) == ("BinaryFile", "logo.png is a binary file; only text and images can be read")


async def test_what_is_not_there_is_said_in_one_line(work: Path, call: Call) -> None:
    for tool, more in (("read_file", {}), ("edit_file", {"old_string": "a", "new_string": "b"})):
        result = await call(tool, file_path="no/such", **more)
        assert problem(result) == ("FileNotFoundError", "no/such: No such file or directory")


async def test_a_folder_is_not_a_file(work: Path, call: Call) -> None:
    (work / "sub").mkdir()
    for path in ("sub", "."):
        for tool, more in (("read_file", {}), ("write_file", {"content": "x"})):
            assert problem(await call(tool, file_path=path, **more))[0] == "IsADirectoryError"


# writing


async def test_writing_creates_the_file_and_the_folders_above_it(work: Path, call: Call) -> None:
    result = await call("write_file", file_path="a/b/c.txt", content="grüße\n")
    assert result.output == {"file_path": "a/b/c.txt", "bytes": 8, "created": True}
    assert (work / "a/b/c.txt").read_text() == "grüße\n"


async def test_writing_replaces_a_file_and_keeps_its_mode(work: Path, call: Call) -> None:
    script = work / "run.sh"
    script.write_text("old")
    script.chmod(0o751)
    assert (await call("write_file", file_path="run.sh", content="new")).output["created"] is False
    assert (script.read_text(), stat.S_IMODE(script.stat().st_mode)) == ("new", 0o751)


@pytest.mark.parametrize("coordinator", ["here"], indirect=True)
async def test_a_new_file_gets_the_mode_that_the_umask_leaves(work: Path, call: Call) -> None:
    before = os.umask(0o027)
    try:
        await call("write_file", file_path="new", content="x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((work / "new").stat().st_mode) == 0o640


async def test_a_file_is_replaced_as_a_whole_and_nothing_is_left_behind(work: Path, call: Call) -> None:
    (work / "a").write_text("old")
    with (work / "a").open() as reader:
        await call("write_file", file_path="a", content="new")
        assert reader.read() == "old"
    assert names(work) == ["a"]


async def test_a_read_only_file_is_not_replaced(work: Path, call: Call) -> None:
    (work / "a").write_text("old")
    (work / "a").chmod(0o444)
    assert problem(await call("write_file", file_path="a", content="new")) == ("PermissionError", "a is read-only")
    assert (work / "a").read_text() == "old"


async def test_a_write_that_fails_leaves_nothing(work: Path, call: Call) -> None:
    (work / "file").write_text("x")
    assert problem(await call("write_file", file_path="file/below", content="x"))[0] == "NotADirectoryError"
    assert problem(await call("write_file", file_path="n" * 256, content="x"))[1].endswith("File name too long")
    assert names(work) == ["file"]


async def test_text_that_utf8_cannot_hold_is_refused(work: Path, call: Call) -> None:
    result = await call("write_file", file_path="a", content="x\ud800")
    assert problem(result) == (
        "InvalidInput",
        "the text cannot be written as UTF-8: surrogates not allowed at character 1",
    )


async def test_a_name_of_the_greatest_length_can_be_written(work: Path, call: Call) -> None:
    assert (await call("write_file", file_path="n" * 255, content="x")).success


# editing


async def test_an_edit_replaces_what_is_there_once(work: Path, call: Call) -> None:
    (work / "a").write_bytes(b"x = 1\r\ny = 2\r\n")
    result = await call("edit_file", file_path="a", old_string="1\r\ny", new_string="3\r\ny")
    assert result.output == {"file_path": "a", "bytes": 14, "replacements": 1}
    assert (work / "a").read_bytes() == b"x = 3\r\ny = 2\r\n"


@pytest.mark.parametrize(("text", "old", "times"), [("ab ab ab", "ab", 3), ("aaa", "aa", 2)])
async def test_what_is_there_more_than_once_is_not_guessed(
    work: Path, call: Call, text: str, old: str, times: int
) -> None:
    (work / "a").write_text(text)
    result = await call("edit_file", file_path="a", old_string=old, new_string="x")
    assert problem(result) == (
        "AmbiguousMatch",
        f"old_string is {times} times in a; give more of its surroundings, or set replace_all",
    )
    assert (work / "a").read_text() == text


async def test_replace_all_replaces_it_wherever_it_is(work: Path, call: Call) -> None:
    (work / "a").write_text("ab ab ab")
    result = await call("edit_file", file_path="a", old_string="ab", new_string="", replace_all=True)
    assert (result.output["replacements"], (work / "a").read_text()) == (3, "  ")


async def test_an_edit_that_multiplies_a_file_is_refused(work: Path, call: Call) -> None:
    (work / "a").write_text("a" * 1_000_000)
    result = await call("edit_file", file_path="a", old_string="a", new_string="a" * 100, replace_all=True)
    assert problem(result) == ("FileTooLarge", "a would be larger than 16777216 bytes after 1000000 replacements")
    assert (work / "a").stat().st_size == 1_000_000


async def test_what_is_not_in_the_file_cannot_be_replaced(work: Path, call: Call) -> None:
    (work / "a").write_text("text")
    result = await call("edit_file", file_path="a", old_string="Text", new_string="x", replace_all=True)
    assert problem(result) == ("NoMatch", "old_string is not in a; read the file and give its exact text")


@pytest.mark.parametrize(
    ("text", "old", "ends"),
    [
        (b"one\r\ntwo\r\n", "one\ntwo\n", r"lines end in \r\n there, and in \n in old_string"),
        (b"one\ntwo\n", "one\r\ntwo", r"lines end in \n there, and in \r\n in old_string"),
    ],
)
async def test_an_edit_that_misses_line_ends_alone_names_them(
    work: Path, call: Call, text: bytes, old: str, ends: str
) -> None:
    (work / "a").write_bytes(text)
    result = await call("edit_file", file_path="a", old_string=old, new_string="x")
    assert problem(result)[1].endswith(f"give its exact text. Only line ends differ: {ends}")


async def test_a_path_that_names_a_folder_is_not_written(work: Path, call: Call) -> None:
    result = await call("write_file", file_path="trail/", content="x")
    assert problem(result) == ("InvalidInput", "'trail/' names a folder; name a file, without '/' at its end")
    assert names(work) == []


async def test_an_edit_that_changes_nothing_is_refused(work: Path, call: Call) -> None:
    (work / "a").write_text("text")
    assert problem(await call("edit_file", file_path="a", old_string="t", new_string="t"))[0] == "InvalidInput"


async def test_a_file_that_is_not_utf8_is_not_edited(work: Path, call: Call) -> None:
    (work / "a").write_bytes(b"caf\xe9 x")
    result = await call("edit_file", file_path="a", old_string="x", new_string="y")
    assert problem(result) == ("BinaryFile", "a is not UTF-8 text (byte 3); an edit would damage it")
    assert (work / "a").read_bytes() == b"caf\xe9 x"


async def test_a_file_too_large_for_memory_is_not_edited(work: Path, call: Call) -> None:
    with (work / "big").open("wb") as stream:
        stream.truncate(16 * 1024 * 1024 + 1)
    assert problem(await call("edit_file", file_path="big", old_string="x", new_string="y"))[0] == "FileTooLarge"


# at once


async def test_edits_of_one_file_at_once_all_happen(work: Path, call: Call) -> None:
    (work / "a").write_text("".join(f"<{number}>" for number in range(20)))
    (work / "link").symlink_to("a")
    edits = [
        call("edit_file", file_path=("a", "link")[n % 2], old_string=f"<{n}>", new_string=f"[{n}]") for n in range(20)
    ]
    assert all(result.success for result in await asyncio.gather(*edits))
    assert (work / "a").read_text() == "".join(f"[{number}]" for number in range(20))


async def test_of_writes_to_one_file_at_once_the_last_call_is_what_stays(work: Path, call: Call) -> None:
    await asyncio.gather(*(call("write_file", file_path="a", content=str(number)) for number in range(20)))
    assert (work / "a").read_text() == "19"


async def test_a_cancelled_write_ends_before_the_cancellation_goes_on() -> None:
    loop, started, release = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    order: list[str] = []

    def work() -> None:
        loop.call_soon_threadsafe(started.set)
        release.wait()
        order.append("written")
        raise OSError("nobody waits for this any more")

    async def call() -> None:
        try:
            await run_to_end(work)
        except asyncio.CancelledError:
            order.append("cancelled")
            raise

    calling = asyncio.create_task(call())
    await started.wait()
    calling.cancel()
    loop.call_soon(release.set)
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert order == ["written", "cancelled"]


async def test_hooks_see_what_was_read_and_written(work: Path, call: Call, coordinator: ModuleCoordinator) -> None:
    seen: list[tuple[str, Any, Any]] = []

    async def record(event: str, data: dict[str, Any]) -> HookResult:
        seen.append((event, data["path"], data["bytes"]))
        return HookResult()

    for event in ("artifact:read", "artifact:write"):
        coordinator.hooks.register(event, record)
    await call("write_file", file_path="sub/a", content="ä1\n")
    await call("read_file", file_path=str(work / "sub" / "a"))
    await call("edit_file", file_path="./sub/a", old_string="1", new_string="22")
    await call("read_file", file_path="missing")
    assert seen == [("artifact:write", "sub/a", 4), ("artifact:read", "sub/a", 4), ("artifact:write", "sub/a", 5)]


@pytest.mark.parametrize("name", ["a\nb", "a\tb", "a\x1b[m", "a\u2028b", "a\u202eb", "a\xadb", "a\U000e0041", "a\\b\n"])
async def test_a_name_with_hidden_characters_is_opened_as_the_prompt_of_its_event_shows_it(
    work: Path, call: Call, name: str
) -> None:
    (work / "src").mkdir()
    (work / "src" / name).write_text("found me")
    kind, path = TriggerType.FILE_CHANGE, f"src/{name}"
    event = TriggerEvent(kind, "trigger-file-watcher", file_path=path, change_type="created")
    shown = build_instruction(event, "{file_path}")
    for path in (shown, str(work / shown), f"./src/../{shown}"):
        assert (await call("read_file", file_path=path)).output["content"] == "found me"
    (work / shown).write_text("another one")
    result = await call("read_file", file_path=shown)
    assert result.error["message"].startswith(f"2 names in one folder are shown as '{shown.removeprefix('src/')}'; ")


async def test_a_backslash_in_a_name_hides_nothing(work: Path, call: Call) -> None:
    (work / "a\\nb").write_text("mine")
    assert (await call("read_file", file_path="a\\nb")).output["content"] == "mine"
    (work / ".git").mkdir()
    (work / ".git" / "config").write_text("mine")
    for path in (".git\\x2fconfig", "\\x2egit/config", "a\\x5cnb"):
        assert not (await call("read_file", file_path=path)).success


async def test_a_name_that_is_not_utf8_is_opened_as_it_is_shown(work: Path, call: Call) -> None:
    (work / os.fsdecode(b"caf\xe9.txt")).write_text("found me")
    [shown] = (await call("glob", pattern="*.txt")).output["files"]
    assert shown == r"caf\xe9.txt"
    assert (await call("grep", pattern="found")).output["matches"][0]["file_path"] == shown
    assert (await call("read_file", file_path=shown)).output["content"] == "found me"
    await call("edit_file", file_path=shown, old_string="found", new_string="lost")
    assert (work / os.fsdecode(b"caf\xe9.txt")).read_text() == "lost me"
    (work / r"caf\xe9.txt").write_text("exactly this name")
    result = await call("read_file", file_path=shown)
    assert (result.success, result.error["type"]) == (False, "InvalidInput")
    assert (await call("write_file", file_path=r"new\xe9.txt", content="")).output["file_path"] == r"new\xe9.txt"
    assert (work / r"new\xe9.txt").exists()


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="the system has no files without a name")
def test_a_kill_in_the_middle_of_a_write_leaves_the_old_file_alone(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old")
    code = """
import os, sys
from pathlib import Path
from amplifier_tool_filesystem import writing
from amplifier_tool_filesystem.folder import Folder
from amplifier_tool_filesystem.seen import State
os.fsync = lambda descriptor: os._exit(9)
folder = Folder(Path(sys.argv[1]))
path = folder.resolve("a.txt")
writing.write_file(folder, path, b"new", State.of(writing.find_status(folder, path)))
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 9, done.stderr
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.txt": "old"}


@pytest.mark.parametrize("refused", ["open", "link"])
def test_a_file_is_written_where_the_system_has_no_files_without_a_name(
    refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = getattr(os, refused)

    def refuse(*arguments: object, **options: object) -> object:
        if refused == "link" or int(str(arguments[1])) & getattr(os, "O_TMPFILE", 0) == getattr(os, "O_TMPFILE", -1):
            raise OSError(errno.EOPNOTSUPP, "not here")
        return before(*arguments, **options)

    monkeypatch.setattr(os, refused, refuse)
    folder = Folder(tmp_path)
    assert write_file(folder, folder.resolve("a.txt"), b"new", None)[0]
    monkeypatch.undo()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.txt": "new"}
