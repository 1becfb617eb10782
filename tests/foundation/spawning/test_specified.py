"""What spawning promises, case by case, by the names that its specification gives them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import AmplifierSession, SpawnTimeout
from amplifier_core.storage import DurableStore
from amplifier_foundation import Bundle, EventRouter, PreparedBundle, SpawnHandle, SpawnResult, spawn_bundle
from amplifier_foundation.sessions.history import open_calls
from amplifier_foundation.spawning.family import Family

MakeBundle = Callable[..., PreparedBundle]
Parent = AmplifierSession

FORMER: list[dict[str, Any]] = [
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "r", "tool": "read_file", "arguments": {}}]},
    {"role": "tool", "tool_call_id": "r", "content": "a file"},
    {"role": "assistant", "content": "first"},
    {"role": "user", "content": "two"},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "d", "tool": "delegate", "arguments": {}}]},
    {"role": "tool", "tool_call_id": "d", "content": "an agent's answer"},
    {"role": "assistant", "content": "second"},
]
CONVERSATION = "user:one|assistant:first|user:two|assistant:second"


@pytest.fixture
def child(make_bundle: MakeBundle, words: Any) -> PreparedBundle:
    """A bundle whose provider tells what it was told, and which tools it has."""
    return make_bundle(providers=[words.entry("provider-echo")])


@pytest.fixture
def experienced(parent: Parent) -> Parent:
    """The parent after two turns, in the middle of a third."""
    parent.transcript.extend(FORMER)
    parent.transcript.append({"role": "user", "content": "three"})
    calls = [{"id": "now", "tool": "delegate", "arguments": {}}]
    parent.transcript.append({"role": "assistant", "content": "", "tool_calls": calls})
    return parent


async def told(child: PreparedBundle, parent: Parent, **options: Any) -> str:
    """Return the history that the child's model is given, without its own prompt."""
    said: str = (await spawn_bundle(child, "now", parent, **options)).output
    before, _, own = said.rpartition("user:now")
    assert own == ""
    return before.removesuffix("|")


async def test_spawn_with_bundle_object(parent: Parent, tmp_path: Path) -> None:
    result = await spawn_bundle(Bundle.from_dict({"bundle": {"name": "child"}}, tmp_path), "hello", parent)
    assert isinstance(result, SpawnResult)
    assert (result.output, result.status, result.turn_count) == ("You said: hello", "completed", 1)
    assert result.session_id.startswith("child-")


async def test_spawn_with_uri_string(parent: Parent, tmp_path: Path) -> None:
    path = tmp_path / "helper.md"
    path.write_text("---\nbundle: {name: helper}\n---\n")
    for uri in (str(path), path.as_uri()):
        result = await spawn_bundle(uri, "hello", parent)
        assert (result.output, result.session_id[:7]) == ("You said: hello", "helper-")


async def test_spawn_with_prepared_bundle(parent: Parent, make_bundle: MakeBundle) -> None:
    prepared = make_bundle()
    plan = json.dumps(prepared.mount_plan)
    outputs = [(await spawn_bundle(prepared, text, parent)).output for text in ("one", "two")]
    assert outputs == ["You said: one", "You said: two"]
    assert json.dumps(prepared.mount_plan) == plan


async def test_provider_inheritance_when_empty(parent: Parent, make_bundle: MakeBundle) -> None:
    assert (await spawn_bundle(make_bundle(), "hello", parent)).output == "You said: hello"
    with pytest.raises(RuntimeError, match="No providers mounted"):
        await spawn_bundle(make_bundle(), "hello", parent, inherit_providers=False)


async def test_provider_inheritance_when_defined(parent: Parent, make_bundle: MakeBundle, words: Any) -> None:
    assert (await spawn_bundle(make_bundle(providers=words.playbook(say="mine")), "hello", parent)).output == "mine"


async def test_tool_inheritance_false(parent: Parent, child: PreparedBundle) -> None:
    assert (await spawn_bundle(child, "hello", parent)).output == "user:hello"


