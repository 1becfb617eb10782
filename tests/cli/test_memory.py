"""`amplifier memory`: the notes of a project for people and scripts."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import amplifier_tool_memory
from amplifier_core import load_plugins
from amplifier_foundation import open_inbox
from amplifier_foundation.cli import exits, invoke
from amplifier_foundation.paths import project_of
from amplifier_foundation.sessions.documents import documents_of
from amplifier_tool_memory import Notes

if TYPE_CHECKING:
    from collections.abc import Callable

    Told = Callable[..., str]

README = (Path(amplifier_tool_memory.__file__).parents[1] / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def told(home: Path, project: Path, capsys: pytest.CaptureFixture[str]) -> Told:
    """Give a command that ends with a code; return what it prints."""

    def run(*arguments: str, code: int = exits.OK) -> str:
        capsys.readouterr()
        ended = invoke([*arguments])
        out, err = capsys.readouterr()
        assert ended == code, (out, err)
        return out if code == exits.OK else err

    return run


async def _save(*titles: str, untrusted: str = "") -> None:
    store = open_inbox(load_plugins(environ={}))
    notes = Notes(documents_of(store, project_of(None)), untrusted)
    for title in titles:
        await notes.save(title, f"The text of {title}\x1b[31m", ["ops"])
    await store.close()


def test_an_empty_project_has_no_notes(told: Told) -> None:
    assert told("memory", "list") == ""
    assert told("memory", "search", "anything") == ""
    assert "there is no note 1 here" in told("memory", "show", "1", code=exits.NOT_FOUND)
    assert "is no number of a note" in told("memory", "show", "x", code=exits.USAGE)


def test_notes_are_listed_searched_shown_and_deleted(told: Told) -> None:
    asyncio.run(_save("first", "second"))
    asyncio.run(_save("third", untrusted="a webhook woke it"))
    listed = [line.split()[:2] for line in told("memory", "list").splitlines()]
    assert listed == [["NOTE", "TITLE"], ["3", "third"], ["2", "second"], ["1", "first"]]
    found = json.loads(told("memory", "search", "SECOND", '"', "--json"))
    assert (found["schema"], [each["id"] for each in found["data"]]) == ("amplifier/memory.search/1", [2])
    shown = told("memory", "show", "#3")
    assert "untrusted: a webhook woke it" in shown
    assert "\x1b" not in shown
    facts = json.loads(told("memory", "show", "3", "--json"))["data"]
    assert (facts["text"], facts["tags"], facts["created_by"]) == ("The text of third\x1b[31m", ["ops"], None)
    assert "there is no note 9" in told("memory", "delete", "1", "9", "-y", code=exits.NOT_FOUND)
    assert told("memory", "delete", "1", "3", "1", "--yes") == "deleted 1  first\ndeleted 3  third\n"
    assert [each["id"] for each in json.loads(told("memory", "list", "--json"))["data"]] == [2]


def test_a_tag_that_no_note_has_is_named(home: Path, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["memory", "list", "--tag", "deplyo"]) == exits.OK
    assert capsys.readouterr().err == "No note has the tag 'deplyo'.\n"


def test_the_readme_says_what_happens(told: Told, project: Path) -> None:
    bundle = re.search(r"^```yaml\n(.*?)^```", README, re.M | re.S)
    console = re.search(r"^```console\n(.*?)^```", README, re.M | re.S)
    assert bundle is not None
    assert console is not None
    (project / "bundle.md").write_text(bundle[1], encoding="utf-8")
    for step in console[1].split("$ ")[1:]:
        command, _, expected = step.partition("\n")
        assert told(*shlex.split(command)[1:]) == expected
