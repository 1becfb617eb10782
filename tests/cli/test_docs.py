"""The pages of the documentation, as the program shows them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from amplifier_foundation.cli import exits, invoke

ROOT = Path(__file__).parents[2]
PAGES = {path.stem: path for path in ROOT.glob("amplifier_*/docs/*.md")}

pytestmark = pytest.mark.usefixtures("home")


def test_every_page_is_listed_with_its_title(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["docs", "--json"]) == exits.OK
    listed = {each["name"]: each for each in json.loads(capsys.readouterr().out)["data"]}
    assert listed.keys() == {*PAGES, "reference", "authors"}
    assert (listed["trigger"]["title"], listed["trigger"]["path"]) == ("Write a trigger", str(PAGES["trigger"]))
    assert invoke(["docs"]) == exits.OK
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == list(listed)


def test_a_page_is_printed_as_it_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    for name, path in PAGES.items():
        assert invoke(["docs", name]) == exits.OK
        assert capsys.readouterr().out == path.read_text(encoding="utf-8")


def test_an_unknown_page_is_told_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["docs", "trigers"]) == exits.NOT_FOUND
    assert "unknown page 'trigers'; did you mean 'trigger'?" in capsys.readouterr().err
