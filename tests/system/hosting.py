"""Hosts that share a real PostgreSQL: processes of `amplifier`, each with a line to the server that a test cuts.

Where the machine allows them, the hosts live in network namespaces of their own, so that a cut line is silence.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from amplifier_core import TriggerEvent, TriggerType, load_plugins
from amplifier_core.errors import StoreUnavailable
from amplifier_core.storage import Admission
from amplifier_foundation import open_inbox
from amplifier_foundation.sessions.history import final_answer
from tests import forks
from tests.stalling_proxy import StallingProxy

if TYPE_CHECKING:
    from collections.abc import Callable

    from amplifier_core.storage import Delivery
    from tests.postgres import Postgres

PROGRAM = [sys.executable, "-m", "amplifier_foundation"]
LEASE = 2.0
"""Seconds; a person's hosts have 30."""
STEP = 0.05
"""Seconds between two marks of the tool."""
PATIENCE = 120.0
QUEUE = "farm/worker"
BUNDLE = """---
bundle: {name: farm}
providers:
  - module: provider-playbook
    config:
      rules:
        - when: {user: 'work (?P<n>\\d+)'}
          call: {tool: mark, input: {n: "{n}"}}
        - when: {tool: mark}
          say: "done {n}"
tools: [{module: tool-mark, source: ./mark.py}]
background_sessions:
  - name: worker
    instruction_template: work {n}
    pool_size: 2
    max_attempts: 100
    retry: {delay: 0.1}
    on_complete_emit: farm:done
    runner: {runner}
  - name: clock
    instruction_template: tick
    triggers: [{module: trigger-timer, config: {interval: 1s}}]
    mode: parallel
    pool_size: 1
---
"""
MARK = """
import asyncio, os, time

class Mark:
    name = "mark"
    description = "Works for a while, and notes when."
    input_schema = {"type": "object", "properties": {"n": {"type": "string"}}}

    async def execute(self, input):
        from amplifier_core import ToolResult
        for _ in range(8):
            line = f"{input['n']} {os.environ['HOST']} {os.getpid()} {id(input)} {time.monotonic()}\\n"
            with open("marks", "a") as marks:
                marks.write(line)
            await asyncio.sleep(0.05)
        return ToolResult(success=True, output={"n": input["n"]})

async def mount(coordinator, config):
    await coordinator.mount("tools", Mark())
"""
Cut = Literal["all", "answers", "silence"]


@dataclass
class Host:
    """One host: a data folder, a line to the server, and the process of `up` or `worker`."""

    name: str
    role: Literal["up", "worker"]
    project: Path
    home: Path
    proxy: StallingProxy
    dsn: str
    namespace: str = ""
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start its process, or start it again."""
        self.home.mkdir(mode=0o700, exist_ok=True)
        settings = {"storage": {"name": "storage-postgres", "config": {"dsn": "env:DSN"}}, "hosts": {"lease": LEASE}}
        (self.home / "settings.yaml").write_text(json.dumps(settings))
        within = ["ip", "netns", "exec", self.namespace, *PROGRAM] if self.namespace else []
        start = subprocess.Popen if self.namespace else forks.Popen
        with (self.home / "log").open("ab") as log:
            self.process = start(
                [*within, "-q", self.role, "--trust", "bundle.md"],
                cwd=self.project,
                env={**os.environ, "AMPLIFIER_HOME": str(self.home), "DSN": self.dsn, "HOST": self.name},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The id of its process."""
        assert self.process is not None
        return self.process.pid

    def send(self, number: signal.Signals) -> None:
        """Send a signal to its process."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill its process with SIGKILL."""
        self.send(signal.SIGKILL)
        assert self.process is not None
        self.process.wait(PATIENCE)

    def stop(self) -> None:
        """End its process in order."""
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)
        assert self.process is not None
        self.process.wait(PATIENCE)

    def cut(self, how: Cut) -> None:
        """Cut its line: connections end and are refused, answers are kept back, or nothing passes, in silence."""
        if how == "all":
            self.proxy.refuse()
        elif how == "silence" and self.namespace:
            _ip("link", "set", f"{self.namespace}-0", "down")
        else:
            self.proxy.stall(to="client" if how == "answers" else None)

    def heal(self) -> None:
        """Make the line whole again."""
        if self.namespace:
            _ip("link", "set", f"{self.namespace}-0", "up")
        self.proxy.resume()
        self.proxy.cut()


