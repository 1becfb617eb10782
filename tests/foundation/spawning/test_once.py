"""Marks of calls with effects once: who sets them, whom they stop, and what a decision does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import AmplifierSession
from amplifier_core.plugins import Plugins
from amplifier_core.storage import DurableStore, SessionRecord
from amplifier_foundation import PreparedBundle, fork_stored, spawn_bundle
from amplifier_foundation.sessions.once import EffectsUncertain, check_effects, decide_effects
from amplifier_foundation.sessions.recording import record_session
from amplifier_foundation.spawning.conversation import open_conversation
from tests.programs import require

MakeBundle = Callable[..., PreparedBundle]

MARK = {"once": {"c": {"tool": "pay", "key": "k"}}}
OPEN = [
    {"role": "user", "content": "order"},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "tool": "pay", "arguments": {"amount": 7}}]},
]
PAY = """
class Pay:
    name, description, input_schema = "pay", "Pays.", {"type": "object", "properties": {}}
    def __init__(self, coordinator, config):
        self.coordinator, self.config = coordinator, config
    async def execute(self, input):
        store, session = self.config["store"], self.coordinator.session
        self.config["seen"].append((await store.get(session.session_id)).metadata.get("once"))
        if self.config.get("fails"):
            raise OSError("no money")
        return "paid"

async def mount(coordinator, config):
    await coordinator.mount("tools", Pay(coordinator, config))
