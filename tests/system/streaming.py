"""Hold a conversation of several turns with a service that fails by a random schedule, and check what is stored.

A schedule has a fault, or none, for each attempt of the provider. A turn is acknowledged when its answer is returned.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from amplifier_core.llm_errors import LLMError
from amplifier_core.plugins import Plugins
from amplifier_core.storage import SessionRecord, SessionStore
from amplifier_foundation import Bundle
from amplifier_foundation.sessions.history import open_calls, text_of
from amplifier_foundation.spawning.conversation import Conversation, Turn, open_conversation
from tests.wire.server import BEFORE_HEAD, NEVER, Answer, Request, WireServer
from tests.wire.services import Model, Reading, Said, Service

NOTE = """
class Note:
    name, description = "note", "Notes."
    input_schema = {"type": "object", "properties": {"what": {"type": "string"}}}

    async def execute(self, input):
        return {"noted": input["what"]}

async def mount(coordinator, config):
    await coordinator.mount("tools", Note())
"""
PLAYBOOK: dict[str, Any] = {
    "rules": [
        {"when": {"user": r"^say (?P<n>\S+)$"}, "say": "Answer {n}: Grüße, 世界! The words come one by one."},
        {
            "when": {"user": r"^note (?P<n>\S+)$"},
            "say": "I note {n}.",
            "call": {"tool": "note", "input": {"what": "{n}"}},
        },
        {
            "when": {"user": r"^both (?P<n>\S+)$"},
            "call": [{"tool": "note", "input": {"what": "{n}-a"}}, {"tool": "note", "input": {"what": "{n}-b"}}],
        },
        {"when": {"user": r"^deep (?P<n>\S+)$"}, "call": {"tool": "note", "input": {"what": "{n}-deep"}}},
        {
            "when": {"tool": "note", "output": "-deep"},
            "say": "Deeper.",
            "call": {"tool": "note", "input": {"what": "{n}-end"}},
        },
        {"when": {"tool": "note"}, "say": "It is noted: {noted}."},
    ],
    "otherwise": {"say": "I go on."},
}
KINDS = ("say", "note", "both", "deep")
LONG, SHORT = "429 with a long pause", "429 with a pause"
STATUSES = ("408", "429", SHORT, LONG, "500", "503", "529")
PAUSES = {SHORT: {"retry_after": "0.001"}, LONG: {"retry_after": "900"}}
BREAKS = ("cut", "reset", "end")
FAULTS = (*STATUSES, *BREAKS, "hang up", "reset before", "nonsense", "stall", "silence", "refused", "cancel")
HARMLESS = ("good", "slow")
TIME_LIMIT = 10.0
"""Seconds until a stalled answer is given up, by a clock that jumps."""
CHANCES = 20
"""Turns of the event loop between two jumps of the clock."""


class JumpingClock:
    """The clock of an event loop: it jumps when everything waits for a time limit, so no time limit takes time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._real = loop.time
        self._ahead = 0.0
        loop.time = self.time  # type: ignore[method-assign]

    def time(self) -> float:
        """Return the time of the loop, in seconds."""
        return self._real() + self._ahead

    async def jump(self, seconds: float) -> None:
        """Let time pass, and then what was due."""
        self._ahead += seconds
        for _ in range(CHANCES):
            await asyncio.sleep(0)


