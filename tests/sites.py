"""A site: a data folder and a project of its own, and a real `amplifier up` that is started, killed and asked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

from amplifier_core.events import SessionEvent
from amplifier_storage_sqlite import open_sqlite
from tests import forks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

PATIENCE = 60.0
"""Seconds to wait for anything."""

BUNDLE = """---
bundle: {name: site}
session: {orchestrator: loop-basic, context: context-simple}
providers: [{module: provider-playbook, config: {otherwise: {say: "Done."}}}]
background_sessions:
  - name: listener
    triggers: [{type: session_event, config: {event_names: ["work:*"], from: any}}]
    on_complete_emit: heard:done
    instruction_template: "{event_name} with {event_data}"
    max_depth: 4
---
"""


class Site:
    """One site with a store of its own; its transport is in its own settings."""

    def __init__(
        self,
        folder: Path,
        name: str,
        config: Mapping[str, Any],
        publish: Sequence[str] = ("work:*",),
        subscribe: Sequence[str] = ("work:*",),
        bundle: str = BUNDLE,
    ) -> None:
        self.home, self.project = folder / name / "home", folder / name / "project"
        self.project.mkdir(parents=True)
        self.home.mkdir(mode=0o700)
        (self.project / "bundle.md").write_text(bundle)
        lists = {"publish": list(publish), "subscribe": list(subscribe)}
        route = {"name": "transport-nats", "site": name, **lists, "config": dict(config)}
        (self.home / "settings.yaml").write_text(json.dumps({"transports": [route]}))
        self.environment = {**os.environ, "AMPLIFIER_HOME": str(self.home)}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start `amplifier up`, and return when its background sessions run."""
        with (self.home / "said").open("ab") as said:
            self._process = forks.Popen(
                ["up"], cwd=self.project, env=self.environment, stdin=subprocess.DEVNULL,
                stdout=said, stderr=said,
            )  # fmt: skip
        begin = len(self.said)
        wait_until(lambda: "Watching" in self.said[begin:], lambda: self.said)

    def stop(self, how: int = signal.SIGTERM) -> None:
        """End it, and wait for its end."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(PATIENCE)
            self._process = None

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run another command of this site."""
        return forks.run(
            arguments,
            cwd=self.project,
            env=self.environment,
            timeout=PATIENCE,
        )

    @property
    def said(self) -> str:
        """What the process has printed."""
        path = self.home / "said"
        return path.read_text() if path.exists() else ""

    @property
    def state(self) -> dict[str, Any]:
        """The row of the listener, as `amplifier ps` has it."""
        [row] = json.loads(self.run("ps", "--json").stdout)["data"]["background_sessions"]
        return dict(row)

    async def emit(self, *events: SessionEvent) -> None:
        """Append events to the log, as another process of this site."""
        store = open_sqlite({"folder": self.home})
        for event in events:
            await store.emit(event)
        await store.close()

    async def events(self, prefix: str = "work:") -> list[SessionEvent]:
        """Return the events of the log whose names begin so."""
        store = open_sqlite({"folder": self.home})
        found = [event for event in await store.events(limit=1_000_000) if event.name.startswith(prefix)]
        await store.close()
        return found


def wait_until(holds: Callable[[], bool], tell: Callable[[], object] = lambda: "") -> None:
    """Return as soon as a condition holds; what `tell` returns is in the error."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, tell()
        time.sleep(0.05)