async def test_tool_inheritance_true(parent: Parent, child: PreparedBundle) -> None:
    said = (await spawn_bundle(child, "hello", parent, inherit_tools=True)).output
    assert set(parent.coordinator.get("tools")) == set(said.partition("[")[2].rstrip("]").split(","))


async def test_tool_inheritance_list(make_bundle: MakeBundle, child: PreparedBundle, words: Any) -> None:
    tools = [words.entry("tool-probe"), {"module": "tool-filesystem"}]
    async with await make_bundle("parent", providers=words.playbook(), tools=tools).create_session() as parent:
        for names, mounted in ((["tool-probe"], " [probe]"), (["tool-other"], ""), ([], "")):
            result = await spawn_bundle(child, "hello", parent, inherit_tools=names)
            assert result.output == f"user:hello{mounted}"


async def test_hook_inheritance_modes(make_bundle: MakeBundle, words: Any) -> None:
    hooks = [words.entry("hooks-asking")]  # denies every tool: nobody can be asked
    child = make_bundle(providers=words.calls("probe"), tools=[words.entry("tool-probe", mark="ran")])
    async with await make_bundle("parent", providers=words.playbook(), hooks=hooks).create_session() as parent:
        for modes, runs in ((False, True), (True, False), (["hooks-asking"], False), (["hooks-other"], True)):
            output = (await spawn_bundle(child, "hello", parent, inherit_hooks=modes)).output
            assert ("ran" in output, "Denied by hook" in output) == (runs, not runs)


async def test_context_depth_none(experienced: Parent, child: PreparedBundle) -> None:
    assert await told(child, experienced) == ""


async def test_context_depth_recent(experienced: Parent, child: PreparedBundle) -> None:
    recent = await told(child, experienced, context_depth="recent", context_turns=2)
    assert recent == "user:two|assistant:second|user:three"
    assert await told(child, experienced, context_depth="recent", context_turns=0) == ""


async def test_context_depth_all(experienced: Parent, child: PreparedBundle) -> None:
    before = list(experienced.transcript)
    assert await told(child, experienced, context_depth="all") == f"{CONVERSATION}|user:three"
    assert list(experienced.transcript) == before


async def test_context_scope_conversation(experienced: Parent, child: PreparedBundle) -> None:
    said = await told(child, experienced, context_depth="all", context_scope="conversation")
    assert "tool:" not in said


async def test_context_scope_agents(experienced: Parent, child: PreparedBundle) -> None:
    said = await told(child, experienced, context_depth="all", context_scope="agents")
    assert "|tool:an agent's answer|" in said
    assert "a file" not in said


async def test_context_scope_full(experienced: Parent, child: PreparedBundle) -> None:
    said = await told(child, experienced, context_depth="all", context_scope="full")
    assert "|tool:a file|" in said
    assert "|tool:an agent's answer|" in said
    assert said.endswith("user:three")  # without the call in flight, which would have no result


