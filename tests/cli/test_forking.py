"""The tool `fork` at the command line: its README, and the forks in the tree of sessions."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import amplifier_tool_fork
from amplifier_foundation.cli import invoke

README = (Path(amplifier_tool_fork.__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_a_session_keeps_the_best_of_its_forks_as_documented(
    home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = re.search(r"^```yaml\n(.*?)^```", README, re.M | re.S)
    assert bundle is not None
    (project / "bundle.md").write_text(bundle[1], encoding="utf-8")
    assert invoke(["run", "name the robot"]) == 0
    assert capsys.readouterr().out == "It is Jo.\n"
    assert invoke(["session", "list", "--json"]) == 0
    sessions = json.loads(capsys.readouterr().out)["data"]
    [lead] = [each for each in sessions if each["parent_id"] is None]
    forks = [each for each in sessions if each["parent_id"] is not None]
    assert [(each["parent_id"], each["fork_of"]) for each in forks] == [(lead["session_id"], lead["session_id"])] * 2
    assert invoke(["session", "tree", lead["session_id"]]) == 0
    tree = capsys.readouterr().out
    assert all(each["session_id"] in tree for each in forks)
    assert "fork" in tree
