"""A project with a foreman, worked by the real command line; what its store says of issues, events and branches."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import threading
import time
from contextlib import asynccontextmanager
from typing import IO, TYPE_CHECKING, Any

from amplifier_core import load_plugins
from amplifier_foundation import open_inbox
from amplifier_foundation.background.status_log import BACKGROUND_STATE
from amplifier_foundation.sessions.documents import documents_of
from amplifier_tool_issue import Tracker
from tests import forks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from amplifier_core import SessionEvent, TriggerEvent
    from amplifier_core.storage import Delivery
    from amplifier_tool_issue import Issue

PATIENCE = 30.0
INSTRUCTION = "Work on issue {issue_id}: {title}\n\n{description}\n\n{reason}"
RULES: list[dict[str, Any]] = [
    {
        "when": {"user": "^Work on issue [0-9]+: write (?P<file>\\S+) (?P<text>[^\\n]+)"},
        "call": {"tool": "write_file", "input": {"file_path": "{file}", "content": "{text}\n"}},
    },
    {"when": {"tool": "write_file"}, "say": "Wrote {file}."},
    {"when": {"user": "^Work on issue [0-9]+: hold"}, "call": {"tool": "hold", "input": {}}},
    {"when": {"tool": "hold"}, "say": "Held."},
    {"when": {"user": "^Work on issue [0-9]+: fail"}, "say": "{unknown}"},
    {
        "when": {"user": "^file (?P<title>.+)"},
        "call": {"tool": "issue", "input": {"operation": "create", "title": "{title}"}},
    },
    {"when": {"tool": "issue"}, "say": "Filed {id}."},
]
"""A worker writes a file, waits until there is a file `go`, or fails; the foreman files what it is told to."""
HOLD = """
import asyncio, os
from pathlib import Path

class Hold:
    name, description = "hold", "Wait for the file `go`."
    input_schema = {"type": "object", "properties": {}}
    accesses = {}

    async def execute(self, input):
        while not Path(os.environ["YARD"], "go").exists():
            await asyncio.sleep(0.02)
        return "held"

async def mount(coordinator, config):
    await coordinator.mount("tools", Hold())
