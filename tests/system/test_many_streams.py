"""Many sessions of one process that stream at the same time: each answer is whole, and its session's own."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import load_plugins
from amplifier_core.plugins import Plugins
from amplifier_core.storage import SessionStore
from amplifier_foundation import Bundle, open_inbox
from amplifier_foundation.sessions.history import text_of
from amplifier_foundation.spawning.conversation import open_conversation
from tests.wire.server import Answer, Request, WireServer
from tests.wire.services import SERVICES, Model, Service

pytestmark = pytest.mark.slow

STREAMS = int(os.environ.get("STREAMS", "40"))
WORDS = 30
PLAYBOOK = {
    "rules": [{"when": {"user": r"^count (?P<n>\d+)$"}, "say": " ".join(f"{{n}}.{word}" for word in range(WORDS))}]
}


class Streams:
    """Sessions that ask one service; its answers stop in the middle until all of them have begun."""

    def __init__(self, service: Service, store: SessionStore, plugins: Plugins, folder: Path, count: int) -> None:
        self.model = Model(service, PLAYBOOK)
        self.server = WireServer(self._answer)
        self._count, self._all_here = count, asyncio.Event()
        self._service, self._store, self._plugins, self._folder = service, store, plugins, folder

    def _answer(self, request: Request) -> Answer:
        if len(self.server.requests) == self._count:
            self._all_here.set()
        answer = self.model.answer(request)
        return answer.hold(len(answer.pieces) // 2, self._all_here)

    async def run(self) -> None:
        """Run the sessions, and check each of them."""
        async with self.server, asyncio.TaskGroup() as tasks:
            for number in range(self._count):
                tasks.create_task(self._converse(number))

    async def _converse(self, number: int) -> None:
        config = self._service.configure(self.server.url)
        data = {
            "bundle": {"name": "many"},
            "providers": [{"module": f"provider-{self._service.provider}", "config": config}],
        }
        heard: list[str] = []

        async def hear(event: str, piece: dict[str, Any]) -> None:
            heard.append(piece["text"])

        bundle = Bundle.from_dict(data, self._folder)
        async with open_conversation(bundle, self._store, self._plugins, working_dir=self._folder) as conversation:
            session = conversation.session
            session.coordinator.hooks.register("llm:stream_block_delta", hear, name="hear")
            turn = await conversation.say(f"count {number}")
        said = " ".join(f"{number}.{word}" for word in range(WORDS))
        assert (turn.status, turn.output, "".join(heard)) == ("completed", said, said)
        stored = await self._store.read(session.session_id)
        assert [text_of(message) for message in stored] == [f"count {number}", said]


@pytest.mark.usefixtures("one_certificate")
@pytest.mark.skipif(sys.platform != "linux", reason="it counts descriptors as Linux shows them")
@pytest.mark.parametrize("name", SERVICES)
async def test_streams_side_by_side_are_whole_unmixed_and_leave_no_descriptor(
    name: str, home: Path, tmp_path: Path
) -> None:
    plugins = load_plugins(environ={})
    store = open_inbox(plugins, path=home / "amplifier.db")
    await store.find("none")  # a busy store opens this connection later
    counts = []
    for count in (1, STREAMS):
        streams = Streams(SERVICES[name], store, plugins, tmp_path, count)
        await streams.run()
        assert (len(streams.server.whole), streams.model.refused) == (count, [])
        await asyncio.sleep(0)  # transports close at the next turn of the loop
        gc.collect()
        counts.append(len(list(Path("/proc/self/fd").iterdir())))
    assert counts[1] == counts[0]
    await store.close()