"""

MOUNT = PAY[PAY.index("async def mount") :]


@pytest.fixture
def cut(store: DurableStore, tmp_path: Path) -> Callable[..., Any]:
    """Store a session that was killed while it paid."""

    async def make(session_id: str = "cut", **fields: Any) -> SessionRecord:
        given = {"project": str(tmp_path), "metadata": MARK, **fields}
        await store.create(SessionRecord(session_id, **given))
        await store.append(session_id, OPEN, at=0)
        return await store.get(session_id)

    return make


@pytest.mark.parametrize("fails", [False, True])
async def test_a_call_is_marked_while_it_runs_and_no_longer(
    parent: AmplifierSession, make_bundle: MakeBundle, store: DurableStore, words: Any, tmp_path: Path, fails: bool
) -> None:
    (tmp_path / "pay.py").write_text(PAY)
    seen: list[Any] = []
    child = make_bundle(providers=words.calls("pay"))
    config = {"effects": "once", "seen": seen, "store": store, "fails": fails}
    child.mount_plan["tools"] = [{"module": "pay", "source": str(tmp_path / "pay.py"), "config": config}]
    async with await child.create_session(
        session_id="paying", session_cwd=tmp_path, config=child.mount_plan
    ) as session:
        await store.create(SessionRecord("paying"))
        async with record_session(session, store, 0, {"name": "kept"}) as recorder:
            await session.execute("go")
            assert recorder is not None
            assert recorder.once.marks == {}
    [marks] = seen
    assert [(mark["tool"], len(mark["key"])) for mark in marks.values()] == [("pay", 32)]
    assert (await store.get("paying")).metadata == {"name": "kept"}


async def test_a_call_whose_process_in_a_sandbox_ends_may_have_had_its_effect(
    make_bundle: MakeBundle, store: DurableStore, words: Any, tmp_path: Path
) -> None:
    require("bwrap")
    (tmp_path / "work").mkdir()
    source = PAY.replace("self.coordinator, self.config = coordinator, config", "self.effects = 'once'")
    (tmp_path / "pay.py").write_text(
        source.partition("        store, ")[0] + "        import os; os._exit(1)\n" + MOUNT
    )
    child = make_bundle(providers=words.calls("pay"))
    child.mount_plan["tools"] = [{"module": "pay", "source": str(tmp_path / "pay.py"), "sandbox": True}]
    async with await child.create_session(
        session_id="paying", session_cwd=tmp_path / "work", config=child.mount_plan
    ) as session:
        await store.create(SessionRecord("paying"))
        async with record_session(session, store, 0, {}) as recorder:
            await session.execute("go")
        assert recorder is not None
        [mark] = recorder.once.marks.values()
    assert (mark["tool"], mark["cut"]) == ("pay", True)


async def test_an_undecided_call_keeps_its_session_and_those_above_from_being_resumed(
    parent: AmplifierSession, make_bundle: MakeBundle, store: DurableStore, cut: Any
) -> None:
    above = await store.create(SessionRecord("above", status="interrupted", metadata={}))
    record = await cut(parent_id="above")
    for each in (record, above):
        with pytest.raises(EffectsUncertain, match="the call of 'pay' in session 'cut'") as caught:
            await check_effects(store, each)
        assert (caught.value.session_id, caught.value.tools) == ("cut", ("pay",))
    resumed: Any = {"session_id": "cut", "session_storage": store, "resume": True}
    with pytest.raises(EffectsUncertain):
        await spawn_bundle(make_bundle(), "order", parent, **resumed)
    assert await decide_effects(store, "above", "done") == 1
    assert await decide_effects(store, "above", "done") == 0
    await check_effects(store, above)
    assert (await spawn_bundle(make_bundle(), "order", parent, **resumed)).status == "completed"
    assert "once" not in (await store.get("cut")).metadata
    assert "took effect" in (await store.read("cut"))[2]["content"]


async def test_a_call_whose_result_is_stored_needs_no_decision(store: DurableStore, cut: Any) -> None:
    record = await cut()
    await store.append("cut", [{"role": "tool", "tool_call_id": "c", "content": "paid"}], at=2)
    await check_effects(store, record)
    await store.update("cut", metadata={"once": {"c": {"tool": "pay", "cut": True}}})
    with pytest.raises(EffectsUncertain):  # the stored result tells of the cut alone
        await check_effects(store, await store.get("cut"))


async def test_a_loop_that_runs_no_open_calls_is_told_the_decision(
    parent: AmplifierSession, make_bundle: MakeBundle, store: DurableStore, words: Any, cut: Any
) -> None:
    await cut()
    await decide_effects(store, "cut", "again")
    child = make_bundle(session={"orchestrator": words.entry("loop-own")})
    await spawn_bundle(child, "order", parent, session_id="cut", session_storage=store, resume=True)
    told = (await store.read("cut"))[2]
    assert (told["role"], told["tool_call_id"]) == ("tool", "c")
    assert "Call the tool again" in json.loads(told["content"])["message"]


async def test_a_person_who_resumes_the_session_is_trusted_and_the_model_is_told(
    make_bundle: MakeBundle, store: DurableStore, plugins: Plugins, words: Any, cut: Any
) -> None:
    record = await cut()
    bundle = make_bundle("shop", providers=[words.entry("provider-echo")])
    async with open_conversation(bundle, store, plugins, resume=record) as conversation:
        turn = await conversation.say("is it paid?")
    assert "must not take effect twice" in turn.output
    assert "once" not in (await store.get("cut")).metadata


async def test_a_call_in_a_fork_is_no_matter_of_its_source(store: DurableStore) -> None:
    await store.create(SessionRecord("source", status="idle"))
    await store.append("source", [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}], at=0)
    fork = await fork_stored(store, await store.get("source"))
    await store.append(fork.session_id, OPEN, at=2)
    await store.update(fork.session_id, metadata={**fork.metadata, **MARK})
    await check_effects(store, await store.get("source"))
    assert await decide_effects(store, "source", "done") == 0
    with pytest.raises(EffectsUncertain):
        await check_effects(store, await store.get(fork.session_id))


async def test_a_fork_has_no_marks_of_its_source(store: DurableStore, cut: Any) -> None:
    fork = await fork_stored(store, await cut())
    assert "once" not in fork.metadata
    await check_effects(store, fork)
