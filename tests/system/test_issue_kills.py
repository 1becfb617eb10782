"""Issues and their workers over a `kill -9` at each step of the store: each issue is done once, and told once."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import load_plugins
from amplifier_foundation import open_inbox
from amplifier_foundation.sessions.documents import documents_of
from amplifier_tool_issue import Tracker
from tests import forks

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

KILLER = """
import os, signal
from amplifier_core.hookspecs import hookimpl
from amplifier_storage_sqlite.store import SqliteStore

step, number, when = os.environ.get("KILL_AT", "none:0:before").split(":")
left = int(number)

def kills(name):
    stored = getattr(SqliteStore, name)

    async def killing(self, *arguments, **given):
        global left
        left -= 1
        if left == 0 and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = await stored(self, *arguments, **given)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(SqliteStore, name, killing)

if step != "none":
    kills(step)

@hookimpl
def amplifier_register_runner(register):
    pass
"""
"""A plugin that kills the process before or after the n-th call of a method of the store."""

RULES: list[dict[str, Any]] = [
    {
        "when": {"user": "^Work"},
        "call": {"tool": "issue", "input": {"operation": "create", "title": "n", "type": "note"}},
    },
    {"when": {"tool": "issue"}, "say": "Done."},
]
BUNDLE: dict[str, Any] = {
    "bundle": {"name": "crew"},
    "session": {"orchestrator": "loop-basic", "context": "context-simple"},
    "providers": [{"module": "provider-playbook", "config": {"rules": RULES}}],
    "tools": [{"module": "tool-issue"}],
    "background_sessions": [
        {
            "name": "worker",
            "tracker": "issue",
            "instruction_template": "Work on {title}",
            "triggers": [{"type": "issue_event", "config": {"except_types": ["note"]}}],
        }
    ],
}


class Crew:
    """A project with two issues, the second of which waits for the first, and the runs of `up` on it."""

    def __init__(self, folder: Path, **changed: Any) -> None:
        self.folder, self.home = folder / "project", folder / "home"
        self.folder.mkdir()
        [background] = BUNDLE["background_sessions"]
        bundle = {**BUNDLE, "background_sessions": [{**background, **changed}]}
        (self.folder / "bundle.md").write_text(f"---\n{json.dumps(bundle)}\n---\n")
        about = folder / "killer" / "issue_killer-1.dist-info"
        about.mkdir(parents=True)
        (about.parent / "issue_killer.py").write_text(KILLER)
        (about / "METADATA").write_text("Name: issue-killer\nVersion: 1\n")
        (about / "entry_points.txt").write_text("[amplifier]\nkiller = issue_killer\n")
        path = os.pathsep.join(filter(None, [str(about.parent), os.environ.get("PYTHONPATH")]))
        self.environment = {
            **os.environ,
            "AMPLIFIER_HOME": str(self.home),
            "AMPLIFIER_TRUST": "1",
            "PYTHONPATH": path,
        }

    def up(self, kill_at: str = "none:0:before") -> subprocess.CompletedProcess[str]:
        """Run the background sessions until nothing waits."""
        return forks.run(("-q", "up", "--once"), cwd=self.folder, env={**self.environment, "KILL_AT": kill_at})

    async def file(self) -> None:
        """Make the issues."""
        store = open_inbox(load_plugins(environ={}), path=self.home / "amplifier.db")
        tracker = Tracker(documents_of(store, str(self.folder.resolve())))
        await tracker.create("one")
        await tracker.create("two", blocked_by=[1])
        await store.close()

    async def facts(self) -> tuple[dict[int, tuple[str, str]], Counter[tuple[str, int]], Counter[str]]:
        """Return the titles and states of the issues, how often each event was told, and the states of deliveries."""
        store = open_inbox(load_plugins(environ={}), path=self.home / "amplifier.db")
        tracker = Tracker(documents_of(store, str(self.folder.resolve())))
        issues = {each.id: (each.title, each.state) for each in await tracker.find()}
        told = Counter((each.name, each.data["id"]) for each in await store.events() if each.name.startswith("issue:"))
        deliveries = Counter(each.state for each in await store.deliveries())
        await store.close()
        return issues, told, deliveries


STEPS = [
    "save_trigger_state:1:before",
    "enqueue:1:after",
    "claim:1:after",
    "write_documents:1:before",
    "write_documents:1:after",  # begun
    "write_documents:2:before",
    "write_documents:2:after",  # the tool has made an issue
    "commit:1:before",
    "commit:1:after",  # closed
    "enqueue:2:before",
    "write_documents:4:after",
    "commit:2:before",
]


@pytest.mark.parametrize("step", STEPS)
async def test_a_kill_at_any_step_loses_no_issue_and_does_none_twice(step: str, tmp_path: Path) -> None:
    crew = Crew(tmp_path)
    await crew.file()
    killed = crew.up(step)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = crew.up()
    assert done.returncode == 0, done.stderr
    issues, told, deliveries = await crew.facts()
    assert sorted(issues.values()) == [("n", "open"), ("n", "open"), ("one", "closed"), ("two", "closed")]
    assert told == {
        **{("issue:created", number): 1 for number in issues},
        ("issue:updated", 1): 1,
        ("issue:updated", 2): 1,
        ("issue:closed", 1): 1,
        ("issue:closed", 2): 1,
        ("issue:unblocked", 2): 1,
    }
    assert deliveries["done"] == 2
    assert not deliveries["dead"]


@pytest.mark.parametrize("step", ["1:before", "1:after", "2:after"])
async def test_a_kill_while_work_is_given_up_counts_each_failure_once(step: str, tmp_path: Path) -> None:
    crew = Crew(tmp_path, instruction_template="{absent}")
    await crew.file()
    assert crew.up(f"dead_letter:{step}").returncode == -signal.SIGKILL
    crew.up()
    issues, told, deliveries = await crew.facts()
    assert issues == {1: ("one", "escalated"), 2: ("two", "blocked")}
    assert (told["issue:updated", 1], deliveries) == (4, {"dead": 2})
