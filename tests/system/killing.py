"""`amplifier up` with every trigger, killed at named steps; what was accepted, and what the store says was done.

A folder on the program's path holds a plugin that kills the process at the n-th call of a step, such as
`KILL_AT=commit:3:after`.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from amplifier_core import Delivery, TriggerEvent, TriggerType, load_plugins
from amplifier_core.storage import DurableStore
from amplifier_foundation import open_inbox
from amplifier_foundation.isolation.process_table import find_below, parents_of_all
from amplifier_foundation.sessions.history import final_answer, open_calls, turn_starts
from tests import forks

PROGRAM = [sys.executable, "-m", "amplifier_foundation"]
AT_MOST = 1.2
"""Seconds that one is left to work once it has answered, when it does not come to the step before."""
PATIENCE = 60.0

STEPS = ("enqueue", "claim", "create", "append", "commit", "emit", "save_trigger_state", "drain", "moment")

KILLER = """
import os, signal
from functools import wraps
from amplifier_core.hookspecs import hookimpl
from amplifier_foundation.background.manager import BackgroundSessionManager
from amplifier_storage_sqlite.store import SqliteStore

step, left, when = os.environ.get("KILL_AT", "none:0:before").split(":")
left = int(left)


def kills(owner, name):
    method = getattr(owner, name)

    @wraps(method)
    async def killing(*arguments, **given):
        global left
        left -= 1
        if left == 0 and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        last = left == 0
        result = await method(*arguments, **given)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, killing)


if step == "drain":
    kills(BackgroundSessionManager, "stop_all")
elif hasattr(SqliteStore, step):
    kills(SqliteStore, step)


@hookimpl
def amplifier_register_runner(register):
    pass
"""

BUNDLE = """---
bundle: {{name: all}}
session: {{orchestrator: loop-basic, context: context-simple}}
providers:
  - module: provider-playbook
    config:
      rules:
        - when: {{user: 'Event received'}}
          call: {{tool: emit, input: {{name: "echo:said"}}}}
        - when: {{user: '.'}}
          call: {{tool: read_file, input: {{file_path: bundle.md}}}}
      otherwise: {{say: "Done."}}
tools: [{{module: tool-filesystem}}, {{module: tool-emit}}]
background_sessions:
  - name: files
    runner: {runner}
    triggers: [{{type: file_change, config: {{patterns: ["in/*.txt"], debounce_ms: 20}}}}]
    on_complete_emit: work:done
    max_attempts: 100
    pool_size: 2
  - name: echo
    triggers: [{{type: session_event, config: {{event_names: ["work:done"]}}}}]
    max_attempts: 100
  - name: ticks
    runner: {runner}
    triggers: [{{type: timer, config: {{interval: 1500ms, catch_up: all}}}}]
    max_attempts: 100
  - name: hook
    runner: {runner}
    triggers: [{{type: webhook, config: {{port: {port}, rate: null}}}}]
    max_attempts: 100
  - name: notes
    triggers: [{{type: manual}}]
    max_attempts: 100
