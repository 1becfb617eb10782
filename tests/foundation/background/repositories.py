"""A project in a real git repository, with a background session whose sessions work in worktrees."""

from __future__ import annotations

import asyncio
import os
import subprocess
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from amplifier_foundation import Bundle
from amplifier_foundation.background.draining import drain
from amplifier_foundation.background.up import run_background
from amplifier_foundation.paths import data_home
from tests.programs import require

PATIENCE = 60

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    import pytest

    from amplifier_core import Delivery
    from amplifier_core.plugins import Plugins
    from amplifier_core.storage import DurableStore
    from amplifier_foundation import Activity
    from amplifier_foundation.background.up import Up

RUNS_CODE = """
import asyncio, os
from amplifier_core import ToolResult

class Code:
    name, description = "code", "Run Python code in the working folder."
    input_schema = {"type": "object", "properties": {"code": {"type": "string"}}}
    accesses = {}
    def __init__(self, folder): self.folder = folder
    async def execute(self, input):
        exec(input["code"], {"folder": self.folder})
        return ToolResult(success=True, output="ran")

class Hold:
    name, description = "hold", "Wait while a file exists."
    input_schema = {"type": "object", "properties": {}}
    accesses = {}
    def __init__(self, path): self.path = path
    async def execute(self, input):
        while os.path.exists(self.path):
            await asyncio.sleep(0.01)
        return ToolResult(success=True, output="on")

async def mount(coordinator, config):
    await coordinator.mount("tools", Code(coordinator.get_capability("session.working_dir")))
    await coordinator.mount("tools", Hold(config["hold"]))
"""
"""Tools that do what a session without a sandbox could do, and wait for the test."""

RULES = [
    {"when": {"user": r"write (?P<path>\S+) (?P<text>.*)"},
     "call": {"tool": "write_file", "input": {"file_path": "{path}", "content": "{text}\n"}}},
    {"when": {"user": r"run (?P<code>[\s\S]*)"}, "call": {"tool": "code", "input": {"code": "{code}"}}},
    {"when": {"user": r"hold (?P<path>\S+) (?P<text>.*)"},
     "call": [{"tool": "write_file", "input": {"file_path": "{path}", "content": "{text}\n"}},
              {"tool": "hold", "input": {}}]},
    {"when": {"tool": "hold"}, "say": "Wrote {path}"},
    {"when": {"tool": "write_file"}, "say": "Wrote {path}"},
    {"when": {"tool": "code"}, "say": "Ran it"},
]  # fmt: skip


