"""What a person sees of a change before it is made, here and in a sandbox."""

from __future__ import annotations

import os
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.events import TOOL_PRE
from amplifier_core.models import HookResult
from amplifier_core.permissions import PermissionGate, Policy
from amplifier_core.permissions.policy import parse_permissions
from amplifier_core.previews import preview_call

if TYPE_CHECKING:
    from pathlib import Path

    from amplifier_core import ModuleCoordinator


@pytest.fixture
def preview(coordinator: ModuleCoordinator) -> Any:
    async def preview(tool: str, **given: Any) -> str:
        return await preview_call(coordinator, {"tool_name": tool, "tool_input": given})

    return preview


async def test_a_change_is_a_unified_diff_below_the_digest_of_what_it_replaces(work: Path, preview: Any) -> None:
    (work / "a.txt").write_text("one\ntwo\nthree\n")
    digest = sha256(b"one\ntwo\nthree\n").hexdigest()[:32]
    head = f"a.txt: 14 bytes, sha256 {digest}, become 14 bytes\n--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@"
    diff = f"{head}\n one\n-two\n+TWO\n three"
    assert await preview("edit_file", file_path="a.txt", old_string="two", new_string="TWO") == diff
    assert await preview("write_file", file_path="a.txt", content="one\nTWO\nthree\n") == diff
    assert (work / "a.txt").read_text() == "one\ntwo\nthree\n"


async def test_a_new_file_is_shown_and_not_created_nor_is_its_folder(work: Path, preview: Any) -> None:
    shown = await preview("write_file", file_path="new/a.txt", content="one\n")
    assert shown == "new/a.txt: a new file of 4 bytes\n--- /dev/null\n+++ b/new/a.txt\n@@ -0,0 +1 @@\n+one"
    assert not (work / "new").exists()


async def test_the_text_of_a_preview_tells_any_two_old_contents_apart(work: Path, preview: Any) -> None:
    shown = []
    for data in (b"\0one", b"\0two", b"\xff", b"text\r\n", b"text\n"):
        (work / "a").write_bytes(data)
        shown.append(await preview("write_file", file_path="a", content="new"))
    assert len(set(shown)) == 5 and "The content is not text, or too long to be shown." in shown[0]


async def test_a_cell_of_a_notebook_is_shown_in_its_text(work: Path, preview: Any) -> None:
    cell = '{"cells": [{"cell_type": "raw", "id": "a", "metadata": {}, "source": "old"}], "nbformat": 4}'
    (work / "a.ipynb").write_text(cell)
    assert '"source": "new"' in await preview("edit_notebook", file_path="a.ipynb", cell="1", source="new")


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("edit_file", {"file_path": "a.txt", "old_string": "absent", "new_string": "x"}),
        ("edit_file", {"file_path": "missing", "old_string": "a", "new_string": "b"}),
        ("write_file", {"file_path": "../outside/secret", "content": "x"}),
        ("write_file", {"file_path": "fifo", "content": "x"}),
        ("write_file", {"content": "x"}),
        ("write_file", {"file_path": "a.txt", "content": "\ud800"}),
        ("read_file", {"file_path": "a.txt"}),
    ],
)
async def test_a_call_that_will_fail_and_one_that_changes_nothing_have_no_preview(
    work: Path, outside: Path, preview: Any, tool: str, given: dict[str, Any]
) -> None:
    (work / "a.txt").write_text("one")
    os.mkfifo(work / "fifo")
    assert await preview(tool, **given) == ""


async def test_a_file_that_the_session_may_not_read_is_not_shown(
    work: Path, coordinator: ModuleCoordinator, preview: Any
) -> None:
    (work / "a.txt").write_text("hidden")
    (work / "b.txt").write_text("shown")
    rules = {"deny": ["read_file(a.txt)"], "ask": ["write_file"]}
    coordinator.permissions = PermissionGate(Policy([parse_permissions(rules, "bundle 'x'")]), work)
    assert await preview("write_file", file_path="b.txt", content="new") != ""
    assert await preview("write_file", file_path="a.txt", content="new") == ""


async def test_a_file_that_changes_between_question_and_answer_is_not_replaced(
    work: Path, coordinator: ModuleCoordinator
) -> None:
    (work / "a.txt").write_text("one")

    class Slow:
        async def request_approval(self, prompt: str, *more: Any) -> str:
            assert "-one\n+new" in prompt
            (work / "a.txt").write_text("theirs")
            return "Allow"

    coordinator.approval_system = Slow()  # type: ignore[assignment]
    data = {"tool_name": "write_file", "tool_input": {"file_path": "a.txt", "content": "new"}}
    question = HookResult(action="ask_user", approval_prompt="Write?", data=data)
    answer = await coordinator.process_hook_result(question, TOOL_PRE, "gate")
    assert answer.action == "deny" and "is not what was shown" in (answer.reason or "")