---
"""


class Chaos:
    """One folder that `up` runs in again and again, and the ledger of what was accepted there."""

    def __init__(self, folder: Path, seed: str, runner: str = "inprocess") -> None:
        self.folder, self.chance = folder, random.Random(seed)
        self._isolates = runner == "subprocess"
        self.files: set[str] = set()
        self.watched: set[str] = set()
        """Those of the files that were written when the watcher knew already what was there before."""
        self.posted: set[int] = set()
        self.offered: set[int] = set()
        self.ends: Counter[str] = Counter()
        self._seen: set[int] = set()
        """Processes of sessions."""
        self._number = 0
        self._port = _free_port()
        (folder / "in").mkdir(parents=True)
        (folder / "bundle.md").write_text(BUNDLE.format(port=self._port, runner=runner))
        killer = folder / "killer"
        (killer / "chaos_killer-1.dist-info").mkdir(parents=True)
        (killer / "chaos_killer.py").write_text(KILLER)
        (killer / "chaos_killer-1.dist-info" / "METADATA").write_text("Name: chaos-killer\nVersion: 1\n")
        (killer / "chaos_killer-1.dist-info" / "entry_points.txt").write_text("[amplifier]\nkiller = chaos_killer\n")

    @property
    def store(self) -> DurableStore:
        """Open the store."""
        return open_inbox(load_plugins(environ={}), path=self.folder / "home" / "amplifier.db")

    def environment(self, kill_at: str = "none:0:before") -> dict[str, str]:
        """Return what `up` finds in its environment."""
        path = os.pathsep.join(filter(None, [str(self.folder / "killer"), os.environ.get("PYTHONPATH")]))
        return {
            **os.environ,
            "AMPLIFIER_HOME": str(self.folder / "home"),
            "PYTHONPATH": path,
            "KILL_AT": kill_at,
            "AMPLIFIER_TRUST": "1",
        }

    async def kill(self, step: str) -> None:
        """Bring it up, give it work, and have it killed at the step; a moment is one that nobody has chosen."""
        when = self.chance.choice(["before", "after"])
        kill_at = f"{step}:{self.chance.randint(1, 2 if step == 'drain' else 6)}:{when}"
        with forks.Popen(
            ["-q", "up", "bundle.md"],
            cwd=self.folder,
            env=self.environment(kill_at),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            await self._work(process, self.chance.uniform(0.0, AT_MOST) if step == "moment" else AT_MOST)
            if step == "drain":
                process.send_signal(signal.SIGTERM)
                await self._ended(process, PATIENCE)
            at_the_step = process.poll() == -signal.SIGKILL
            self.ends[f"{step}: {'there' if at_the_step else 'elsewhere'}"] += 1
            below = set(find_below([process.pid]))
            _end_all(process)
        await self._all_ended({*below, *self._seen})
        self.examine()

    async def _work(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        """Hand it files, posts and events while it lives, at most so long after it has first answered."""
        until = time.monotonic() + PATIENCE
        answered = False
        while process.poll() is None and time.monotonic() < until:
            self._number += 1
            self._write(f"in/{self._number}.txt", watched=await self._offer(self._number))
            if await asyncio.to_thread(self._post, self._number) and not answered:
                answered, until = True, time.monotonic() + seconds
            if self._isolates:
                self._kill_below(process)
            await self._ended(process, 0.1)

    def _kill_below(self, process: subprocess.Popen[bytes]) -> None:
        """Kill, now and then, a session's process, what it started, or the process that forks them."""
        below = find_below([process.pid])
        self._seen.update(below)
        if below and self.chance.random() < 0.2:
            with suppress(ProcessLookupError):
                os.kill(self.chance.choice(below), signal.SIGKILL)
            self.ends["below"] += 1

    async def _all_ended(self, below: set[int]) -> None:
        """Assert that processes of sessions end with the program, however it ends."""
        until = time.monotonic() + PATIENCE
        while left := below & set(parents_of_all()):
            assert time.monotonic() < until, f"it left processes behind: {left}"
            await asyncio.sleep(0.005)
        self._seen.clear()

    async def _ended(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        until = time.monotonic() + seconds
        while process.poll() is None and time.monotonic() < until:
            await asyncio.sleep(0.005)

    def _write(self, name: str, *, watched: bool) -> None:
        """Write a file in one step, as editors do."""
        (self.folder / "written").write_text(name)
        (self.folder / "written").rename(self.folder / name)
        self.files.add(name)
        if watched:
            self.watched.add(name)

    async def _offer(self, number: int) -> bool:
        """Fire by hand, as the command line does; return whether the watcher has been armed once."""
        project, store = str(self.folder.resolve()), self.store
        try:
            event = TriggerEvent(TriggerType.MANUAL, "trigger-manual", data={"n": number})
            assert await store.enqueue(project, "all/notes", "all/notes/trigger-manual#1", event)
            self.offered.add(number)
            return bool(await store.trigger_state(project, "all/files/trigger-file-watcher#1"))
        finally:
            await store.close()

    def _post(self, number: int) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
        try:
            connection.request("POST", "/hook", f'{{"n": {number}}}', {"Content-Type": "application/json"})
            accepted = connection.getresponse().status == http.HTTPStatus.ACCEPTED
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
        if accepted:
            self.posted.add(number)
        return accepted

    def examine(self) -> None:
        """Assert that the file of the store is whole."""
        connection = sqlite3.connect(self.folder / "home" / "amplifier.db")
        try:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        finally:
            connection.close()

    def finish(self) -> None:
        """Bring it up until nothing is left to do."""
        done = forks.run(
            ["-q", "up", "--once", "bundle.md"],
            cwd=self.folder,
            env=self.environment(),
            timeout=120,
        )
        assert (done.returncode, done.stderr) == (0, "")

    async def check(self) -> int:
        """Assert that what was accepted was done, each once; return how many deliveries that were."""
        self.examine()
        store = self.store
        try:
            deliveries = list(reversed(await store.deliveries(limit=1_000_000)))
            events = await store.events(limit=1_000_000)
            for delivery in deliveries:
                await _check_done(store, delivery)
        finally:
            await store.close()
        queues: dict[str, list[TriggerEvent]] = {}
        for delivery in deliveries:
            queues.setdefault(delivery.queue.removeprefix("all/"), []).append(delivery.event)
        self._check_accepted(queues)
        sessions = [each.session_id for each in deliveries]
        told = [event.source_session_id for event in events if event.name == "session:completed"]
        assert len(sessions) == len(set(sessions))
        assert sorted(map(str, told)) == sorted(map(str, sessions))
        emitted = [event.event_id for event in events if event.name == "work:done"]
        assert sorted(emitted) == sorted(str(event.cause) for event in queues.get("echo", []))
        assert len(emitted) == len(queues.get("files", []))
        return len(deliveries)

    def _check_accepted(self, queues: dict[str, list[TriggerEvent]]) -> None:
        filed = Counter(str(event.file_path) for event in queues.get("files", []))
        assert set(filed.values()) <= {1}
        assert self.watched <= set(filed) <= self.files
        assert Counter(event.data["n"] for event in queues["notes"]) == Counter(self.offered)
        hooked = Counter(_posted_number(event) for event in queues.get("hook", []))
        assert set(hooked.values()) <= {1}
        assert self.posted <= set(hooked)
        ticks = [event.data["tick"] for event in queues.get("ticks", [])]
        assert ticks == list(range(1, len(ticks) + 1))


async def _check_done(store: DurableStore, delivery: Delivery) -> None:
    assert (delivery.state, delivery.reason) == ("done", None)
    session_id = delivery.session_id or ""
    messages = await store.read(session_id)
    record = await store.get(session_id)
    assert (record.status, record.event_id) == ("completed", delivery.event.event_id)
    assert len(turn_starts(messages)) == 1
    assert final_answer(messages)
    assert open_calls(messages) == []


def _posted_number(event: TriggerEvent) -> Any:
    body = event.data["body"]
    return body["n"] if isinstance(body, dict) else body


def _end_all(process: subprocess.Popen[bytes]) -> None:
    """End the process, and assert that it leaves none behind."""
    if process.poll() is None:
        process.kill()
    process.wait()
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    raise AssertionError("it left a process behind")


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port
