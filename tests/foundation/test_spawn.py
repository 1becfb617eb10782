"""A session makes a session: inheritance, limits, what is kept and what is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import (
    AmplifierSession,
    SessionExists,
    SpawnOutcome,
    SpawnRefused,
    SpawnRequest,
    SpawnTimeout,
    hookimpl,
)
from amplifier_core.llm_errors import LLMError
from amplifier_core.plugins import Plugins
from amplifier_core.storage import DurableStore
from amplifier_foundation import EventRouter, PreparedBundle, spawn_bundle
from amplifier_foundation.history import open_calls

MakeBundle = Callable[..., PreparedBundle]

SLOW = [{"module": "provider-playbook", "config": {"delay_ms": 60_000, "otherwise": {"say": "late"}}}]
READS = [
    {"when": {"user": "^read (?P<path>.+)$"}, "call": {"tool": "read_file", "input": {"file_path": "{path}"}}},
    {"when": {"tool": "read_file"}, "say": "{content}"},
]


def playbook(rules: list[dict[str, Any]] | None = None, say: str = "You said: {prompt}") -> list[dict[str, Any]]:
    return [{"module": "provider-playbook", "config": {"rules": rules or [], "otherwise": {"say": say}}}]


async def test_a_child_takes_its_parents_session_section_and_providers_where_it_has_none(
    parent: AmplifierSession, make_bundle: MakeBundle
) -> None:
    result = await spawn_bundle(make_bundle(), "hello", parent)
    assert (result.output, result.status, result.turn_count) == ("You said: hello", "completed", 1)
    assert result.session_id.startswith("child-")


async def test_a_childs_own_providers_win(parent: AmplifierSession, make_bundle: MakeBundle) -> None:
    result = await spawn_bundle(make_bundle(providers=playbook(say="mine")), "hello", parent)
    assert result.output == "mine"


@pytest.mark.parametrize(
    ("inherit", "works"), [(True, True), (["tool-filesystem"], True), (["tool-other"], False), (False, False)]
)
async def test_tools_are_inherited_as_asked_and_work_in_the_parents_folder(
    inherit: bool | list[str], works: bool, parent: AmplifierSession, make_bundle: MakeBundle, tmp_path: Path
) -> None:
    (tmp_path / "note.txt").write_text("the note")
    child = make_bundle(providers=playbook(READS))
    spawned = spawn_bundle(child, "read note.txt", parent, inherit_tools=inherit)
    if works:
        assert (await spawned).output == "the note"
    else:
        with pytest.raises(LLMError, match="content"):
            await spawned


async def test_spawning_changes_nothing_of_the_parents_config(
    parent: AmplifierSession, make_bundle: MakeBundle
) -> None:
    before = repr(parent.config)
    await spawn_bundle(make_bundle(), "hello", parent, inherit_tools=True, inherit_hooks=True)
    assert repr(parent.config) == before


async def test_the_instruction_of_the_bundle_is_the_system_prompt(
    parent: AmplifierSession, make_bundle: MakeBundle, tmp_path: Path
) -> None:
    asked = tmp_path / "recorder.py"
    asked.write_text(
        "from amplifier_core import ChatResponse, ProviderInfo, TextBlock\n"
        "class Recorder:\n"
        "    name = 'recorder'\n"
        "    def get_info(self): return ProviderInfo(id='recorder', display_name='Recorder')\n"
        "    async def list_models(self): return []\n"
        "    def parse_tool_calls(self, response): return []\n"
        "    async def complete(self, request, **kwargs):\n"
        "        text = '|'.join(f'{m.role}:{m.content}' for m in request.messages)\n"
        "        return ChatResponse(content=[TextBlock(text=text)])\n"
        "async def mount(coordinator, config):\n"
        "    await coordinator.mount('providers', Recorder())\n"
    )
    child = make_bundle(providers=[{"module": "provider-recorder", "source": "./recorder.py"}], instruction="Be kind.")
    assert (await spawn_bundle(child, "hello", parent)).output == "system:Be kind.|user:hello"


@pytest.mark.parametrize(("depth", "turns"), [("none", 1), ("recent", 2), ("all", 3)])
async def test_history_is_inherited_to_the_depth_asked_for(
    depth: Any, turns: int, parent: AmplifierSession, make_bundle: MakeBundle, store: DurableStore
) -> None:
    await parent.execute("one")
    await parent.execute("two")
    before = list(parent.transcript)
    result = await spawn_bundle(
        make_bundle(),
        "three",
        parent,
        context_depth=depth,
        context_scope="full",
        context_turns=1,
        session_storage=store,
    )
    stored = await store.read(result.session_id)
    assert result.turn_count == turns
    assert [message["content"] for message in stored if message["role"] == "user"] == ["one", "two", "three"][-turns:]
    assert list(parent.transcript) == before


async def test_what_was_said_is_stored_with_who_made_it(
    parent: AmplifierSession, make_bundle: MakeBundle, store: DurableStore, tmp_path: Path
) -> None:
    result = await spawn_bundle(make_bundle(), "hello", parent, session_name="helper", session_storage=store)
    record = await store.get(result.session_id)
    assert (record.parent_id, record.name, record.bundle, record.status) == ("parent-1", "helper", "child", "completed")
    assert (record.turn_count, record.message_count, record.project) == (1, 2, str(tmp_path))
    assert [message["role"] for message in await store.read(result.session_id)] == ["user", "assistant"]


async def test_an_id_that_is_stored_is_refused_unless_it_is_resumed(
    parent: AmplifierSession, make_bundle: MakeBundle, store: DurableStore
) -> None:
    await spawn_bundle(make_bundle(), "hello", parent, session_id="fixed-1", session_storage=store)
    with pytest.raises(SessionExists, match="fixed-1"):
        await spawn_bundle(make_bundle(), "again", parent, session_id="fixed-1", session_storage=store)
    assert len(await store.read("fixed-1")) == 2


async def test_a_turn_that_was_cut_goes_on_and_its_open_call_is_recorded_as_interrupted(
    parent: AmplifierSession, make_bundle: MakeBundle, store: DurableStore, tmp_path: Path
) -> None:
    (tmp_path / "note.txt").write_text("the note")
    child = make_bundle(providers=playbook(READS), tools=[{"module": "tool-filesystem"}])
    await spawn_bundle(child, "read note.txt", parent, session_id="whole", session_storage=store)
    messages = await store.read("whole")
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    record = await store.get("whole")
    await store.create(replace(record, session_id="cut", message_count=0, turn_count=0))
    await store.append("cut", messages[:2], at=0)
    assert open_calls(await store.read("cut"))

    result = await spawn_bundle(child, "not asked again", parent, session_id="cut", session_storage=store, resume=True)

    resumed = await store.read("cut")
    assert result.output == "the note"
    assert [message["role"] for message in resumed] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert '"interrupted": true' in resumed[2]["content"]
    assert open_calls(resumed) == []


async def test_a_turn_that_was_finished_when_the_process_ended_is_not_taken_again(
    parent: AmplifierSession, make_bundle: MakeBundle, store: DurableStore
) -> None:
    await spawn_bundle(make_bundle(), "hello", parent, session_id="done", session_storage=store)
    other = make_bundle(providers=playbook(say="asked again"))
    result = await spawn_bundle(other, "hello", parent, session_id="done", session_storage=store, resume=True)
    assert result.output == "You said: hello"
    assert len(await store.read("done")) == 2


async def test_completion_is_told_once(parent: AmplifierSession, make_bundle: MakeBundle) -> None:
    router = EventRouter()
    news = router.subscribe(["session:*"])
    result = await spawn_bundle(make_bundle(), "hello", parent, event_router=router)
    event = await anext(news)
    assert (event.name, event.source_session_id) == ("session:completed", result.session_id)
    assert (event.data["output"], event.data["parent_id"]) == ("You said: hello", "parent-1")
    assert news.lag == 0


async def test_a_failure_is_told_kept_and_raised_as_it_was(
    parent: AmplifierSession, make_bundle: MakeBundle, store: DurableStore
) -> None:
    router = EventRouter(store)
    news = router.subscribe(["session:*"])
    child = make_bundle(providers=[{"module": "provider-playbook", "config": {"rules": []}}])
    with pytest.raises(LLMError, match="no rule"):
        await spawn_bundle(child, "hello", parent, session_id="failing", session_storage=store, event_router=router)
    event = await anext(news)
    assert (event.name, news.lag) == ("session:error", 0)
    record = await store.get("failing")
    assert record.status == "failed"
    assert record.error is not None
    assert "no rule" in record.error
    assert [message["content"] for message in await store.read("failing")] == ["hello"]


async def test_a_time_limit_names_the_session_and_keeps_what_was_said(
    parent: AmplifierSession, make_bundle: MakeBundle, store: DurableStore
) -> None:
    with pytest.raises(SpawnTimeout) as caught:
        await spawn_bundle(
            make_bundle(providers=SLOW), "hello", parent, session_id="slow", session_storage=store, timeout=0.05
        )
    assert (caught.value.session_id, caught.value.seconds) == ("slow", 0.05)
    assert (await store.get("slow")).status == "failed"
    assert [message["content"] for message in await store.read("slow")] == ["hello"]


async def test_cancelling_the_task_is_kept_and_told_and_goes_on_to_the_caller(
    parent: AmplifierSession, make_bundle: MakeBundle, store: DurableStore
) -> None:
    router = EventRouter(store)
    spawning = asyncio.ensure_future(
        spawn_bundle(
            make_bundle(providers=SLOW),
            "hello",
            parent,
            session_id="cut",
            session_storage=store,
            event_router=router,
        )
    )
    while not (await store.sessions() and await store.read("cut")):
        await asyncio.sleep(0)
    spawning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await spawning
    assert (await store.get("cut")).status == "cancelled"
    assert [event.name for event in await store.events()] == ["session:error"]


async def test_a_stop_of_the_parent_reaches_a_child_at_work(
    parent: AmplifierSession, make_bundle: MakeBundle, store: DurableStore
) -> None:
    async with asyncio.TaskGroup() as group:
        spawning = group.create_task(
            spawn_bundle(make_bundle(providers=SLOW), "hello", parent, session_id="slow", session_storage=store)
        )
        while not (await store.sessions() and await store.read("slow")):
            await asyncio.sleep(0)
        await parent.coordinator.request_cancel(immediate=True)
    assert spawning.result().status == "cancelled"
    assert (await store.get("slow")).status == "cancelled"
    assert parent.coordinator.cancellation._children == []


async def test_plugins_may_refuse_and_observe(
    parent: AmplifierSession, make_bundle: MakeBundle, plugins: Plugins, store: DurableStore
) -> None:
    seen: list[SpawnRequest | SpawnOutcome] = []

    class Quiet:
        @hookimpl
        async def amplifier_before_spawn(self, request: SpawnRequest) -> None:
            seen.append(request)
            if request.instruction == "loud":
                raise SpawnRefused(request.parent_id, "it is night")

        @hookimpl
        async def amplifier_after_spawn(self, result: SpawnOutcome) -> None:
            seen.append(result)

    plugins.register(Quiet(), "quiet")
    with pytest.raises(SpawnRefused, match="it is night"):
        await spawn_bundle(make_bundle(), "loud", parent, session_storage=store, plugins=plugins)
    assert await store.sessions() == []
    await spawn_bundle(make_bundle(), "soft", parent, plugins=plugins)
    kinds = [type(each).__name__ for each in seen]
    assert kinds == ["SpawnRequest", "SpawnRequest", "SpawnOutcome"]
    assert isinstance(seen[1], SpawnRequest)
    assert seen[1].depth == 1


async def test_children_that_ended_leave_nothing_behind(parent: AmplifierSession, make_bundle: MakeBundle) -> None:
    prepared = make_bundle()
    tasks = len(asyncio.all_tasks())
    for _ in range(20):
        await spawn_bundle(prepared, "hello", parent)
    assert parent.coordinator.cancellation._children == []
    assert parent.children == []
    assert len(asyncio.all_tasks()) == tasks
