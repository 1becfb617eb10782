"""The program is killed within the stream of an answer, after any of its events: its session goes on.

`PLACES` is after how many events of each service; `make streams` has it done after all of them. `SEED` chooses others.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from amplifier_foundation.cli import exits, invoke
from amplifier_foundation.sessions.history import text_of
from tests import forks
from tests.wire.server import Answer, Request, WireServer
from tests.wire.services import KEY, SERVICES, Model, Service

from .streaming import find_fault, read

pytestmark = pytest.mark.slow

PLACES = int(os.environ.get("PLACES", "1"))
SEED = os.environ.get("SEED", "20261122")
PAUSE = 0.005
"""Seconds between the events of an answer, so that the program takes in one after the other."""
PLAYBOOK: dict[str, Any] = {
    "rules": [
        {
            "when": {"user": "^look"},
            "say": "I look at the notes.",
            "call": [
                {"tool": "read_file", "input": {"file_path": "notes.md"}},
                {"tool": "glob", "input": {"pattern": "*.md"}},
            ],
        },
        {"when": {"tool": "glob"}, "say": "It is about milk."},
    ],
    "otherwise": {"say": "You said: {prompt}"},
}


class Killing:
    """A conversation with a service: one turn is acknowledged, the next one is killed, and then it goes on."""

    def __init__(self, service: Service, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.model = Model(service, PLAYBOOK)
        self.server = WireServer(self._answer)
        self.sizes: list[int] = []
        """The pieces of the answers of a whole turn."""
        self._service, self._folder, self._capsys = service, folder, capsys
        self._place: tuple[int, int] | None = None
        self._answered = 0

    def _answer(self, request: Request) -> Answer:
        answer = self.model.answer(request)
        number, self._answered = self._answered, self._answered + 1
        self.sizes.append(len(answer.pieces))
        if self._place is None or self._place[0] != number:
            return answer
        return answer.steadily(PAUSE).stall(self._place[1])

    def write_bundle(self) -> None:
        """Write the bundle into the folder."""
        provider = {"module": f"provider-{self._service.provider}", "config": self._service.configure(self.server.url)}
        bundle = {"bundle": {"name": "killed"}, "providers": [provider], "tools": [{"module": "tool-filesystem"}]}
        (self._folder / "bundle.md").write_text(f"---\n{yaml.safe_dump(bundle)}---\n")

    async def give(self, *arguments: str) -> Any:
        """Give a command; return the data that it prints."""
        self._capsys.readouterr()
        code = await asyncio.to_thread(invoke, [*arguments, "--json"])
        out, err = self._capsys.readouterr()
        assert code == exits.OK, err
        return json.loads(out)["data"]

    async def measure(self) -> list[tuple[int, int]]:
        """Return all places: the number of an answer, and how many of its pieces come."""
        assert (await self.give("run", "look"))["output"] == "It is about milk."
        sizes, self.sizes = self.sizes, []
        return [(number, pieces) for number, size in enumerate(sizes) for pieces in range(size + 1)]

    async def kill_at(self, place: tuple[int, int]) -> None:
        """Kill the program at a place of its second turn; check what is stored, and that the session goes on."""
        first = (await self.give("run", "good day"))["session_id"]
        self._answered, self._place = 0, place
        self.server.stalled.clear()
        command = ("run", "--resume", first, "look")
        null = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        process = await asyncio.to_thread(forks.Popen, command, imports=forks.SDKS, **null)
        await self.server.stalled.wait()
        process.kill()
        # an answer may be whole before the end of its connection
        is_killed = await asyncio.to_thread(process.wait) == -signal.SIGKILL
        self._place = None
        stored = await self.read(first)
        self._check(stored)
        assert len(stored) == (2 + 1 + 3 * place[0] if is_killed else 7)
        more = await self.give("session", "resume", first, *([] if is_killed else ["look"]))
        assert (more["output"], more["status"]) == ("It is about milk.", "completed")
        whole = await self.read(first)
        assert whole[: len(stored)] == stored
        self._check(whole)

    async def read(self, session_id: str) -> list[dict[str, Any]]:
        """Return the stored messages."""
        return list((await self.give("session", "show", session_id))["messages"])

    def _check(self, messages: list[dict[str, Any]]) -> None:
        texts = [text_of(message) for message in messages[:2]]
        assert texts == ["good day", "You said: good day"], "the acknowledged turn is there"
        calls = [("read_file", {"file_path": "notes.md"}), ("glob", {"pattern": "*.md"})]
        sound = [("You said: good day", []), ("I look at the notes.", calls), ("It is about milk.", [])]
        assert [each for each in messages if each["role"] == "assistant" and read(each) not in sound] == []
        assert (find_fault(messages), self.model.refused) == (None, [])
        assert KEY not in json.dumps(messages)


@pytest.mark.parametrize("name", SERVICES)
async def test_a_session_killed_after_any_event_of_a_stream_goes_on(
    name: str, home: Path, project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    (project / "notes.md").write_text("Buy milk.\n")
    killing = Killing(SERVICES[name], project, capsys)
    async with killing.server:
        killing.write_bundle()
        places = await killing.measure()
        chosen = random.Random(f"{SEED}-{name}").sample(places, min(PLACES, len(places)))
        for place in chosen:
            try:
                await killing.kill_at(place)
            except AssertionError as error:
                error.add_note(f"killed at {place}")
                raise
    sys.stdout.write(f"{name}: {len(chosen)} of {len(places)} places\n")