class Repository:
    """A repository, and the project in it."""

    def __init__(self, top: Path, project: Path) -> None:
        self.top, self.project = top, project
        project.mkdir(parents=True, exist_ok=True)

    @classmethod
    def make(cls, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
        """Make a repository with one commit; the project is its top, and git knows no user."""
        require("git")
        monkeypatch.setenv("HOME", str(folder / "nobody"))
        monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
        made = cls(folder / "project", folder / "project")
        made.git("init", "--quiet", "-b", "main")
        made.write("a.txt", "one\ntwo\nthree\n")
        made.commit("first")
        return made

    def git(self, *arguments: str, fails: bool = False) -> str:
        """Run git as the person does."""
        who = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        author = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")
        done = subprocess.run(
            ["git", *author, *arguments],
            cwd=self.top,
            env={**os.environ, **who},
            capture_output=True,
            text=True,
            check=False,
        )
        assert fails or done.returncode == 0, done.stderr
        return done.stdout.strip()

    def write(self, name: str, text: str) -> None:
        """Write a file of the project."""
        (self.project / name).parent.mkdir(parents=True, exist_ok=True)
        (self.project / name).write_text(text)

    def read(self, name: str) -> str:
        """Read a file of the project."""
        return (self.project / name).read_text()

    def commit(self, message: str = "work") -> str:
        """Commit everything; return the commit."""
        self.git("add", "--all")
        self.git("commit", "--quiet", "-m", message)
        return self.git("rev-parse", "HEAD")

    @property
    def branches(self) -> list[str]:
        """The names of the branches."""
        return self.git("for-each-ref", "--format=%(refname:short)", "refs/heads").splitlines()

    def show(self, branch: str, name: str) -> str:
        """Return a file on a branch."""
        return self.git("show", f"{branch}:{name}")

    def is_clean(self) -> bool:
        """Return whether the checkout has no changes, no worktree is left, and no branch but main."""
        return not self.git("status", "--porcelain") and len(self.git("worktree", "list").splitlines()) == 1


class Worker:
    """Runs the background session `coder` of a repository's project, again and again."""

    def __init__(self, repository: Repository, store: DurableStore, plugins: Plugins) -> None:
        self.repository, self.store, self.plugins = repository, store, plugins
        self.activities: list[Activity] = []
        self.hold = repository.top.parent / "hold"
        """While this file exists, `hold` waits."""

    def bundle(self, model: dict[str, Any] | None = None, tools: Sequence[dict[str, Any]] = (), **keys: Any) -> Bundle:
        """Return its bundle; `model` is what its model's config has besides, and `tools` are further tools."""
        source = self.repository.project.parent / "code.py"
        source.write_text(RUNS_CODE)
        playbook = {"rules": RULES, "otherwise": {"say": "Nothing."}, **(model or {})}
        coder = {"name": "coder", "instruction_template": "{task}", "retry": {"delay": 0.001, "max_delay": 0.001}}
        sections: dict[str, Any] = {
            "bundle": {"name": "crew"},
            "session": {"orchestrator": "loop-basic", "context": "context-simple"},
            "providers": [{"module": "provider-playbook", "config": playbook}],
            "tools": [
                {"module": "tool-filesystem"},
                {"module": "tool-code", "source": str(source), "config": {"hold": str(self.hold)}},
                *tools,
            ],
            "background_sessions": [{**coder, **keys}],
        }
        return Bundle.from_dict(sections, self.repository.project)

    @asynccontextmanager
    async def run(self, **keys: Any) -> AsyncIterator[Up]:
        """Run it while the block runs."""
        bundle = self.bundle(**keys)
        where = self.repository.project
        async with run_background(
            [bundle], self.store, self.plugins, working_dir=where, observer=self.activities.append
        ) as [up]:
            yield up

    async def handle(self, *tasks: str, worktree: Any = "merge", **keys: Any) -> list[Delivery]:
        """Have it do tasks, and return all deliveries, the oldest first."""
        async with self.run(worktree=worktree, **keys) as up:
            for number, task in enumerate(tasks, 1):
                await up.manager.fire("coder", {"id": number, "task": task, "title": f"Task {number}"})
            await self.drain(up)
        return await self.deliveries()

    async def drain(self, up: Up) -> None:
        """Wait until everything is handled."""
        await drain([up.manager])

    async def deliveries(self) -> list[Delivery]:
        """Return all deliveries, the oldest first."""
        return [*reversed(await self.store.deliveries(limit=100))]

    async def ends(self) -> list[dict[str, Any]]:
        """Return the data of the completion events."""
        names = ("session:completed", "session:error")
        return [dict(event.data) for event in await self.store.events(limit=1000) if event.name in names]

    async def wait_for(self, is_there: Callable[[], Any]) -> None:
        """Wait until a condition holds."""
        async with asyncio.timeout(PATIENCE):
            while not is_there():
                await asyncio.sleep(0.01)

    async def leave_unfinished(self, name: str, text: str) -> Delivery:
        """Have a session write a file in its worktree, and interrupt it then; return its waiting delivery."""
        self.hold.touch()
        async with self.run(worktree="merge") as up:
            await up.manager.fire("coder", {"id": 0, "task": f"hold {name} {text}", "title": "Held"})
            await self.wait_for(lambda: list(data_home().glob(f"worktrees/*/{name}")))
            await up.manager.stop_all(grace=0)
        self.hold.unlink()
        [delivery] = await self.deliveries()
        assert delivery.state == "pending"
        return delivery