class Folder:
    """A storage of two methods, as programs have them: a file a session."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def _file(self, session_id: str) -> Path:
        return self.root / f"{session_id}.json"

    def save(self, session_id: str, transcript: list[dict[str, Any]], metadata: dict[str, Any]) -> None:
        self._file(session_id).write_text(json.dumps([transcript, metadata]))

    def load(self, session_id: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        transcript, metadata = json.loads(self._file(session_id).read_text())
        return transcript, metadata

    def exists(self, session_id: str) -> bool:
        return self._file(session_id).exists()


async def test_session_persistence(
    parent: Parent, make_bundle: MakeBundle, store: DurableStore, tmp_path: Path
) -> None:
    result = await spawn_bundle(make_bundle(), "hello", parent, session_name="helper", session_storage=store)
    record = await store.get(result.session_id)
    assert (record.parent_id, record.name, record.bundle, record.status) == ("parent-1", "helper", "child", "completed")
    assert (record.turn_count, record.message_count, record.project) == (1, 2, str(tmp_path))
    small = Folder(tmp_path)
    result = await spawn_bundle(make_bundle(), "hello", parent, session_storage=small)
    transcript, metadata = small.load(result.session_id)
    assert {"session_id", "parent_id", "bundle_name", "created", "turn_count"} <= metadata.keys()
    assert (metadata["session_id"], metadata["bundle_name"]) == (result.session_id, "child")
    assert [message["role"] for message in transcript] == ["user", "assistant"]
    assert (metadata["parent_id"], metadata["status"], metadata["turn_count"]) == ("parent-1", "completed", 1)


async def test_timeout_handling(parent: Parent, make_bundle: MakeBundle, store: DurableStore, words: Any) -> None:
    slow = make_bundle(providers=words.slow)
    with pytest.raises(TimeoutError) as caught:
        await spawn_bundle(slow, "hello", parent, session_id="slow", session_storage=store, timeout=0.05)
    assert isinstance(caught.value, SpawnTimeout)
    assert (caught.value.session_id, caught.value.seconds, caught.value.partial) == ("slow", 0.05, "")
    assert str(caught.value) == "session 'slow' was stopped after 0.05 s"  # no command could go on with it everywhere
    assert (await store.get("slow")).status == "failed"
    assert [message["content"] for message in await store.read("slow")] == ["hello"]


async def test_a_timeout_tells_the_partial_answer(parent: Parent, make_bundle: MakeBundle, words: Any) -> None:
    rules = {"when": {"user": "."}, "say": "Let me look.", "call": {"tool": "wait", "input": {}}}
    tools = [words.entry("tool-waiting")]
    with pytest.raises(SpawnTimeout) as caught:
        await spawn_bundle(make_bundle(providers=words.playbook(rules), tools=tools), "hello", parent, timeout=1.5)
    assert caught.value.partial == "Let me look."


async def test_background_execution(parent: Parent, make_bundle: MakeBundle, until: Any) -> None:
    router = EventRouter()
    news = router.subscribe(["session:completed"])
    handle = await spawn_bundle(make_bundle(), "hello", parent, background=True, event_router=router)
    assert isinstance(handle, SpawnHandle)
    assert handle.status == "running"
    event = await anext(news)
    assert (event.source_session_id, event.data["parent_id"]) == (handle.session_id, "parent-1")
    assert event.data["output"] == (await handle.wait()).output == "You said: hello"
    assert handle.status == "completed"


@pytest.mark.usefixtures("eager_tasks")
async def test_background_execution_where_tasks_begin_at_once(
    parent: Parent, make_bundle: MakeBundle, watched: Any
) -> None:
    running: list[list[str]] = []
    watched.at["provider:request"] = lambda: running.append(Family.of(parent).running)
    handle = await spawn_bundle(make_bundle(), "hello", parent, session_id="beside", background=True)
    assert (await handle.wait()).output == "You said: hello"
    await asyncio.sleep(0)
    assert (running, Family.of(parent).running) == ([["beside"]], [])


async def test_cancellation_propagation(
    parent: Parent, make_bundle: MakeBundle, store: DurableStore, watched: Any, until: Any, words: Any
) -> None:
    reached: list[bool] = []
    watched.at["provider:request"] = lambda: reached.append(True)
    slow = make_bundle(providers=words.slow)
    spawning = asyncio.ensure_future(spawn_bundle(slow, "hello", parent, session_id="slow", session_storage=store))
    await until(lambda: reached)
    await parent.coordinator.request_cancel(immediate=True)
    assert (await spawning).status == "cancelled"
    assert (await store.get("slow")).status == "cancelled"
    assert open_calls(await store.read("slow")) == []
    assert parent.coordinator.cancellation._children == []


async def test_nested_spawn_capability(parent: Parent, make_bundle: MakeBundle, watched: Any, words: Any) -> None:
    probe = words.entry("tool-probe", mark="here")
    tools = [{"module": "tool-delegate"}, probe]
    below = {"below": {"description": "Answers.", "providers": words.playbook(say="from below")}}
    nested = make_bundle(providers=words.calls("delegate", agent="below", instruction="go"), tools=tools, agents=below)
    result = await spawn_bundle(nested, "hello", parent)
    assert json.loads(result.output)["response"] == "from below"
    child, grandchild = watched.children
    assert (child.parent_id, grandchild.parent_id) == ("parent-1", child.session_id)
    assert grandchild.coordinator.get_capability("session.depth") == 2