"""
WORKER = {
    "bundle": {"name": "worker"},
    "session": {"orchestrator": "loop-basic", "context": "context-simple"},
    "tools": [{"module": "tool-filesystem"}, {"module": "tool-hold", "source": "./hold.py"}],
}


def workers(**fields: Any) -> dict[str, Any]:
    """Return the pool of workers that takes the place of `coding-workers`; none of them needs git."""
    return {
        "name": "coding-workers",
        "bundle": "./worker.md",
        "runner": "subprocess",
        "tracker": "issue",
        "triggers": [{"type": "issue_event"}],
        "instruction_template": INSTRUCTION,
        "on_complete_emit": "work:completed",
        **fields,
    }


def providers(rules: list[dict[str, Any]], **config: Any) -> list[dict[str, Any]]:
    """Return the providers of a bundle that answers by these rules."""
    return [{"module": "provider-playbook", "config": {"rules": rules, "otherwise": {"say": "Fine."}, **config}}]


async def wait_for_line(stream: IO[str] | None, text: str) -> str:
    """Read a stream of a process up to the line with a text, and return the line."""
    assert stream is not None
    return await asyncio.to_thread(lambda: next((line for line in stream if text in line), ""))


class Yard:
    """A folder with a bundle that includes the foreman's, and its store."""

    def __init__(self, folder: Path, home: Path, **sections: Any) -> None:
        self.folder, self.home = folder, home
        folder.mkdir(parents=True)
        self.write(**{"background_sessions": [workers()], "providers": providers(RULES), **sections})
        (folder / "worker.md").write_text(f"---\n{json.dumps(WORKER)}\n---\n")
        (folder / "hold.py").write_text(HOLD)
        self.environment = {
            **os.environ,
            "AMPLIFIER_HOME": str(home),
            "AMPLIFIER_TRUST": "1",
            "HOME": str(home / "nobody"),
            "NO_COLOR": "1",
            "YARD": str(folder),
        }
        self.store = open_inbox(load_plugins(environ={}), path=home / "amplifier.db")

    def write(self, **sections: Any) -> None:
        """Write its bundle."""
        own = {each["name"] for each in sections.get("background_sessions", ())}
        self.names = own | {"coding-workers", "research-workers", "testing-workers", "test-runner"}
        bundle = {"bundle": {"name": "yard"}, "includes": ["foreman:bundle"], **sections}
        (self.folder / "bundle.md").write_text(f"---\n{json.dumps(bundle)}\n---\n")

    @property
    def project(self) -> str:
        return str(self.folder.resolve())

    @property
    def tracker(self) -> Tracker:
        return Tracker(documents_of(self.store, self.project))

    def go(self) -> None:
        """Let the workers that hold go on."""
        (self.folder / "go").touch()

    def git(self, *arguments: str, cwd: Path | None = None) -> str:
        """Run git; return its output."""
        argv = ["git", "-c", "user.name=Ann", "-c", "user.email=ann@example.org", *arguments]
        return subprocess.run(argv, cwd=cwd or self.folder, capture_output=True, text=True, check=True).stdout.strip()

    def commit_all(self) -> None:
        """Make a repository of the folder."""
        self.git("init", "--quiet", "-b", "main")
        (self.folder / ".gitignore").write_text("go\n__pycache__\n")
        self.git("add", "--all")
        self.git("commit", "--quiet", "-m", "first")

    def branches(self) -> list[str]:
        return self.git("for-each-ref", "--format=%(refname:short)", "refs/heads").splitlines()

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start the program; who waits for what it never says is told by its end."""
        pipe = subprocess.PIPE
        process = forks.Popen(arguments, cwd=self.folder, env=self.environment, stdout=pipe, stderr=pipe, text=True)
        killer = threading.Timer(2 * PATIENCE, process.kill)
        killer.daemon = True
        killer.start()
        return process

    async def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the program to its end."""
        with self.start(*arguments) as process:
            out, err = await asyncio.to_thread(process.communicate, timeout=PATIENCE)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    async def succeed(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the program; it ends with 0."""
        done = await self.run(*arguments)
        assert done.returncode == 0, done.stderr
        return done

    @asynccontextmanager
    async def up(self, *arguments: str) -> AsyncIterator[subprocess.Popen[str]]:
        """Have `amplifier up` run meanwhile."""
        with self.start("-q", "up", *arguments) as process:
            await self.until(lambda: self.is_running(process))
            yield process
            process.send_signal(signal.SIGTERM)
            _, err = await asyncio.to_thread(process.communicate, timeout=PATIENCE)
            assert (process.returncode, err) == (128 + signal.SIGTERM, ""), err

    async def is_running(self, process: subprocess.Popen[str]) -> bool:
        """Return whether its background sessions run, by their last states in the log."""
        assert process.poll() is None, process.communicate()
        states = {each.data["name"]: each.data["status"] for each in await self.events(BACKGROUND_STATE)}
        return {name for name, state in states.items() if state == "running"} == self.names

    async def until(self, condition: Callable[[], Awaitable[Any]]) -> None:
        """Wait for a fact."""
        limit = time.monotonic() + PATIENCE
        while not await condition():
            assert time.monotonic() < limit, [each.facts() for each in await self.tracker.find()]
            await asyncio.sleep(0.02)

    async def until_states(self, *states: str) -> list[Issue]:
        """Wait until the issues have these states, in the order of their numbers; return them."""

        async def holds() -> bool:
            return [each.state for each in await self.issues()] == list(states)

        await self.until(holds)
        return await self.issues()

    async def issues(self) -> list[Issue]:
        return sorted(await self.tracker.find(), key=lambda each: each.id)

    async def events(self, *names: str) -> list[SessionEvent]:
        """Return the events of the project with these names."""
        found = await self.store.events(limit=100_000)
        return [each for each in found if each.name in names and each.project in (None, self.project)]

    async def deliveries(self) -> dict[str, Delivery]:
        """Return the deliveries of the project by the id of their event."""
        found = await self.store.deliveries(project=self.project, limit=100_000)
        return {each.event.event_id: each for each in found}

    async def chain(self, event: SessionEvent) -> list[str]:
        """Return the causes of an event, the first one first: names of events, types of other triggers."""
        woken = await self.deliveries()
        logged = {each.event_id: each for each in await self.store.events(limit=100_000)}
        names, at = [event.name], event.cause
        while at is not None:
            trigger: TriggerEvent = woken[at].event
            cause = logged.get(str(trigger.cause))
            names.insert(0, cause.name if cause is not None else trigger.type.value)
            at = cause.cause if cause is not None else None
        return names
