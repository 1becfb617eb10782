"""When what is said becomes durable."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import AmplifierSession, SessionRecord
from amplifier_core.plugins import Plugins
from amplifier_core.storage import DurableStore
from amplifier_core.transcript import Transcript, text_of
from amplifier_foundation import SessionRecorder
from amplifier_foundation.sessions.usage import Usage, sum_usages
from amplifier_foundation.spawning.conversation import open_conversation
from tests.foundation.conftest import MakeBundle, playbook

RULES = [{"when": {"user": "^list"}, "call": {"tool": "glob", "input": {"pattern": "*"}}}]


@pytest.mark.parametrize(
    ("persistence", "seen", "after"),
    [(None, [1, 2, 3], 4), ("message", [1, 2, 3], 4), ("turn", [0, 0, 0], 4), ("end", [0, 0, 0], 0)],
)
async def test_a_bundle_says_when_what_is_said_is_stored(
    persistence: str | None, seen: list[int], after: int, store: DurableStore, make_bundle: MakeBundle
) -> None:
    section: dict[str, Any] = {"session": {"persistence": persistence}} if persistence else {}
    prepared = make_bundle(providers=playbook(RULES), tools=[{"module": "tool-filesystem"}], **section)
    session = await prepared.create_session(session_id="s")
    await store.create(SessionRecord("s"))
    recorder = SessionRecorder(session, store, 0)
    recorder.attach()
    stored = await counts(session, store)
    try:
        await session.execute("list them")
        assert (stored, await length(store)) == (seen, after)
        assert await recorder.flush() == 4
    finally:
        await session.cleanup()
    assert await length(store) == 4


async def test_stored_messages_say_how_long_their_calls_took_and_what_they_used(
    store: DurableStore, make_bundle: MakeBundle
) -> None:
    prepared = make_bundle(providers=playbook(RULES), tools=[{"module": "tool-filesystem"}])
    session = await prepared.create_session(session_id="s")
    await store.create(SessionRecord("s"))
    recorder = SessionRecorder(session, store, 0)
    recorder.attach()
    try:
        await session.execute("list them")
        await session.execute("and again")
        await recorder.flush()
    finally:
        await session.cleanup()
    stored = await store.read("s")
    about = [each["metadata"] for each in stored]
    assert [each["role"] for each in stored] == ["user", "assistant", "tool", "assistant", "user", "assistant"]
    assert all("timestamp" in each for each in about)
    assert [{"duration", "model", "usage"} & each.keys() for each in about] == [
        set(),
        {"duration", "model", "usage"},
        {"duration"},
        {"duration", "model", "usage"},
        set(),
        {"duration", "model", "usage"},
    ]
    assert {each["model"] for each in about if "model" in each} == {"playbook/playbook"}
    total = sum_usages([Usage.from_dict(each["usage"]) for each in about if "usage" in each])
    assert (total.requests, total.cost_usd, total.input_tokens > 0) == (3, 0, True)


async def counts(session: AmplifierSession, store: DurableStore) -> list[int]:
    """Return a list that grows by the length of the stored history before each request and each tool call."""
    seen: list[int] = []

    async def look(event: str, data: dict[str, Any]) -> None:
        seen.append(await length(store))

    for event in ("provider:request", "tool:pre"):
        session.coordinator.hooks.register(event, look, 0, "look")
    return seen


async def length(store: DurableStore) -> int:
    return (await store.get("s")).message_count


CONTEXT = """
class Odd:
    __slots__ = ("fault", "messages")

    def __init__(self, fault):
        self.messages, self.fault = [], fault

    async def add_message(self, message, *, part=False):
        text = message["content"] if isinstance(message["content"], str) else message["content"][0]["text"]
        if self.fault == "grows" and message["role"] != "system":
            return await self.set_messages([*await self.get_messages(), message])
        if self.fault == "parts" and message["role"] == "assistant" and not part:
            for each in (text[:4], text[4:]):
                await self.add_message({**message, "content": each}, part=True)
            return
        if self.fault == "recalls" and message["role"] != "system":
            self.messages.insert(0, {"role": "user", "content": f"Memory of {len(self.messages)}"})
        self.messages.append(message)
        if self.fault == "window":
            self.messages = self.messages[-3:]
        return len(self.messages)

    async def get_messages(self):
        if self.fault == "reminds" and len(self.messages) > 1:
            return [*self.messages, {"role": "user", "content": "Be brief."}]
        return self.messages[-1:] if self.fault == "short" else list(self.messages)

    async def get_messages_for_request(self, token_budget=None, provider=None):
        if self.fault == "compacts" and len(self.messages) > 4:
            self.messages = [{"role": "user", "content": "what was before"}, *self.messages[-2:]]
        return list(self.messages)

    async def set_messages(self, messages):
        if self.fault != "drop":
            self.messages = list(messages)

    async def clear(self):
        self.messages = []

async def mount(coordinator, config):
    await coordinator.mount("context", Odd(config.get("fault")))
