"""Run `amplifier up` for a long time, break its surroundings again and again, and compare its work with its input."""

from __future__ import annotations

import asyncio
import http.client
import os
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from amplifier_core import SessionEvent, load_plugins
from amplifier_core.storage import Delivery, DurableStore
from amplifier_foundation import open_inbox

from .killing import PROGRAM, _free_port

PATIENCE = 300.0
"""Seconds that the end of the work may take on a loaded machine."""
BYTES_PER_DELIVERY = 8_000
"""The most that one delivery may add to the store: its event, its session with four messages, and two log events."""

FULL_DISK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* While the file $DISK_FULL exists, no write below $DISK succeeds. */
static int is_full(int fd) {
    const char *flag = getenv("DISK_FULL"), *disk = getenv("DISK");
    if (!flag || !disk || access(flag, F_OK)) return 0;
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    return size > 0 && !strncmp(path, disk, strlen(disk));
}

#define FAILS(name, parameters, arguments)                        \
    ssize_t name parameters {                                     \
        static ssize_t (*real) parameters;                        \
        if (!real) real = dlsym(RTLD_NEXT, #name);                \
        if (is_full(fd)) { errno = ENOSPC; return -1; }           \
        return real arguments;                                    \
    }
FAILS(write, (int fd, const void *data, size_t size), (fd, data, size))
FAILS(pwrite64, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { return pwrite64(fd, data, size, at); }
"""

BUNDLE = """---
bundle: {{name: soak, description: "edit {edit}"}}
session: {{orchestrator: loop-basic, context: context-simple}}
providers:
  - module: provider-playbook
    config:
      rules:
        - when: {{user: 'read (?P<path>\\S+)'}}
          call: {{tool: read_file, input: {{file_path: "{{path}}"}}}}
      otherwise: {{say: "Done."}}
tools: [{{module: tool-filesystem}}]
background_sessions:
  - name: files
    instruction_template: "read {{file_path}}"
    triggers: [{{type: file_change, config: {{path: in, patterns: ["**/*.txt"], debounce_ms: 50}}}}]
    pool_size: 4
    on_complete_emit: work:done
  - name: spool
    instruction_template: "read {{file_path}}"
    triggers: [{{type: file_change, config: {{path: spool, patterns: ["*.txt"], debounce_ms: 50}}}}]
    pool_size: {pool_size}
  - name: echo
    triggers: [{{type: session_event, config: {{event_names: ["work:done", "news:*"]}}}}]
    pool_size: 4
  - name: hook
    triggers: [{{type: webhook, config: {{port: {port}, rate: null}}}}]
    pool_size: 2
  - name: ticks
    triggers: [{{type: timer, config: {{interval: 5s}}}}]
---
"""


@dataclass(frozen=True, slots=True)
class Sample:
    """The size of the process at one time: kilobytes of memory, open descriptors, threads."""

    memory: int
    descriptors: int
    threads: int


@dataclass(slots=True)
class Soak:
    """One folder in which `up` runs, its input, and the interruptions it went through."""

    folder: Path
    shim: Path
    seed: str
    files: int
    rate: float
    """Events a second, beside those that they cause."""
    pace: float = 1.0
    """A factor of all pauses."""
    written: dict[str, int] = field(default_factory=dict)
    """The last number in each file."""
    posted: set[int] = field(default_factory=set)
    emitted: set[str] = field(default_factory=set)
    feeds: bool = True
    samples: list[list[Sample]] = field(default_factory=list)
    """A list for each process."""
    interruptions: list[str] = field(default_factory=list)
    number: int = 0
    edit: int = 0
    spool_is_there: bool = True
    process: subprocess.Popen[bytes] | None = None
    port: int = field(default_factory=_free_port)
    chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        for number in range(self.files):
            (self.folder / f"in/{number // 100}").mkdir(parents=True, exist_ok=True)
            (self.folder / f"in/{number // 100}/{number}.txt").write_text("before")
        (self.folder / "spool").mkdir()
        self._write_bundle()

    def _write_bundle(self) -> None:
        text = BUNDLE.format(port=self.port, edit=self.edit, pool_size=1 + self.edit % 2)
        (self.folder / "bundle.new").write_text(text)
        (self.folder / "bundle.new").rename(self.folder / "bundle.md")

    @property
    def home(self) -> Path:
        """The data folder."""
        return self.folder / "home"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of `up`."""
        disk = {
            "AMPLIFIER_TRUST": "1",
            "DISK": str(self.home.resolve()),
            "DISK_FULL": str(self.folder / "disk-is-full"),
        }
        return {**os.environ, "AMPLIFIER_HOME": str(self.home), "LD_PRELOAD": str(self.shim), **disk}

    def start(self) -> None:
        """Start `up`; its output goes to the file `output`."""
        with (self.folder / "output").open("ab") as output:
            self.process = subprocess.Popen(
                [*PROGRAM, "up", "bundle.md"],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.samples.append([])

    async def run(self, seconds: float) -> None:
        """Feed and interrupt it for so many seconds, each interruption as often as the others."""
        self.start()
        await self._until(lambda: self._post(self._count()))
        end = asyncio.get_running_loop().time() + seconds
        kinds = [self.fill_disk, self.remove_folder, self.edit_bundle, self.hang_up, self.steal_port]
        async with asyncio.TaskGroup() as group:
            feeding = group.create_task(self._feed())
            measuring = group.create_task(self._measure())
            step = 0
            while asyncio.get_running_loop().time() < end or step < len(kinds):
                await kinds[step % len(kinds)]()
                step += 1
                await asyncio.sleep(12.0 * self.pace)
            self.feeds = False  # to cancel it could hide an event that it has just stored
            await feeding
            measuring.cancel()

    async def _feed(self) -> None:
        store = self.open_store()
        try:
            while self.feeds:
                kind = self.chance.choices(["file", "spool", "post", "emit"], [12, 2, 4, 2])[0]
                if kind == "post":
                    await asyncio.to_thread(self._post, self._count())
                elif kind == "emit":
                    event = SessionEvent("news:told", {"n": self._count()}, None)
                    await store.emit(event)
                    self.emitted.add(event.event_id)
                else:
                    self._write(spool=kind == "spool" and self.spool_is_there)
                await asyncio.sleep(1 / self.rate)
        finally:
            await store.close()

    async def _measure(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            assert self.process is not None
            folder = Path(f"/proc/{self.process.pid}")
            try:
                status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
                descriptors = len(list((folder / "fd").iterdir()))
            except (OSError, ValueError):
                continue
            if "VmRSS" in status:
                self.samples[-1].append(Sample(int(status["VmRSS"].split()[0]), descriptors, int(status["Threads"])))

    def _count(self) -> int:
        self.number += 1
        return self.number

    def _write(self, *, spool: bool) -> None:
        number, chosen = self._count(), self.chance.randrange(50 if spool else self.files)
        name = f"spool/{chosen}.txt" if spool else f"in/{chosen // 100}/{chosen}.txt"
        (self.folder / name).write_text(f"number {number};")
        self.written[name] = number

    def _post(self, number: int) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request("POST", "/hook", f'{{"n": {number}}}', {"Content-Type": "application/json"})
            if connection.getresponse().status != http.HTTPStatus.ACCEPTED:
                return False
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
        self.posted.add(number)
        return True

    async def _until(self, holds: Any) -> None:
        async with asyncio.timeout(PATIENCE):
            while not await asyncio.to_thread(holds):
                assert self.process is not None
                assert self.process.poll() is None, f"up ended: {(self.folder / 'output').read_text()[-2000:]}"
                await asyncio.sleep(0.2)

    def _told(self, words: str) -> int:
        """Return how often its output has these words."""
        return (self.folder / "output").read_text(errors="replace").count(words)

    # interruptions

    async def fill_disk(self) -> None:
        """Let no write to the data folder succeed for four seconds, at least until the program tells so."""
        self.interruptions.append("disk full")
        told = self._told("the disk is full")
        (self.folder / "disk-is-full").touch()
        await asyncio.sleep(4.0 * self.pace)
        await self._until(lambda: self._told("the disk is full") > told)
        (self.folder / "disk-is-full").unlink()
        await self._until(lambda: self._post(self._count()))

    async def remove_folder(self) -> None:
        """Remove a watched folder, and make it again three seconds later."""
        self.interruptions.append("folder removed")
        self.spool_is_there = False
        self.written = {name: number for name, number in self.written.items() if not name.startswith("spool/")}
        shutil.rmtree(self.folder / "spool")
        await asyncio.sleep(3.0 * self.pace)
        (self.folder / "spool").mkdir()
        self.spool_is_there = True
        self._write(spool=True)

    async def edit_bundle(self) -> None:
        """Change the bundle."""
        self.interruptions.append("bundle edited")
        self.edit += 1
        self._write_bundle()

    async def hang_up(self) -> None:
        """Send SIGHUP."""
        self.interruptions.append("SIGHUP")
        assert self.process is not None
        self.process.send_signal(signal.SIGHUP)

    async def steal_port(self) -> None:
        """Kill it; have another program hold the port of its webhook for eight seconds while it starts anew.

        It is held at least until the program tells so.
        """
        self.interruptions.append("port taken")
        told = self._told("cannot listen")
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        with socket.socket() as thief:
            thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            thief.bind(("127.0.0.1", self.port))
            thief.listen()
            self.start()
            await asyncio.sleep(8.0 * self.pace)
            await self._until(lambda: self._told("cannot listen") > told)
        await self._until(lambda: self._post(self._count()))

    # what came of it

    def open_store(self) -> DurableStore:
        """Open the store from this process."""
        return open_inbox(load_plugins(environ={}), path=self.home / "amplifier.db")

    async def finish(self) -> None:
        """Wait until everything is handled, and end `up`."""
        assert self.process is not None
        await asyncio.sleep(2.0 * self.pace)
        await self._until(self._is_idle)
        self.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(self.process.wait, 60) == 128 + signal.SIGTERM

    def _is_idle(self) -> bool:
        with closing(sqlite3.connect(self.home / "amplifier.db")) as db:
            query = "SELECT count(*) FROM deliveries WHERE state IN ('pending', 'claimed')"
            before = db.execute(query).fetchone()[0]
            time.sleep(1.5)
            told = {cause for (cause,) in db.execute("SELECT DISTINCT cause FROM deliveries WHERE cause IS NOT NULL")}
            return bool(before == 0 and db.execute(query).fetchone()[0] == 0 and self.emitted <= told)

    def end(self) -> None:
        """End whatever still runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    async def check(self) -> int:
        """Assert that everything accepted was handled, once; return the number of deliveries."""
        store = self.open_store()
        try:
            deliveries = await store.deliveries(limit=10_000_000)
            assert Counter(each.state for each in deliveries) == {"done": len(deliveries)}, [
                (each.queue, each.state, each.reason) for each in deliveries if each.state != "done"
            ][:5]
            await self._check_files(store, deliveries)
        finally:
            await store.close()
        self._check_events(deliveries)
        self._check_size(len(deliveries))
        return len(deliveries)

    async def _check_files(self, store: DurableStore, deliveries: list[Delivery]) -> None:
        """Assert that a session read the last content of each file."""
        by_file: dict[str, list[Delivery]] = {}
        for each in deliveries:
            if each.event.file_path:
                path = each.event.file_path
                root = "spool" if each.queue.endswith("/spool") else "in"
                by_file.setdefault(path if path.startswith(f"{root}/") else f"{root}/{path}", []).append(each)
        unseen = []
        for name, number in self.written.items():
            for each in by_file.get(name, ()):
                messages = await store.read(each.session_id or "")
                if any(f"number {number};" in str(message) for message in messages):
                    break
            else:
                unseen.append((name, number, len(by_file.get(name, ()))))
        assert unseen == []

    def _check_events(self, deliveries: list[Delivery]) -> None:
        hooked = Counter(each.event.data["body"]["n"] for each in deliveries if each.queue == "soak/hook")
        assert set(hooked.values()) <= {1}
        assert self.posted <= set(hooked)
        told = Counter(each.event.cause for each in deliveries if each.event.event_name == "news:told")
        assert told == Counter(self.emitted), (told - Counter(self.emitted), Counter(self.emitted) - told)
        files = sum(each.queue == "soak/files" for each in deliveries)
        assert sum(each.event.event_name == "work:done" for each in deliveries) == files

    def _check_size(self, deliveries: int) -> None:
        with closing(sqlite3.connect(self.home / "amplifier.db")) as db:
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            pages, free, size = (
                db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
            )
        used = (pages - free) * size
        sys.stderr.write(f"{deliveries} deliveries, {used} bytes used, {used // max(1, deliveries)} a delivery\n")
        assert used <= 2_000_000 + self.files * 400 + BYTES_PER_DELIVERY * deliveries


def check_level(samples: list[Sample]) -> None:
    """Assert that the process did not grow from the second third of its samples to the last."""
    third = len(samples) // 3
    if third < 20:
        return
    middle, last = samples[third : 2 * third], samples[2 * third :]
    assert median(each.memory for each in last) <= 1.15 * median(each.memory for each in middle) + 8_192
    assert max(each.descriptors for each in last) <= max(each.descriptors for each in middle) + 16
    assert max(each.threads for each in last) <= max(each.threads for each in middle) + 4
