"""The example of the README does what it says, with workers in processes and worktrees of their own."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from tests import forks
from tests.foundation.background.repositories import Repository

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")

pytestmark = pytest.mark.slow


def test_a_foreman_of_your_own_has_a_worker_repair_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = Repository.make(tmp_path, monkeypatch)
    [example] = re.findall(r"^```markdown\n(.*?)^```$", README, flags=re.M | re.S)
    repository.write("bundle.md", example)
    repository.write("calc.py", "broken\n")
    repository.commit("begin")
    environment = {**os.environ, "AMPLIFIER_HOME": str(tmp_path / "home"), "AMPLIFIER_TRUST": "1"}

    def run(*arguments: str) -> str:
        done = forks.run(arguments, cwd=repository.top, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run("run", "Repair calc.py") == "Issue 1 asks for it.\n"
    issues = json.loads(run("issue", "list", "--all", "--json"))["data"]
    assert [(each["title"], each["state"]) for each in issues] == [("Repair calc.py", "closed")]
    assert repository.read("calc.py") == "repaired\n"
    assert repository.git("log", "--format=%s", "--no-merges").splitlines() == ["Repaired calc.py.", "begin", "first"]