"""
TURNS = [("user", "one"), ("assistant", "You said: one"), ("user", "two"), ("assistant", "You said: two")]
TURNS += [("user", "three"), ("assistant", "You said: three")]
PROMPT = [("system", "Be kind.")]


@pytest.mark.parametrize(
    ("fault", "kept", "warned"),
    [
        (None, [*PROMPT, *TURNS], []),
        ("drop", [*PROMPT, *TURNS], [f"keeps 1 of the {given} messages that it was given" for given in (3, 5)]),
        ("short", [*PROMPT, *TURNS], ["keeps 1 of the 3 messages that it was given"]),
        ("compacts", [*PROMPT, *TURNS], []),
        ("window", [*PROMPT, *TURNS], []),
        ("grows", [*PROMPT, *TURNS], []),
        ("parts", [*PROMPT, *TURNS], []),
        ("reminds", [*PROMPT, *TURNS], []),
        ("recalls", [*PROMPT, *TURNS], []),
    ],
)
@pytest.mark.parametrize("persistence", ["message", "turn", "end"])
async def test_the_history_of_a_context_of_its_own_is_stored_whole_and_its_turns_are_counted(
    fault: str | None,
    kept: list[tuple[str, str]],
    warned: list[str],
    persistence: str,
    store: DurableStore,
    make_bundle: MakeBundle,
    plugins: Plugins,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "odd.py").write_text(CONTEXT, encoding="utf-8")
    module = {"module": "context-odd", "source": "./odd.py", "config": {"fault": fault}}
    prepared = make_bundle(providers=playbook(), session={"context": module, "persistence": persistence})
    prepared.bundle.instruction = "Be kind."
    record, talks = None, [["one"], ["two", "three"]] if fault != "drop" else [["one"], ["two"], ["three"]]
    for prompts in talks:
        async with open_conversation(prepared, store, plugins, resume=record) as conversation:
            turns = [await conversation.say(prompt) for prompt in prompts]
        record = await conversation.read_record()
        assert record is not None
        assert turns[-1].turn_count == record.turn_count
    assert record is not None
    stored = await store.read(record.session_id)
    assert [(each["role"], text_of(each)) for each in stored] == kept
    assert record.turn_count == 3
    told = [each.removeprefix("context 'context-odd' ").partition(":")[0] for each in caplog.messages]
    assert told == warned


async def test_a_resumed_context_of_its_own_has_the_instruction_of_now(
    store: DurableStore, make_bundle: MakeBundle, plugins: Plugins, tmp_path: Path
) -> None:
    (tmp_path / "odd.py").write_text(CONTEXT, encoding="utf-8")
    session = {"context": {"module": "context-odd", "source": "./odd.py"}}
    record = None
    for instruction in ("Be kind.", "Be brief."):
        prepared = make_bundle(providers=playbook(), session=session)
        prepared.bundle.instruction = instruction
        async with open_conversation(prepared, store, plugins, resume=record) as conversation:
            await conversation.say("one")
            history = await conversation.session.history()
        record = await conversation.read_record()
    assert [text_of(each) for each in history if each["role"] == "system"] == ["Be brief."]


async def test_the_instruction_is_added_once_to_a_history_that_begins_with_something_else(
    store: DurableStore, make_bundle: MakeBundle, plugins: Plugins, tmp_path: Path
) -> None:
    (tmp_path / "odd.py").write_text(CONTEXT, encoding="utf-8")
    given = Transcript([{"role": "system", "content": "The code is 42."}, {"role": "user", "content": "hello"}])
    prepared = make_bundle(providers=playbook(), session={"context": {"module": "context-odd", "source": "./odd.py"}})
    prepared.bundle.instruction = "Be kind."
    record: SessionRecord | None = await store.create(SessionRecord("s"))
    await store.append("s", list(given), at=0)
    for _ in range(3):
        record = await store.get("s")
        async with open_conversation(prepared, store, plugins, resume=record) as conversation:
            await conversation.say("one")
    stored = await store.read("s")
    assert [text_of(each) for each in stored if each["role"] == "system"] == ["The code is 42.", "Be kind."]


async def test_a_message_that_a_context_of_its_own_still_takes_in_is_stored_once(
    store: DurableStore, make_bundle: MakeBundle, tmp_path: Path
) -> None:
    (tmp_path / "odd.py").write_text(CONTEXT, encoding="utf-8")
    prepared = make_bundle(providers=playbook(), session={"context": {"module": "context-odd", "source": "./odd.py"}})
    session = await prepared.create_session(session_id="s")
    context, goes_on = session.coordinator.get("context"), asyncio.Event()

    class Slow(type(context)):  # type: ignore[misc]
        __slots__ = ()

        async def add_message(self, message: dict[str, Any]) -> None:
            await super().add_message(message)
            await goes_on.wait()

    context.__class__ = Slow
    await store.create(SessionRecord("s"))
    recorder = SessionRecorder(session, store, 0)
    await recorder.listen()
    adding = asyncio.ensure_future(context.add_message({"role": "user", "content": "one"}))
    await asyncio.sleep(0)
    await recorder.flush()
    goes_on.set()
    await adding
    assert await recorder.flush() == 1
    await context.set_messages([{"role": "user", "content": "one"}, {"role": "user", "content": "two"}])
    assert await recorder.flush() == 2
    await session.cleanup()


async def test_what_a_context_of_its_own_is_given_while_its_own_message_is_stored_is_stored_then(
    store: DurableStore, make_bundle: MakeBundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "odd.py").write_text(CONTEXT, encoding="utf-8")
    prepared = make_bundle(providers=playbook(), session={"context": {"module": "context-odd", "source": "./odd.py"}})
    prepared.bundle.instruction = "Be kind."
    session = await prepared.create_session(session_id="s")
    context, append = session.coordinator.get("context"), store.append
    await store.create(SessionRecord("s"))
    recorder = SessionRecorder(session, store, 0)
    await recorder.listen()
    context.messages.append({"role": "user", "content": "one"})

    async def append_late(*place: Any, at: int) -> int:
        monkeypatch.setattr(store, "append", append)
        await context.add_message({"role": "user", "content": "two"})
        return await append(*place, at=at)

    monkeypatch.setattr(store, "append", append_late)
    assert [await recorder.flush(), await recorder.flush()] == [2, 3]
    assert [text_of(each) for each in await store.read("s")] == ["Be kind.", "one", "two"]
    await session.cleanup()
