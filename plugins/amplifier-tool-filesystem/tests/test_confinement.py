"""Nothing outside the working folder is reached, and nothing that is no regular file is opened."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import ModuleCoordinator
from amplifier_core.permissions import PermissionGate, Policy, parse_permissions
from amplifier_tool_filesystem import mount
from amplifier_tool_filesystem.folder import Folder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    Call = Callable[..., Awaitable[Any]]  # of a ToolResult, whose output may be anything

FILE_TOOLS: list[tuple[str, dict[str, Any]]] = [
    ("read_file", {}),
    ("write_file", {"content": "changed"}),
    ("edit_file", {"old_string": "outside", "new_string": "changed"}),
]
ESCAPES = [
    "..",
    "../outside/secret",
    "sub/../../outside/secret",
    "{outside}/secret",
    "/etc/hostname",
    "link-to-file",
    "link-to-folder/secret",
    "link-to-folder/new",
    "dangling",
    "sub/link-up/outside/secret",
    "~/secret",
    "~",
]


@pytest.fixture
def trap(work: Path, outside: Path) -> Path:
    """A working folder full of ways out."""
    (work / "sub").mkdir()
    (work / "link-to-file").symlink_to(outside / "secret")
    (work / "link-to-folder").symlink_to(outside)
    (work / "dangling").symlink_to(outside / "new")
    (work / "sub" / "link-up").symlink_to("../..")
    return work


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize(("tool", "more"), FILE_TOOLS, ids=[name for name, _ in FILE_TOOLS])
async def test_no_path_leads_out(trap: Path, outside: Path, call: Call, tool: str, more: dict[str, Any]) -> None:
    for path in ESCAPES:
        result = await call(tool, file_path=path.format(outside=outside), **more)
        assert result.error is not None, path
        assert result.error["type"] == "OutsideFolder", path
        assert "outside the working folder" in result.error["message"], path
        assert contents(outside) == {"secret": "outside"}, path


async def test_no_search_begins_outside(trap: Path, outside: Path, call: Call) -> None:
    for path in ("..", "{outside}", "link-to-folder", "sub/link-up"):
        for tool in ("glob", "grep"):
            result = await call(tool, pattern="**", path=path.format(outside=outside))
            assert result.error is not None, (tool, path)
            assert result.error["type"] == "OutsideFolder", (tool, path)


async def test_a_search_does_not_leave_through_links(trap: Path, call: Call) -> None:
    (trap / "mine").write_text("outside is a word here")
    assert (await call("glob", pattern="**")).output["files"] == ["mine"]
    assert [match["file_path"] for match in (await call("grep", pattern="outside")).output["matches"]] == ["mine"]


@pytest.mark.parametrize("path", ["a\0b", "\ud800"])
async def test_what_cannot_be_a_path_is_refused(work: Path, call: Call, path: str) -> None:
    for tool, more in FILE_TOOLS:
        result = await call(tool, file_path=path, **more)
        assert result.error is not None
        assert result.error["type"] == "InvalidInput"


async def test_links_that_form_a_circle_are_a_failure(work: Path, call: Call) -> None:
    (work / "one").symlink_to("two")
    (work / "two").symlink_to("one")
    for tool, more in FILE_TOOLS:
        result = await call(tool, file_path="one", **more)
        assert result.success is False
    assert (work / "one").is_symlink()


async def test_a_path_may_go_up_and_down_inside(work: Path, call: Call) -> None:
    (work / "sub").mkdir()
    (work / "a").write_text("x")
    for path in ("sub/../a", "./a", str(work / "a"), f"../{work.name}/a"):
        assert (await call("read_file", file_path=path)).output["file_path"] == "a"


async def test_a_link_that_stays_inside_works_and_stays_a_link(work: Path, call: Call) -> None:
    (work / "real").mkdir()
    (work / "folder").symlink_to("real")
    (work / "file").symlink_to("folder/a")
    result = await call("write_file", file_path="file", content="through two links")
    assert result.output == {"file_path": "real/a", "bytes": 17, "created": True}
    assert ((work / "file").is_symlink(), (work / "real" / "a").read_text()) == (True, "through two links")
    assert (await call("glob", pattern="**")).output["files"] == ["file", "real/a"]


async def test_fifos_sockets_and_devices_are_refused_without_waiting(
    work: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(work)  # the path of a socket must be short
    os.mkfifo(work / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        for path in ("fifo", "socket"):
            for tool, more in FILE_TOOLS:
                result = await call(tool, file_path=path, **more)
                assert result.error == {
                    "message": f"{path} is not a regular file but a device, FIFO or socket",
                    "type": "NotARegularFile",
                }
        assert (await call("glob", pattern="*")).output["files"] == []
        assert (await call("grep", pattern="x")).output["count"] == 0
        assert (await call("grep", pattern="x", path="fifo")).error is not None


def test_a_link_put_in_place_of_a_file_after_the_check_leads_nowhere(work: Path, outside: Path) -> None:
    (work / "secret").write_text("inside")
    folder = Folder(work)
    place = folder.resolve("secret")
    (work / "secret").unlink()
    (work / "secret").symlink_to(outside / "secret")
    with pytest.raises(Exception, match="not a regular file"):
        folder.open_file(place)


def test_a_link_put_in_place_of_a_folder_after_the_check_leads_nowhere(work: Path, outside: Path) -> None:
    (work / "sub").mkdir()
    (work / "sub" / "secret").write_text("inside")
    folder = Folder(work)
    place = folder.resolve("sub/secret")
    (work / "sub").rename(work / "moved")
    (work / "sub").symlink_to(outside)
    with pytest.raises(NotADirectoryError):
        folder.open_file(place)


async def test_a_working_folder_reached_through_a_link_is_the_folder_it_leads_to(work: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(work)
    (work / "a").write_text("x")
    folder = Folder(tmp_path / "link")
    assert [str(folder.resolve(path)) for path in ("a", str(tmp_path / "link" / "a"), str(work / "a"))] == ["a"] * 3


async def test_a_link_with_a_name_outside_utf8_leads_past_no_permission(work: Path, call: Call) -> None:
    (work / ".git").mkdir()
    (work / ".git" / "config").write_text("# old\n")
    (work / os.fsdecode(b"li\xe9")).symlink_to(".git")
    result = await call("write_file", file_path="li\\xe9/config", content="x")
    assert (result.success, result.error["type"]) == (False, "InvalidInput")
    assert (work / ".git" / "config").read_text() == "# old\n"


@pytest.mark.parametrize("mode", ["default", "ask"])
async def test_a_name_with_hidden_characters_is_read_by_its_shown_name_alone_and_past_no_rule(
    coordinator: ModuleCoordinator, work: Path, call: Call, mode: str
) -> None:
    rules = {"deny": ["read_file(closed/**)"], **({"mode": "ask"} if mode == "ask" else {})}
    coordinator.guard(PermissionGate(Policy([parse_permissions(rules, "user settings", is_own=True)]), work))
    for folder in ("open", "closed"):
        (work / folder).mkdir()
        (work / folder / "a\tb").write_text("found me")
    assert (await call("read_file", file_path="open/a\\tb")).output["content"] == "found me"
    for tool, path in (("read_file", "closed/a\\tb"), ("write_file", "open/a\\tb")):
        result = await call(tool, file_path=path, **({"content": "x"} if tool == "write_file" else {}))
        assert (result.success, result.error["type"]) == (False, "NotPermitted")
    assert (work / "open" / "a\tb").read_text() == "found me"


@pytest.mark.parametrize("effect", ["deny", "ask"])
@pytest.mark.parametrize(
    ("rule", "name", "shown"),
    [
        ("read_file(secret?key)", "secret\nkey", "secret\\nkey"),
        ("read_file(secret[!a-z]key)", "secret\nkey", "secret\\nkey"),
        ("read_file(d?r/**)", "d\tr/x", "d\\tr/x"),
        ("read_file(a\u202eb)", "a\u202eb", "a\\u202eb"),
        ("read_file(nothing)", "k.p\u200cem", "k.p\\u200cem"),  # its name says that it holds secrets
    ],
)
async def test_a_rule_that_fits_the_real_name_holds_for_the_shown_one(
    coordinator: ModuleCoordinator, work: Path, call: Call, effect: str, rule: str, name: str, shown: str
) -> None:
    (work / name).parent.mkdir(exist_ok=True)
    (work / name).write_text("found me")
    assert "nothing" in rule or (await call("read_file", file_path=shown)).output["content"] == "found me"
    coordinator.guard(PermissionGate(Policy([parse_permissions({effect: [rule]}, "user settings", is_own=True)]), work))
    result = await call("read_file", file_path=shown)
    assert (result.success, result.error and result.error["type"]) == (False, "NotPermitted")
    assert f"{shown} by its real name" in result.error["message"]
    assert name not in result.error["message"]


TARGETS = {"src": "allow", ".git": "deny", "private": "deny", "asked": "ask"}


@pytest.mark.parametrize("alias", [False, True])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("tool", "more"), FILE_TOOLS, ids=[name for name, _ in FILE_TOOLS])
async def test_a_link_that_changes_after_the_decision_leads_to_nothing_that_needs_another(
    coordinator: ModuleCoordinator, work: Path, call: Call, tool: str, more: dict[str, Any], target: str, alias: bool
) -> None:
    if target == ".git" and tool == "read_file":
        target = "private"
    for name in TARGETS:
        (work / name).mkdir()
        (work / name / "config").write_text("# outside\n")
    rules = {"deny": [f"{tool}(private/**)"], "ask": [f"{tool}(asked/**)"]}
    gate = PermissionGate(Policy([parse_permissions(rules, "user settings", is_own=True)]), work)
    coordinator.guard(gate)
    (work / "link").symlink_to("src")
    given = {"file_path": "link/config", **more}
    assert gate.check({"tool_name": tool, "tool_input": given}, coordinator.get("tools")) is None
    (work / "link").unlink()
    (work / "link").symlink_to(target)
    result = await call(tool, **given)
    assert result.success is (target == "src")
    if target != "src":
        assert result.error["type"] == "NotPermitted"
        assert (work / target / "config").read_text() == "# outside\n"
    if TARGETS[target] == "ask":  # after a yes to the file itself, whatever its spelling
        paths = (f"{target}/config", f"./{target}/../{target}/config", str(work / target / "config"))
        assert (await call(tool, **{**given, "file_path": paths[alias * 2]})).success


async def test_in_a_folder_with_two_names_a_file_has_both(tmp_path: Path, work: Path) -> None:
    (tmp_path / "alias").symlink_to(work)
    coordinator = ModuleCoordinator(session_id="test")
    coordinator.register_capability("session.working_dir", str(tmp_path / "alias"))
    await mount(coordinator)
    rules = parse_permissions({"mode": "ask"}, "user settings", is_own=True)
    coordinator.guard(PermissionGate(Policy([rules]), tmp_path / "alias"))
    for path in ("a", str(tmp_path / "alias" / "b"), str(work / "c")):
        assert (await coordinator.get("tools", "write_file").execute({"file_path": path, "content": "x"})).success
    assert sorted(each.name for each in work.iterdir()) == ["a", "b", "c"]
