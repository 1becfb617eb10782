"""Sessions in git worktrees, over a `kill -9` at each step: every change is merged once, and nothing is left over."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import TriggerEvent, TriggerType, load_plugins
from amplifier_foundation import open_inbox
from tests import forks
from tests.programs import require

KILLER = """
import os, signal
from amplifier_core.hookspecs import hookimpl
from amplifier_foundation.background import git, worktrees
from amplifier_storage_sqlite.store import SqliteStore

step, number, when = os.environ.get("KILL_AT", "none:0:before").split(":")
left = int(number)


def kill_at(moment):
    global left
    if moment == when:
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def kills(owner, name, fits):
    function = getattr(owner, name)

    def killing(*arguments, **given):
        is_there = fits(*arguments)
        is_there and kill_at("before")
        result = function(*arguments, **given)
        is_there and kill_at("after")
        return result

    setattr(owner, name, killing)


async def commit(self, *arguments, **given):
    kill_at("before")
    result = await stored(self, *arguments, **given)
    kill_at("after")
    return result


kills(git, "_run", lambda arguments, *rest: " ".join(arguments).startswith(step))
kills(worktrees.Worktree, "save", lambda worktree: step == "note")
kills(worktrees, "remove_folder", lambda path: step == "remove")
if step == "store":
    stored, SqliteStore.commit = SqliteStore.commit, commit


@hookimpl
def amplifier_register_runner(register):
    pass
"""
"""A plugin that kills the process before or after the n-th step of this kind."""

DYING = """
import os, signal
from pathlib import Path
from amplifier_core import ToolResult

class Die:
    name, description = "die", "End the process the first time."
    input_schema = {"type": "object", "properties": {}}
    accesses = {}
    def __init__(self, folder): self.folder = folder
    async def execute(self, input):
        once = Path(os.environ["AMPLIFIER_HOME"], "died")
        if not once.exists():
            once.write_text(self.folder)
            os.kill(os.getpid(), signal.SIGKILL)
        Path(self.folder, "same.txt").write_text(str(self.folder == once.read_text()))
        return ToolResult(success=True, output="alive")

async def mount(coordinator, config):
    await coordinator.mount("tools", Die(coordinator.get_capability("session.working_dir")))