class Run:
    """One schedule: a service that fails by it, a person who goes on, and what must be stored at the end."""

    def __init__(
        self, service: Service, name: str, store: SessionStore, plugins: Plugins, folder: Path, clock: JumpingClock
    ) -> None:
        self.random = random.Random(name)
        self.faults = [self._draw() for _ in range(self.random.randint(4, 12))]
        self.ended = 0
        self.acknowledged: list[tuple[str, str]] = []
        self.failed = 0
        self.stopped: list[str] = []
        """What cancelled answers would have said."""
        self._said: dict[int, Said] = {}
        self._model = Model(service, PLAYBOOK)
        self._server = WireServer(self._answer)
        self._service = service
        self._store, self._plugins, self._folder = store, plugins, folder
        self._clock = clock

    def _draw(self) -> str:
        return self.random.choice(FAULTS if self.random.random() < 0.5 else HARMLESS)

    @property
    def fault(self) -> str:
        """The fault of the attempt that runs, or comes next."""
        return self.faults[self.ended] if self.ended < len(self.faults) else "good"

    def _answer(self, request: Request) -> Answer:
        said = self._model.choose(request)
        answer, fault = self._model.send(said), self.fault
        if said is None or fault == "good":
            self._said[id(request)] = said or Said("", [])
            return answer
        if fault == "slow":
            self._said[id(request)] = said
            return answer.slowly(self.random.randint(3, 40))
        if fault in STATUSES:
            return self._service.fail(int(fault[:3]), "It cannot now.", **PAUSES.get(fault, {}))
        if fault == "cancel":
            self.stopped.append(said.text)
        return self._break(answer, fault)

    def _break(self, answer: Answer, fault: str) -> Answer:
        # An answer of Chat Completions is whole without its last two pieces, its usage and its end.
        place = self.random.randrange(len(answer.pieces) - 2 * (self._service.name == "chat"))
        if fault == "nonsense":
            places = [number for number, piece in enumerate(answer.pieces) if b"{" in piece and b"ping" not in piece]
            place = self.random.choice(places)
            pieces = list(answer.pieces)
            pieces[place] = pieces[place].replace(b"{", b"{{", 1)
            return Answer(tuple(pieces), headers=answer.headers, is_stream=True)
        if fault == "silence":
            return NEVER
        if fault in ("stall", "cancel"):
            return answer.stall(place)
        if fault in ("hang up", "reset before"):
            return answer.cut(BEFORE_HEAD) if fault == "hang up" else answer.reset(BEFORE_HEAD)
        broken: Answer = getattr(answer, fault)(place)
        return broken

    async def take_place(self) -> None:
        """Hold the conversation, through all faults, to a good end; then check what is stored."""
        async with self._server:
            self._prepare()
            record = await self._converse()
            await self._end(record)
        await self._check(record.session_id)

    def _prepare(self) -> None:
        """Let the next attempt meet its fault."""
        if self.fault == "refused":
            self._server.refuse()

    async def _note_attempt(self, event: str, data: dict[str, Any]) -> None:
        self.ended += 1
        self._prepare()
        if self.fault != "refused":
            await self._server.accept()

    async def _open(self, stack: AsyncExitStack, record: SessionRecord | None) -> Conversation:
        limits = {"first_token_timeout": TIME_LIMIT, "idle_timeout": TIME_LIMIT, "timeout": 1_000_000}
        config = self._service.configure(self._server.url, **limits)
        data = {
            "bundle": {"name": "stream"},
            "providers": [{"module": f"provider-{self._service.provider}", "config": config}],
            "tools": [{"module": "tool-note", "source": "./note.py"}],
        }
        bundle = Bundle.from_dict(data, self._folder)
        opened = open_conversation(bundle, self._store, self._plugins, resume=record, working_dir=self._folder)
        conversation = await stack.enter_async_context(opened)
        for event in ("provider:retry", "llm:response"):
            conversation.session.coordinator.hooks.register(event, self._note_attempt, name="schedule")
        return conversation

    async def _converse(self) -> SessionRecord:
        record: SessionRecord | None = None
        asked = [f"{self.random.choice(KINDS)} {number}" for number in range(self.random.randint(2, 4))]
        while asked:
            async with AsyncExitStack() as stack:
                conversation = await self._open(stack, record)
                while asked:
                    prompt = asked.pop(0)
                    await self._ask(conversation, prompt)
                    if self.random.random() < 0.3:
                        break
            record = await self._store.get(conversation.session.session_id)
        assert record is not None
        return record

    async def _ask(self, conversation: Conversation, prompt: str) -> None:
        """Ask; after a failure, go on with the turn up to three times, or leave it."""
        said = prompt
        for _ in range(4):
            turn = await self._take_turn(conversation, said)
            if turn is not None and turn.status == "completed":
                self.acknowledged.append((prompt, turn.output))
                return
            if self.random.random() < 0.4 or not await conversation.is_cut():
                return
            said = ""

    async def _take_turn(self, conversation: Conversation, prompt: str) -> Turn | None:
        async def follow() -> None:
            while True:
                await self._server.stalled.wait()
                self._server.stalled.clear()
                attempt = self.ended
                if self.fault == "cancel":
                    self._server.left.clear()
                    await conversation.session.coordinator.request_cancel()
                while self.fault in ("stall", "silence") and self.ended == attempt:
                    await self._clock.jump(TIME_LIMIT)

        follower = asyncio.create_task(follow())
        try:
            turn = await conversation.say(prompt)
        except LLMError as error:
            assert error.retryable, error
            self.failed += 1
            return None
        finally:
            follower.cancel()
        if turn.status == "cancelled":
            await self._server.left.wait()
            await self._note_attempt("cancel", {})
        return turn

    async def _end(self, record: SessionRecord) -> None:
        del self.faults[self.ended :]
        await self._server.accept()
        async with AsyncExitStack() as stack:
            await self._ask(await self._open(stack, record), "both last")
        assert self.acknowledged[-1] == ("both last", "It is noted: last-b."), "the last request goes on"

    async def _check(self, session_id: str) -> None:
        messages = await self._store.read(session_id)
        assert (self._model.refused, open_calls(messages), find_fault(messages)) == ([], [], None)
        turns: dict[str, list[str]] = {}
        for message in messages:
            if message["role"] == "user":
                assert text_of(message) not in turns, "a prompt is stored once"
                last = turns[text_of(message)] = []
            elif message["role"] == "assistant":
                last.append(text_of(message))
        prompts = [prompt for prompt, _ in self.acknowledged]
        assert [prompt for prompt in turns if prompt in prompts] == prompts, "acknowledged turns are there, in order"
        assert [(prompt, turns[prompt][-1]) for prompt in prompts] == self.acknowledged
        whole = [self._said[id(each)] for each in self._server.whole if id(each) in self._said]
        answers = [message for message in messages if message["role"] == "assistant"]
        cut = [each for each in answers if (each.get("metadata") or {}).get("finish_reason") == "interrupted"]
        assert all(any(said.startswith(text_of(each)) for said in self.stopped) for each in cut)
        kept = [read(each) for each in answers if each not in cut]
        assert kept == [(said.text, [(tool, given) for _, tool, given in said.calls]) for said in whole]
        results = {each["tool_call_id"]: each["content"] for each in messages if each["role"] == "tool"}
        for call in [call for each in answers for call in each.get("tool_calls") or ()]:
            assert json.loads(results[call["id"]]) == {"noted": call["arguments"]["what"]}
        record = await self._store.get(session_id)
        assert (record.status, record.message_count) == ("completed", len(messages))

    def count(self) -> Counter[str]:
        """Return how often each fault came, and how the turns ended."""
        ends = {"(acknowledged)": len(self.acknowledged), "(failed)": self.failed, "(stopped)": len(self.stopped)}
        return Counter(self.faults) + Counter(ends)


def read(message: dict[str, Any]) -> tuple[str, list[tuple[str, dict[str, Any]]]]:
    """Return the text and the calls of a stored answer."""
    return text_of(message), [(call["tool"], call["arguments"]) for call in message.get("tool_calls") or ()]


def find_fault(messages: list[dict[str, Any]]) -> str | None:
    """Return why a service would refuse the stored conversation, were it asked once more."""
    reading = Reading()
    for message in messages:
        if message["role"] == "tool":
            reading.result(message["tool_call_id"], message["content"])
            continue
        reading.say(message["role"], text_of(message))
        for call in message.get("tool_calls") or ():
            reading.call(call["id"], call["tool"], call["arguments"])
    reading.say("user", "more")
    return reading.find_fault()