@dataclass
class Farm:
    """A project, its hosts, and what was given to do."""

    folder: Path
    server: Postgres
    seed: str
    with_namespaces: bool = False
    runner: str = "inprocess"
    hosts: list[Host] = field(default_factory=list)
    given: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.project = self.folder / "project"
        self.project.mkdir(parents=True)
        (self.project / "bundle.md").write_text(BUNDLE.replace("{runner}", self.runner))
        (self.project / "mark.py").write_text(MARK)
        (self.project / "marks").touch()
        self.dsn = self.server.create()
        self.store: Any = open_inbox(load_plugins(environ={}), self._storage(self.dsn))

    @staticmethod
    def _storage(dsn: str) -> dict[str, Any]:
        return {"name": "storage-postgres", "config": {"dsn": dsn}}

    def add_host(self, name: str, role: Literal["up", "worker"] = "up") -> Host:
        """Start a host."""
        namespace, address = "", "127.0.0.1"
        if self.with_namespaces:
            namespace = f"amp{os.getpid() % 10_000}{name[0]}"
            address = _add_namespace(namespace, len(self.hosts))
        proxy = StallingProxy(str(next(self.server.folder.glob(".s.PGSQL.*[0-9]"))), address)
        dsn = self.dsn.replace(f"host={self.server.folder}", f"host={address} port={proxy.port}")
        host = Host(name, role, self.project, self.folder / name, proxy, dsn, namespace)
        self.hosts.append(host)
        host.start()
        return host

    async def close(self) -> None:
        """End everything."""
        for host in self.hosts:
            host.send(signal.SIGCONT)
            host.kill()
            host.proxy.close()
            if host.namespace:
                subprocess.run(["ip", "netns", "del", host.namespace], check=False)
        await self.store.close()

    async def give(self, count: int = 1, key: str | None = None) -> None:
        """Enqueue work; a server that does not answer gets it later, and accepts it once."""
        for _ in range(count):
            number = len(self.given)
            self.given.append(number)
            event = TriggerEvent(
                TriggerType.CUSTOM, "test", data={"n": number}, event_id=f"event{number:08}", dedupe_key=f"n{number}"
            )
            admission = Admission(key=key) if key is not None else None
            while True:
                try:
                    await self.store.enqueue(str(self.project), QUEUE, f"{QUEUE}/test", event, admission=admission)
                    break
                except StoreUnavailable:
                    await asyncio.sleep(0.05)

    async def until(self, condition: Callable[[], Any], patience: float = PATIENCE) -> float:
        """Return when the condition, perhaps awaited, holds: after so many seconds. The store may be away meanwhile."""
        began = time.monotonic()
        while True:
            with suppress(StoreUnavailable):
                holds = condition()
                if await holds if asyncio.iscoroutine(holds) else holds:
                    return time.monotonic() - began
            assert time.monotonic() - began < patience, self.describe()
            await asyncio.sleep(0.02)

    def describe(self) -> str:
        """Return the ends of the logs of all hosts, for a failed test."""
        return "\n".join(f"{host.name}: {(host.home / 'log').read_text()[-1500:]}" for host in self.hosts)

    async def deliveries(self) -> list[Delivery]:
        """Return the deliveries of what was given."""
        found: list[Delivery] = await self.store.deliveries(queue=QUEUE, limit=1_000_000)
        return found

    async def is_done(self) -> bool:
        """Return whether all that was given is done."""
        return not any(each.state in ("pending", "claimed") for each in await self.deliveries())  # in one look

    async def is_at_work(self, host: Host) -> bool:
        """Return whether a host has claimed something."""
        claimed = await self.store.deliveries(queue=QUEUE, state="claimed", limit=100)
        return any(each.owners[-1].startswith(f"{host.pid}-") for each in claimed)

    async def leader(self) -> str | None:
        """Return the process that leads the timers."""
        leases = await self.store.leases()
        return leases[0].owner if leases else None

    async def check(self) -> dict[str, Any]:
        """Compare what was given with what was done. Return figures."""
        found = await self.deliveries()
        assert sorted(each.event.data["n"] for each in found) == self.given, "accepted once each"
        assert {each.state for each in found} <= {"done"}, {each.reason for each in found if each.state != "done"}
        for each in found:
            messages = await self.store.read(each.session_id)
            answers = [one for one in messages if one["role"] == "assistant" and not one.get("tool_calls")]
            assert final_answer(messages) == f"done {each.event.data['n']}", messages
            assert len(answers) == 1, "committed once"
        events = []
        while page := await self.store.events(since=events[-1].sequence if events else 0):
            events += page
        assert [one.sequence for one in events] == sorted({one.sequence for one in events})
        told = [one.source_session_id for one in events if one.name == "farm:done" and one.data.get("name") != "clock"]
        ours = {each.session_id for each in found}
        assert sorted(one for one in told if one in ours) == sorted(ours), "told once"
        ticks = await self.store.deliveries(queue="farm/clock", limit=1_000_000)
        assert len({each.event.dedupe_key for each in ticks}) == len(ticks), "fired once"
        again = sum(each.epoch - 1 for each in found)
        return {"done": len(found), "ticks": len(ticks), "taken_over": again, "overlap": self._overlap()}

    def _overlap(self) -> float:
        """Return the longest time in seconds that a session went on with what a later one had begun.

        A frozen process does nothing: its time counts from its first step after the other has begun.
        """
        runs: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for line in (self.project / "marks").read_text().splitlines():
            number, host, pid, call, at = line.split()
            runs[number][f"{host} {pid} {call}"].append(float(at))
        longest = 0.0
        for calls in runs.values():
            for earlier, later in itertools.pairwise(sorted(calls.values())):
                late = [at for at in earlier if at > later[0]]
                longest = max(longest, late[-1] - late[0] + STEP if late else 0.0)
        return longest


def allows_namespaces() -> bool:
    """Return whether this machine lets a test make network namespaces."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"amp{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode == 0
    if made:
        pair = ["type", "veth", "peer", "name", f"{name}w"]
        made = (
            subprocess.run(["ip", "link", "add", f"{name}v", *pair], capture_output=True, check=False).returncode == 0
        )
        subprocess.run(["ip", "link", "del", f"{name}v"], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return made


def _add_namespace(name: str, number: int) -> str:
    """Make a namespace with a line of its own to this one; return the address of this end."""
    net = f"10.{128 + os.getpid() % 127}.{os.getpid() // 127 % 63 * 4 + number}"
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    _ip("netns", "add", name)
    _ip("link", "add", f"{name}-0", "type", "veth", "peer", "name", f"{name}-1", "netns", name)
    _ip("addr", "add", f"{net}.1/24", "dev", f"{name}-0")
    _ip("link", "set", f"{name}-0", "up")
    _ip("-n", name, "addr", "add", f"{net}.2/24", "dev", f"{name}-1")
    _ip("-n", name, "link", "set", f"{name}-1", "up")
    _ip("-n", name, "link", "set", "lo", "up")
    return f"{net}.1"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