"""

BUNDLE: dict[str, Any] = {
    "bundle": {"name": "crew"},
    "session": {"orchestrator": "loop-basic", "context": "context-simple"},
    "tools": [{"module": "tool-filesystem"}],
    "background_sessions": [
        {
            "name": "coder",
            "instruction_template": "{task}",
            "worktree": {"branch": "issue-{data.id}", "finish": "merge"},
            "triggers": [{"type": "manual"}],
        }
    ],
}
RULES: list[dict[str, Any]] = [
    {
        "when": {"user": "write"},
        "call": {"tool": "write_file", "input": {"file_path": "new.txt", "content": "hello\n"}},
    },
    {"when": {"tool": "write_file"}, "say": "Wrote it"},
]


class Project:
    """A repository with a bundle, and the runs of `up` on it."""

    def __init__(self, folder: Path, rules: list[dict[str, Any]], **sections: Any) -> None:
        self.folder, self.home = folder / "project", folder / "home"
        self.folder.mkdir()
        provider = {"module": "provider-playbook", "config": {"rules": rules, "otherwise": {"say": "Done."}}}
        bundle = {**BUNDLE, "providers": [provider], **sections}
        (self.folder / "bundle.md").write_text(f"---\n{json.dumps(bundle)}\n---\n")
        killer = folder / "killer"
        (killer / "worktree_killer-1.dist-info").mkdir(parents=True)
        (killer / "worktree_killer.py").write_text(KILLER)
        (killer / "worktree_killer-1.dist-info" / "METADATA").write_text("Name: worktree-killer\nVersion: 1\n")
        entry = "[amplifier]\nkiller = worktree_killer\n"
        (killer / "worktree_killer-1.dist-info" / "entry_points.txt").write_text(entry)
        path = os.pathsep.join(filter(None, [str(killer), os.environ.get("PYTHONPATH")]))
        self.environment = {
            **os.environ,
            "AMPLIFIER_HOME": str(self.home),
            "AMPLIFIER_TRUST": "1",
            "HOME": str(folder / "nobody"),
            "PYTHONPATH": path,
        }
        self.git("init", "--quiet", "-b", "main")
        self.git("add", "--all")
        self.git("-c", "user.name=Ann", "-c", "user.email=ann@example.org", "commit", "--quiet", "-m", "first")

    def git(self, *arguments: str) -> str:
        """Run git; return its output."""
        argv = ["git", *arguments]
        return subprocess.run(argv, cwd=self.folder, capture_output=True, text=True, check=True).stdout.strip()

    def run(self, *arguments: str, kill_at: str = "none:0:before") -> subprocess.CompletedProcess[str]:
        """Run the program."""
        return forks.run(("-q", *arguments), cwd=self.folder, env={**self.environment, "KILL_AT": kill_at})

    async def fire(self, number: int = 7, task: str = "write it") -> None:
        """Give it one event."""
        store = open_inbox(load_plugins(environ={}), path=self.home / "amplifier.db")
        try:
            event = TriggerEvent(TriggerType.MANUAL, "trigger-manual", data={"id": number, "task": task})
            trigger = "crew/coder/trigger-manual#1"
            assert await store.enqueue(str(self.folder.resolve()), "crew/coder", trigger, event)
        finally:
            await store.close()

    def assert_merged_once(self) -> None:
        """Assert that the change is there by one commit and one merge, and nothing is left over."""
        assert self.git("log", "--topo-order", "--format=%s", "--no-merges").splitlines() == ["Wrote it", "first"]
        assert self.git("log", "--format=%s", "--merges").splitlines() == ["Merge branch 'issue-7'"]
        assert self.git("for-each-ref", "--format=%(refname:short)", "refs/heads") == "main"
        assert self.git("status", "--porcelain") == ""
        assert len(self.git("worktree", "list").splitlines()) == 1
        assert [each.name for each in (self.home / "worktrees").iterdir()] == []


@pytest.mark.parametrize(
    "step",
    [
        "note:1:after",
        "update-ref:1:before",
        "update-ref:1:after",
        "worktree add:1:before",
        "worktree add:1:after",
        "note:2:after",
        "add --all:1:before",
        "add --all:1:after",
        "commit-tree:1:after",
        "update-ref:2:after",
        "note:3:after",
        "merge-tree:1:after",
        "merge --quiet:1:before",
        "merge --quiet:1:after",
        "note:4:after",
        "remove:1:after",
        "worktree remove:1:before",
        "worktree remove:1:after",
        "update-ref -d:1:after",
        "store:1:before",
        "store:1:after",
    ],
)
async def test_a_kill_at_any_step_loses_nothing_and_makes_nothing_twice(tmp_path: Path, step: str) -> None:
    require("git")
    project = Project(tmp_path, RULES)
    await project.fire()
    killed = project.run("up", "--once", kill_at=step)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = project.run("up", "--once")
    assert done.returncode == 0, done.stderr
    project.assert_merged_once()


def dying_project(folder: Path) -> Project:
    """A project whose session writes a file, and kills its process the first time."""
    (folder / "dying.py").write_text(DYING)
    rules = [
        RULES[0],
        {"when": {"tool": "write_file"}, "call": {"tool": "die", "input": {}}},
        {"when": {"tool": "die"}, "say": "Wrote it"},
    ]
    dying = {"module": "tool-die", "source": str(folder / "dying.py")}
    return Project(folder, rules, tools=[{"module": "tool-filesystem"}, dying])


async def test_a_session_killed_in_its_turn_goes_on_in_the_same_worktree(tmp_path: Path) -> None:
    require("git")
    project = dying_project(tmp_path)
    await project.fire()
    assert project.run("up", "--once").returncode == -signal.SIGKILL
    assert project.git("for-each-ref", "--format=%(refname:short)", "refs/heads").splitlines() == ["issue-7", "main"]
    done = project.run("up", "--once")
    assert done.returncode == 0, done.stderr
    project.assert_merged_once()
    assert (project.folder / "same.txt").read_text() == "True"
    assert (project.folder / "new.txt").read_text() == "hello\n"


@pytest.mark.parametrize("in_its_place", ["nothing", "a folder"])
async def test_a_worktree_that_was_removed_meanwhile_is_told_and_deletes_nothing(
    tmp_path: Path, in_its_place: str
) -> None:
    require("git")
    project = dying_project(tmp_path)
    tip = project.git("rev-parse", "main")
    await project.fire()
    assert project.run("up", "--once").returncode == -signal.SIGKILL
    [worktree] = [each for each in (project.home / "worktrees").iterdir() if each.is_dir()]
    shutil.rmtree(worktree)
    if in_its_place == "a folder":
        worktree.mkdir()
        (worktree / "other.txt").write_text("somebody's\n")
    done = project.run("up", "--once")
    assert done.returncode == 1
    assert "was removed, with the work of its session" in project.run("trigger", "dead").stdout
    assert project.git("rev-parse", "main") == tip
    assert project.git("status", "--porcelain") == ""


async def test_processes_of_their_own_change_one_file_and_everything_is_told(tmp_path: Path) -> None:
    require("git")
    change = {
        "file_path": "lines.txt",
        "old_string": "line {number}\n",
        "new_string": "line {number}: done\n",
    }
    rules = [
        {"when": {"user": "^change (?P<number>[0-9]+)"}, "call": {"tool": "edit_file", "input": change}},
        {"when": {"tool": "edit_file"}, "say": "Changed line {number}"},
    ]
    [declared] = BUNDLE["background_sessions"]
    sections = [{**declared, "pool_size": 4, "runner": "subprocess", "retry": {"delay": 0.1}}]
    project = Project(tmp_path, rules, background_sessions=sections)
    (project.folder / "lines.txt").write_text("".join(f"line {number}\n" for number in range(0, 50)))
    project.git("add", "--all")
    project.git("-c", "user.name=Ann", "-c", "user.email=ann@example.org", "commit", "--quiet", "-m", "lines")
    for number in (5, 15, 25, 35):
        await project.fire(number, f"change {number}")
    done = project.run("up", "--once")
    assert done.returncode == 0, done.stderr
    lines = (project.folder / "lines.txt").read_text().splitlines()
    assert [line for line in lines if "done" in line] == [f"line {number}: done" for number in (5, 15, 25, 35)]
    assert project.git("for-each-ref", "--format=%(refname:short)", "refs/heads") == "main"
    told = project.run("logs").stdout
    assert all(f"Changed line {number}; merged issue-{number}" in told for number in (5, 15, 25, 35))
    (project.folder / "lines.txt").write_text("mine")
    await project.fire(45, "change 45")
    assert project.run("up", "--once").returncode == 0
    assert (project.folder / "lines.txt").read_text() == "mine"
    left = "left branch issue-45: uncommitted changes of yours in lines.txt"
    assert f"Changed line 45; {left}" in project.run("logs").stdout
    sessions = json.loads(project.run("session", "list", "--json").stdout)["data"]
    shown = [project.run("session", "show", each["session_id"]).stdout for each in sessions]
    assert sum(left in each for each in shown) == 1
