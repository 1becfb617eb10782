"""`amplifier issue`: the issues of a project for people and scripts."""

from __future__ import annotations

import io
import json
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import amplifier_tool_issue
from amplifier_core import load_plugins
from amplifier_foundation import open_inbox
from amplifier_foundation.cli import exits, invoke
from amplifier_foundation.sessions.documents import documents_of

if TYPE_CHECKING:
    from collections.abc import Callable

    Told = Callable[..., str]

pytestmark = pytest.mark.usefixtures("home", "project")
README = (Path(amplifier_tool_issue.__file__).parents[1] / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    """Give a command that ends with a code; return what it prints."""

    def run(*arguments: str, code: int = exits.OK) -> str:
        capsys.readouterr()
        ended = invoke(["issue", *arguments])
        out, err = capsys.readouterr()
        assert ended == code, (out, err)
        return out if code == exits.OK else err

    return run


@pytest.fixture
def facts(told: Told) -> Callable[..., Any]:
    """Give a command with `--json`; return its data."""

    def run(*arguments: str) -> Any:
        said = json.loads(told(*arguments, "--json"))
        assert said["schema"] == f"amplifier/issue.{arguments[0]}/1"
        return said["data"]

    return run


def test_an_issue_is_made_changed_and_closed(told: Told) -> None:
    assert told("create", "Write the tests", "-t", "testing", "-p", "1", "-l", "a", "-l", "b") == (
        "1  open  Write the tests\n"
    )
    assert told("create", "Publish them", "--blocked-by", "#1") == "2  blocked by 1  Publish them\n"
    assert told("update", "1", "--status", "escalated", "--reason", "Which ones?") == "1  escalated  Write the tests\n"
    assert told("comment", "1", "All of them.") == "1  escalated  Write the tests\n"
    assert told("update", "1", "--status", "open") == "1  open  Write the tests\n"
    assert told("depend", "1", "2", code=exits.USAGE).startswith("amplifier: issue 1 cannot wait for 2: 2 waits for 1")
    assert told("depend", "2", "1", "--remove") == "2  open  Publish them\n"
    assert told("depend", "2", "1") == "2  blocked by 1  Publish them\n"
    assert told("close", "1", "--result", "They pass.") == "1  closed  Write the tests\n"
    assert [" ".join(line.split()) for line in told("list").splitlines()] == [
        "ISSUE STATE PRIORITY TYPE TITLE WORKER",
        "2 open 2 task Publish them",
    ]
    assert [line.split()[0] for line in told("list", "--all").splitlines()] == ["ISSUE", "2", "1"]
    shown = told("show", "1")
    for line in ("issue: 1 Write the tests", "state: closed (completed)", "type: testing", "labels: a, b", "blocks: 2"):
        assert f"{line}\n" in shown
    assert "made by: a person\n" in shown
    assert "\nresult:\nThey pass.\n" in shown
    assert re.search(r"\n\S+Z a person:\nAll of them.\n", shown)


def test_programs_get_the_facts_as_json(facts: Callable[..., Any]) -> None:
    made = facts("create", "one", "-d", "What is to be done.")
    assert (made["id"], made["state"], made["description"]) == (1, "open", "What is to be done.")
    assert facts("comment", "1", "hm")["comments"] == 1
    assert facts("update", "1", "-p", "0", "--title", "uno")["priority"] == 0
    facts("create", "two")
    assert facts("depend", "2", "1")["state"] == "blocked"
    assert [each["id"] for each in facts("list", "--ready")] == [1]
    assert [each["id"] for each in facts("list", "-s", "blocked")] == [2]
    assert [each["id"] for each in facts("list", "--limit", "1")] == [1]
    assert facts("close", "1", "--resolution", "wontfix")["resolution"] == "wontfix"
    shown = facts("show", "#1")
    assert (shown["title"], [each["text"] for each in shown["said"]]) == ("uno", ["hm"])


def test_texts_are_read_from_stdin(facts: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments in (["create", "one", "-d", "-"], ["comment", "1", "-"], ["close", "1", "--result", "-"]):
        monkeypatch.setattr(sys, "stdin", io.StringIO(f"\ufeffread by {arguments[0]}\n"))
        facts(*arguments)
    shown = facts("show", "1")
    texts = [shown["description"], shown["said"][0]["text"], shown["result"]]
    assert texts == ["read by create", "read by comment", "read by close"]


def test_the_list_is_chosen_and_cut(told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["issue", "list"]) == exits.OK
    empty = "No issues here. Make one with: amplifier issue create TITLE\n"
    assert capsys.readouterr() == ("", empty)
    for title, kind in (("one", "bug"), ("two", "task"), ("three", "bug")):
        told("create", title, "-t", kind, "-l", title)
    assert [line.split()[0] for line in told("list", "-t", "bug").splitlines()[1:]] == ["1", "3"]
    assert [line.split()[0] for line in told("list", "-l", "two").splitlines()[1:]] == ["2"]
    assert invoke(["issue", "list", "--limit", "2"]) == exits.OK
    out, err = capsys.readouterr()
    assert (len(out.splitlines()), err) == (3, "There are more; --limit 4 shows some of them.\n")
    assert invoke(["issue", "list", "-l", "four"]) == exits.OK
    assert capsys.readouterr() == ("", "No such issues. See all with: amplifier issue list --all\n")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["show", "7"], exits.NOT_FOUND, "there is no issue 7 here; `issue list` shows those there are"),
        (["update", "7", "--title", "a"], exits.NOT_FOUND, "there is no issue 7 here"),
        (["comment", "7", "a"], exits.NOT_FOUND, "there is no issue 7 here"),
        (["close", "7"], exits.NOT_FOUND, "there is no issue 7 here"),
        (["depend", "7", "8"], exits.NOT_FOUND, "there is no issue 7 here"),
        (["create", "a", "--blocked-by", "7"], exits.NOT_FOUND, "there is no issue 7 here"),
        (["show", "seven"], exits.USAGE, "'seven' is no number of an issue; give one such as 3"),
        (["show"], exits.USAGE, "Missing argument 'ISSUE'"),
        (["update", "1"], exits.USAGE, "nothing to change; give an option such as --status open"),
        (["update", "1", "--status", "done"], exits.USAGE, "'done' is not one of"),
        (["create", "a", "-p", "5"], exits.USAGE, "5 is not in the range 0<=x<=4"),
        (["create", " "], exits.USAGE, "title: must not be empty"),
        (["create", "x" * 201], exits.USAGE, "title: has 201 characters; at most 200 are kept"),
        (["create", "a\x1b[31mb"], exits.USAGE, "title: must be one line of printable characters"),
        (["comment", "1", ""], exits.USAGE, "text: must not be empty"),
        (["list", "--limit", "0"], exits.USAGE, "0 is not in the range 1<=x<=1000000000"),
        (["lst"], exits.USAGE, "lst"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_a_code(arguments: list[str], code: int, message: str, told: Told) -> None:
    said = told(*arguments, code=code)
    assert message in said
    assert "Traceback" not in said


def test_issues_of_another_project_are_not_here(told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told("create", "one")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert told("list", "--all") == ""
    assert "there is no issue 1 here" in told("show", "1", code=exits.NOT_FOUND)


@pytest.mark.parametrize("arguments", [["create", "one"], ["list"], ["show", "1"], ["close", "1"]])
def test_a_storage_without_documents_is_refused_with_the_remedy(
    arguments: list[str], told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMPLIFIER_STORAGE", "storage-jsonl")
    said = told(*arguments, code=exits.USAGE)
    assert "JsonlStore keeps no documents, such as issues and notes. Use storage-sqlite for them: AMPLIFIER_" in said


async def test_no_text_of_an_issue_steers_the_terminal(project: Path, told: Told) -> None:
    evil = "a\x1b[2J\x1b]0;owned\x07\u202eb\nline"
    store = open_inbox(load_plugins(environ={}))
    documents = documents_of(store, str(project.resolve()))
    texts = dict.fromkeys(("title", "type", "description", "result", "reason", "assignee", "resolution"), evil)
    data = {"id": 1, **texts, "labels": [evil], "comments": 1, "metadata": {"branch": evil, "conflicts": [evil]}}
    said = {"text": evil, "author": evil, "created": "now"}
    await documents.write(
        [
            documents.change("issues", "0000000001", data),
            documents.change("issue.comments", "0000000001:000001", said),
        ]
    )
    await store.close()
    import asyncio

    for arguments in (["list"], ["show", "1"], ["update", "1", "-p", "0"], ["comment", "1", "a"], ["close", "1"]):
        shown = await asyncio.to_thread(told, *arguments)
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202e]", shown), (arguments, shown)


def test_the_example_of_the_readme_runs(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = dict(re.findall(r"^```(yaml|console)\n(.*?)^```$", README, flags=re.M | re.S))
    (project / "bundle.md").write_text(blocks["yaml"], encoding="utf-8")
    for part in blocks["console"].split("$ ")[1:]:
        command, *output = part.splitlines()
        capsys.readouterr()
        assert invoke(shlex.split(command)[1:]) == exits.OK
        said = capsys.readouterr().out
        if output:
            assert [line.rstrip() for line in said.splitlines()] == output, command
    assert said.count("closed") == 2
