"""What published implementations of spawning got wrong, row by row.

| row | flaw | tested by |
|---|---|---|
| S1 | a history cannot be inherited while a loop runs | every_depth_and_scope |
| S2 | calls without results are inherited | every_depth_and_scope |
| S3 | scopes and turns are guessed from names | what_a_delegate_answered, reminders |
| S4 | a child that fails is neither ended nor stored | a_child_that_fails |
| S5 | a time limit stops one task alone; 0 is no limit | a_time_limit_reaches, a_limit_of_no_seconds |
| S6 | a time limit does not say whose it was | `test_specified`: timeout_handling |
| S7 | what fails before the turn leaves things behind | a_child_that_cannot_be_mounted |
| S8 | a bundle without a session section cannot be run | the_parents_loop |
| S9 | the bundle's instruction and context are not told | the_instruction_and_the_context |
| S10 | capabilities come after the modules | capabilities_are_there |
| S11 | the parent's resolver hides the child's modules | the_childs_own_code |
| S12 | nested spawning knows other arguments | the_published_contract |
| S13 | a session in the background lives by other rules | in_the_background |
| S14 | one that is cancelled there is not told | cancelled_in_the_background |
| S15 | only the background tells how it ended | how_it_ended_is_told |
| S16 | folders stay on the import path | the_import_path |
| S17 | the parent must have a loader of one make | a_parent_with_a_loader |
| S18 | what a child changes, changes its parent | nothing_of_the_parents_config |
| S19 | instances of one module collapse | instances |
| S20 | providers are inherited by one rule, which nothing says | `test_specified`: provider_inheritance |
| S21 | an id that exists is overwritten | an_id_that_is_stored, goes_on |
| S22 | turns, usage and cost are unknown | what_it_took |
| S23 | the record does not suffice to resume | the_record |
| S24 | all is stored at the end, or never | before_the_next_step |
| S25 | any text is a file's name | an_id_that_is_no_name |
| S26 | the parent's mentions hide the child's | mentioned_files |
| S27 | siblings ask at once; the background asks nobody | one_question_at_a_time, in_the_background_is_denied |
| S28 | there are no limits | `test_limits` |
| S29 | loading a bundle has no time limit and is not told | cannot_be_loaded |
| S30 | a child's life is not seen by plugins | plugins_see |
| S31 | a placeholder stands for the output | `test_specified`: background_execution |
| S32 | inherited hooks hear twice | inherited_hooks |
| S33 | agents lose overrides, filters and terms | `test_agents`, `test_delegation` |
"""

from __future__ import annotations

import asyncio
import gc
import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from inspect import signature
from pathlib import Path
from typing import Any, get_args, get_overloads
from weakref import ReferenceType, ref

import pytest

from amplifier_core import (
    AmplifierSession,
    BundleError,
    InvalidSessionId,
    SessionConflict,
    SessionExists,
    SessionNotFound,
    SpawnOutcome,
    SpawnRefused,
    SpawnRequest,
    SpawnTimeout,
    hookimpl,
)
from amplifier_core.plugins import Plugins
from amplifier_core.storage import DurableStore, SessionStorage
from amplifier_foundation import (
    Bundle,
    ContentDeduplicator,
    EventRouter,
    PreparedBundle,
    load_bundle,
    spawn_bundle,
)
from amplifier_foundation.sessions.history import open_calls
from amplifier_foundation.sessions.usage import children_usage
from amplifier_foundation.spawning.family import Family
from amplifier_foundation.spawning.inheritance import Depth, Scope

MakeBundle = Callable[..., PreparedBundle]
Parent = AmplifierSession

READS = {"when": {"user": "^read (?P<path>.+)$"}, "call": {"tool": "read_file", "input": {"file_path": "{path}"}}}
TELLS = {"when": {"tool": "read_file"}, "say": "{content}"}
FILES = [{"module": "tool-filesystem"}]


@pytest.fixture
def echo(make_bundle: MakeBundle, words: Any) -> PreparedBundle:
    """A bundle whose provider tells what it was told."""
    return make_bundle(providers=[words.entry("provider-echo")])


# S1, S2


@pytest.mark.parametrize("scope", get_args(Scope))
@pytest.mark.parametrize("depth", get_args(Depth))
async def test_every_depth_and_scope_gives_a_history_whose_calls_have_results(
    depth: Any, scope: Any, parent: Parent, echo: PreparedBundle, store: DurableStore
) -> None:
    calls = [{"id": "a", "tool": "delegate", "arguments": {}}, {"id": "b", "tool": "read_file", "arguments": {}}]
    parent.transcript.extend(
        [
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "", "tool_calls": calls},
            {"role": "tool", "tool_call_id": "a", "content": "A"},
            {"role": "tool", "tool_call_id": "b", "content": "B"},
            {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "tool": "delegate", "arguments": {}}]},
        ]
    )
    result = await spawn_bundle(echo, "two", parent, context_depth=depth, context_scope=scope, session_storage=store)
    stored = await store.read(result.session_id)
    assert stored[-1]["role"] == "assistant"
    assert open_calls(stored) == []
    assert result.turn_count == 1


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        *[({"context_depth": depth}, f"^context_depth: must be one of none, recent, all, not {depth!r}$")
          for depth in (None, "None", "NONE", "all ", "agents")],
        ({"context_depth": "all", "context_scope": "all"}, "context_scope: must be one of conversation, agents, full"),
        ({"context_scope": None}, "context_scope: must be one of conversation, agents, full, not None"),
    ],
)  # fmt: skip
async def test_a_depth_or_scope_that_is_none_is_refused_and_nothing_is_inherited_or_stored(
    given: dict[str, Any], complaint: str, parent: Parent, echo: PreparedBundle, store: DurableStore, lead: Any
) -> None:
    with pytest.raises(ValueError, match=complaint):
        await spawn_bundle(echo, "go", parent, session_storage=store, **given)
    session = await lead()
    with pytest.raises(ValueError, match=complaint):
        await session.coordinator.get_capability("session.spawn")("self", "go", **given)
    assert await store.sessions() == []


# S3


async def test_what_a_delegate_answered_is_known_by_its_call(lead: Any, words: Any, echo: PreparedBundle) -> None:
    below = {"below": {"description": "Answers.", "providers": words.playbook(say="from below")}}
    session = await lead(providers=words.calls("delegate", agent="below", instruction="go"), agents=below, hooks=[])
    await session.execute("ask below")
    said = (await spawn_bundle(echo, "so?", session, context_depth="all", context_scope="agents")).output
    assert "from below" in said
    assert "from below" in (await spawn_bundle(echo, "so?", session, context_depth="all")).output  # as it was said
    assert "tool:" not in (await spawn_bundle(echo, "so?", session, context_depth="all")).output


async def test_reminders_of_hooks_are_no_turns(parent: Parent, echo: PreparedBundle) -> None:
    reminder = {"role": "user", "content": "<system-reminder>look</system-reminder>"}
    parent.transcript.extend([{"role": "user", "content": "one"}, reminder, {"role": "assistant", "content": "yes"}])
    result = await spawn_bundle(echo, "two", parent, context_depth="recent", context_turns=1)
    assert result.output.startswith("user:one|")
    assert result.turn_count == 1


# S4, S7


async def test_a_child_that_fails_is_ended_and_stored(
    parent: Parent, make_bundle: MakeBundle, store: DurableStore, watched: Any, words: Any
) -> None:
    failing = make_bundle(providers=[words.entry("provider-faulty")])
    with pytest.raises(OSError, match="broken provider"):
        await spawn_bundle(failing, "hello", parent, session_id="failing", session_storage=store)
    [child] = watched.children
    assert child.ended_at is not None
    record = await store.get("failing")
    assert (record.status, record.turn_count) == ("failed", 1)
    told = r"provider 'faulty': OSError: broken provider \(.*/provider-faulty\.py:\d+\)"
    assert re.fullmatch(told, str(record.error))
    assert [message["content"] for message in await store.read("failing")] == ["hello"]


async def test_a_child_that_cannot_be_mounted_leaves_nothing_behind(
    parent: Parent, make_bundle: MakeBundle, store: DurableStore, watched: Any, words: Any
) -> None:
    path, before = list(sys.path), parent.coordinator.to_dict()
    broken = make_bundle(session={"context": {"module": "context-nowhere"}})
    with pytest.raises(RuntimeError, match="Cannot initialize without context"):
        await spawn_bundle(broken, "hello", parent, session_id="broken", session_storage=store)
    assert (await store.get("broken")).status == "failed"
    assert sys.path == path
    assert parent.coordinator.to_dict() == before
    assert parent.coordinator.cancellation._children == []


# S5


async def test_a_time_limit_reaches_the_children_of_the_child(
    parent: Parent, make_bundle: MakeBundle, watched: Any, words: Any
) -> None:
    below = {"below": {"description": "Slow.", "providers": words.slow}}
    nested = make_bundle(
        providers=words.calls("delegate", agent="below", instruction="go"),
        tools=[{"module": "tool-delegate"}],
        agents=below,
    )
    with pytest.raises(SpawnTimeout):
        await spawn_bundle(nested, "hello", parent, timeout=0.2)
    child, grandchild = watched.children
    assert child.coordinator.cancellation.is_cancelled
    assert grandchild.coordinator.cancellation.is_cancelled
    assert grandchild.ended_at is not None


async def test_a_limit_of_no_seconds_is_a_limit(parent: Parent, echo: PreparedBundle) -> None:
    with pytest.raises(SpawnTimeout, match="after 0 s"):
        await spawn_bundle(echo, "hello", parent, timeout=0)


# S8, S9, S10, S11


async def test_the_parents_loop_and_context_serve_a_bundle_without_any(
    make_bundle: MakeBundle, words: Any, echo: PreparedBundle
) -> None:
    session = {"orchestrator": words.entry("loop-own"), "context": {"module": "context-simple"}}
    parent = await make_bundle("parent", session=session, providers=words.playbook()).create_session()
    async with parent:
        assert (await spawn_bundle(echo, "hello", parent)).output == "done"


async def test_the_instruction_and_the_context_of_the_bundle_are_told_first(
    parent: Parent, make_bundle: MakeBundle, words: Any, tmp_path: Path
) -> None:
    (tmp_path / "rules.md").write_text("No jokes.")
    bundle = make_bundle(
        providers=[words.entry("provider-echo")], instruction="Be kind.", context={"rules": "rules.md"}
    )
    said = (await spawn_bundle(bundle, "hello", parent)).output
    assert said.startswith("system:Be kind.")
    assert "No jokes." in said
    assert said.endswith("|user:hello")


async def test_capabilities_are_there_when_modules_are_mounted(
    parent: Parent, make_bundle: MakeBundle, words: Any, tmp_path: Path
) -> None:
    bundle = make_bundle(providers=words.calls("probe"), tools=[words.entry("tool-probe")])
    assert (await spawn_bundle(bundle, "hello", parent)).output.strip() == f"{tmp_path} True"


async def test_the_childs_own_code_comes_first_and_the_parents_is_found_too(
    make_bundle: MakeBundle, words: Any, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    code = (tmp_path / "tool-probe.py").read_text()
    (own / "tool-probe.py").write_text(code.replace("{find('session.", "own {find('session.", 1))
    tools = [words.entry("tool-probe")]
    sections = {"providers": words.calls("probe"), "tools": tools}
    child = PreparedBundle.of(Bundle.from_dict({"bundle": {"name": "child"}, **sections}, own))
    bare = PreparedBundle.of(Bundle.from_dict({"bundle": {"name": "bare"}, "providers": words.calls("probe")}, own))
    async with await make_bundle("parent", **sections).create_session(session_cwd=tmp_path) as parent:
        assert (await spawn_bundle(child, "hello", parent)).output.startswith("own ")
        assert (await spawn_bundle(bare, "hello", parent, inherit_tools=True)).output.startswith(str(tmp_path))


# S12


async def test_the_published_contract_of_the_capability_holds(lead: Any, words: Any) -> None:
    session = await lead(agents={"below": {"description": "Answers."}})
    result = await session.coordinator.get_capability("session.spawn")(
        agent_name="below",
        instruction="go",
        parent_session=session,
        agent_configs=session.config["agents"],
        sub_session_id="below-1",
        tool_inheritance={"exclude_tools": ["tool-delegate"]},
        hook_inheritance={},
        orchestrator_config={"max_iterations": 3},
        provider_preferences=None,
        self_delegation_depth=0,
        session_metadata={"why": "asked"},
        parent_messages=[{"role": "user", "content": "before"}, {"role": "assistant", "content": "yes"}],
        use_subprocess=False,
    )
    assert result["output"].startswith("user:before|assistant:yes|user:go [")
    assert {name: result[name] for name in ("session_id", "status", "turn_count")} == {
        "session_id": "below-1",
        "status": "completed",
        "turn_count": 1,
    }
    assert result["metadata"]["agent"] == "below"


# S13, S14, S15


async def test_in_the_background_the_same_rules_hold(
    parent: Parent, make_bundle: MakeBundle, store: DurableStore, words: Any
) -> None:
    slow = make_bundle(providers=words.slow)
    handle = await spawn_bundle(slow, "hello", parent, background=True, timeout=0.01, session_storage=store)
    assert (await store.get(handle.session_id)).parent_id == "parent-1"
    with pytest.raises(SpawnTimeout):
        await handle.wait()
    assert handle.status == "failed"
    stopped = await spawn_bundle(slow, "hello", parent, background=True, session_storage=store)
    await parent.coordinator.request_cancel(immediate=True)
    assert (await stopped.wait()).status == "cancelled"
    assert (await store.get(stopped.session_id)).status == "cancelled"


async def test_a_parent_that_has_ended_spawns_nothing_in_the_background(
    parent: Parent, echo: PreparedBundle, store: DurableStore
) -> None:
    await parent.cleanup()
    with pytest.raises(SessionConflict, match="session 'parent-1' has ended: it spawns nothing in the background"):
        await spawn_bundle(echo, "hello", parent, background=True, session_storage=store)
    assert await store.sessions() == []


async def test_a_parent_that_does_not_say_whether_it_has_ended_spawns_in_the_background(
    parent: Parent, echo: PreparedBundle
) -> None:
    del parent.ended_at
    assert (await (await spawn_bundle(echo, "hello", parent, background=True)).wait()).output == "user:hello"


@pytest.mark.parametrize("immediate", [False, True])
async def test_one_that_is_cancelled_in_the_background_is_told_and_stored(
    immediate: bool, parent: Parent, make_bundle: MakeBundle, store: DurableStore, router: EventRouter, words: Any
) -> None:
    polite = make_bundle(session={"orchestrator": words.entry("loop-own", endless="polite")})
    handle = await spawn_bundle(
        polite, "hello", parent, background=True, session_storage=store, event_router=router, session_id="asked"
    )
    await handle.cancel(immediate=immediate)
    assert handle.status == "cancelled"
    assert (await store.get("asked")).status == "cancelled"
    [told] = await store.events()
    assert (told.name, told.data["status"]) == ("session:error", "cancelled")


async def test_how_it_ended_is_told_once(
    parent: Parent, echo: PreparedBundle, make_bundle: MakeBundle, words: Any
) -> None:
    router = EventRouter()
    news = router.subscribe(["session:*"])
    result = await spawn_bundle(echo, "hello", parent, event_router=router)
    event = await anext(news)
    assert (event.name, event.source_session_id) == ("session:completed", result.session_id)
    assert (event.data["output"], event.data["success"], news.lag) == ("user:hello", True, 0)
    assert event.data["duration"] == result.duration
    with pytest.raises(OSError, match="broken"):
        await spawn_bundle(make_bundle(providers=[words.entry("provider-faulty")]), "x", parent, event_router=router)
    event = await anext(news)
    assert (event.name, event.data["error_type"], news.lag) == ("session:error", "OSError", 0)


# S16, S17


async def test_the_import_path_is_as_it_was(
    parent: Parent, make_bundle: MakeBundle, watched: Any, words: Any, tmp_path: Path
) -> None:
    package = tmp_path / "lib" / "amplifier_module_tool_probe"
    package.mkdir(parents=True)
    (tmp_path / "tool-probe.py").rename(package / "__init__.py")
    path, meanwhile = list(sys.path), []
    watched.at["provider:request"] = lambda: meanwhile.append(list(sys.path))
    tools = [{"module": "tool-probe", "source": "./lib"}]
    await spawn_bundle(make_bundle(providers=words.calls("probe"), tools=tools), "hello", parent)
    assert meanwhile[0] == [*path, str(tmp_path / "lib")]  # at its end: it hides nothing
    assert sys.path == path


async def test_a_parent_with_a_loader_of_another_make_will_do(parent: Parent, echo: PreparedBundle) -> None:
    parent.loader = object()  # type: ignore[assignment]  # of another make
    assert (await spawn_bundle(echo, "hello", parent)).output == "user:hello"


# S18, S19


async def test_nothing_of_the_parents_config_is_changed(lead: Any, words: Any) -> None:
    providers = [words.entry("provider-echo"), *words.playbook()]
    session = await lead(providers=providers, agents={"below": {"tools": [{"module": "tool-filesystem"}]}})
    before = json.dumps(session.config)
    spawn = session.coordinator.get_capability("session.spawn")
    wanted = [{"provider": "playbook", "model": "small"}]
    assert (await spawn("below", "hello", provider_preferences=wanted))["output"] == "You said: hello"
    assert json.dumps(session.config) == before


async def test_instances_of_one_module_are_inherited_as_they_are(
    make_bundle: MakeBundle, echo: PreparedBundle, words: Any
) -> None:
    entries = [words.entry("provider-echo", default_model=name) | {"instance_id": name} for name in ("first", "second")]
    tools = [words.entry("tool-probe", mark="parent", name="shown")]
    async with await make_bundle("parent", providers=entries, tools=tools).create_session() as parent:
        child = make_bundle(
            session={"orchestrator": {"module": "loop-basic", "config": {"default_provider": "second"}}},
            tools=[{"module": "tool-probe", "config": {"mark": "child"}}],
        )
        result = await spawn_bundle(child, "hello", parent, inherit_tools=True)
        assert result.output == "user:hello [shown]second"
        telling = make_bundle(providers=words.calls("shown"), tools=[{"module": "tool-probe", "config": {"mark": "c"}}])
        assert (await spawn_bundle(telling, "hello", parent, inherit_tools=True)).output.endswith(" c")


# displays and mentions of a child


class Nesting:
    """A display that shows on which level a message is."""

    def __init__(self) -> None:
        self.level = 0
        self.levels: list[int] = []

    def show_message(self, message: str, level: str, source: str = "hook") -> None:
        """Show nothing."""

    def push_nesting(self) -> None:
        self.level += 1
        self.levels.append(self.level)

    def pop_nesting(self) -> None:
        self.level -= 1


async def test_a_display_with_levels_shows_children_below_their_parent(
    parent: Parent, make_bundle: MakeBundle, words: Any
) -> None:
    display = Nesting()
    parent.coordinator.display_system = display
    await spawn_bundle(make_bundle(), "hello", parent)
    with pytest.raises(OSError, match="broken provider"):
        await spawn_bundle(make_bundle(providers=[words.entry("provider-faulty")]), "hello", parent)
    assert (display.levels, display.level) == ([1, 1], 0)


async def test_a_child_has_a_deduplicator_of_its_own(parent: Parent, make_bundle: MakeBundle, watched: Any) -> None:
    await spawn_bundle(make_bundle(), "hello", parent)
    [child] = watched.children
    kept = [each.coordinator.get_capability("mention_deduplicator") for each in (parent, child)]
    assert all(isinstance(each, ContentDeduplicator) for each in kept)
    assert kept[0] is not kept[1]


def test_the_storage_contract_is_imported_from_where_programs_look_for_it() -> None:
    from amplifier_foundation.spawn import SessionStorage as published

    assert published is SessionStorage


# S21


async def test_an_id_that_is_stored_is_refused_unless_it_is_resumed(
    parent: Parent, echo: PreparedBundle, make_bundle: MakeBundle, store: DurableStore, words: Any
) -> None:
    fixed: Any = {"session_id": "fixed-1", "session_storage": store}
    await spawn_bundle(echo, "hello", parent, **fixed)
    with pytest.raises(SessionExists, match="fixed-1"):
        await spawn_bundle(echo, "again", parent, **fixed)
    assert len(await store.read("fixed-1")) == 2


@pytest.mark.parametrize("resume", [False, True])
async def test_the_id_of_the_parent_is_refused(
    resume: bool, parent: Parent, echo: PreparedBundle, store: DurableStore
) -> None:
    for storage in (None, store):
        with pytest.raises(SessionExists, match="'parent-1' exists already"):
            await spawn_bundle(echo, "go", parent, session_id=parent.session_id, session_storage=storage, resume=resume)
    assert await store.sessions() == []


async def test_what_is_not_stored_cannot_be_resumed(parent: Parent, echo: PreparedBundle, store: DurableStore) -> None:
    with pytest.raises(SessionNotFound, match="no session 'typo'"):
        await spawn_bundle(echo, "hello", parent, session_id="typo", session_storage=store, resume=True)
    with pytest.raises(ValueError, match="resume: give the session_id"):
        await spawn_bundle(echo, "hello", parent, session_storage=store, resume=True)
    with pytest.raises(ValueError, match="resume: give the session_storage"):
        await spawn_bundle(echo, "hello", parent, session_id="typo", resume=True)
    assert await store.sessions() == []
    assert Family.of(parent).tree.spawned == 0


async def test_a_finished_session_that_is_resumed_takes_the_instruction_as_its_next_turn(
    parent: Parent, echo: PreparedBundle, store: DurableStore
) -> None:
    fixed: Any = {"session_id": "fixed-1", "session_storage": store}
    await spawn_bundle(echo, "first", parent, **fixed)
    second = await spawn_bundle(echo, "second", parent, resume=True, **fixed)
    assert (second.output, second.turn_count) == ("user:first|assistant:user:first|user:second", 2)
    again = await spawn_bundle(echo, "second", parent, resume=True, background=True, **fixed)
    assert (await again.wait()).turn_count == 3
    assert (await spawn_bundle(echo, "", parent, resume=True, **fixed)).turn_count == 3
    assert [message["content"] for message in await store.read("fixed-1")][::2] == ["first", "second", "second"]


@pytest.mark.parametrize(("instruction", "output"), [("read note.txt", "the note"), ("", "the note"), ("no", "no")])
async def test_a_turn_that_was_cut_goes_on_and_its_open_call_is_recorded_as_interrupted(
    instruction: str,
    output: str,
    parent: Parent,
    make_bundle: MakeBundle,
    store: DurableStore,
    words: Any,
    tmp_path: Path,
) -> None:
    (tmp_path / "note.txt").write_text("the note")
    child = make_bundle(providers=words.playbook(READS, TELLS, say="{prompt}"), tools=FILES)
    await spawn_bundle(child, "read note.txt", parent, session_id="whole", session_storage=store)
    messages = await store.read("whole")
    await store.create(replace(await store.get("whole"), session_id="cut", message_count=0, turn_count=0))
    await store.append("cut", messages[:2], at=0)
    assert open_calls(await store.read("cut"))
    cut: Any = {"session_id": "cut", "session_storage": store, "resume": True}
    result = await spawn_bundle(child, instruction, parent, **cut)
    resumed = await store.read("cut")
    assert (result.output, open_calls(resumed)) == (output, [])
    roles = ["user", "assistant", "tool", *(["user"] if output == "no" else ["assistant", "tool"]), "assistant"]
    assert [message["role"] for message in resumed] == roles
    assert '"interrupted": true' in resumed[2]["content"]


# S22, S23, S24, S25


async def test_what_it_took_is_told_stored_and_added_to_the_parents(
    parent: Parent, echo: PreparedBundle, store: DurableStore
) -> None:
    result = await spawn_bundle(echo, "hello", parent, session_storage=store)
    assert (result.turn_count, result.status, result.cost) == (1, "completed", 0.01)
    assert (result.usage["input_tokens"], result.usage["requests"]) == (3, 1)
    assert result.duration > 0
    assert (await store.get(result.session_id)).metadata["usage"]["cost_usd"] == "0.01"
    await spawn_bundle(echo, "hello", parent)
    assert children_usage(parent.coordinator).cost_usd == Decimal("0.02")


async def test_turns_are_counted_also_where_the_context_keeps_its_messages(
    parent: Parent, make_bundle: MakeBundle, store: DurableStore, words: Any
) -> None:
    child = make_bundle(session={"context": words.entry("context-own")})
    result = await spawn_bundle(child, "hello", parent, session_storage=store)
    assert (result.turn_count, len(await store.read(result.session_id))) == (1, 2)


async def test_the_record_says_what_is_needed_to_resume(parent: Parent, store: DurableStore, tmp_path: Path) -> None:
    path = tmp_path / "helper.md"
    path.write_text("---\nbundle: {name: helper}\n---\nBe kind.\n")
    result = await spawn_bundle(str(path), "hello", parent, session_storage=store)
    record = await store.get(result.session_id)
    assert (record.bundle, record.bundle_source, record.project) == ("helper", str(path), str(tmp_path))
    assert record.bundle_digest
    assert record.updated >= record.created
    assert record.config["providers"] == parent.config["providers"]
    assert record.metadata["duration"] >= 0


async def test_what_was_said_is_durable_before_the_next_step(
    parent: Parent, make_bundle: MakeBundle, store: DurableStore, watched: Any, words: Any, tmp_path: Path
) -> None:
    (tmp_path / "note.txt").write_text("the note")
    seen: list[list[str]] = []

    def look() -> None:
        seen.append([message["role"] for message in store.read_sync("careful")])

    watched.at |= {"provider:request": look, "tool:pre": look}
    child = make_bundle(providers=words.playbook(READS, TELLS), tools=FILES)
    await spawn_bundle(child, "read note.txt", parent, session_id="careful", session_storage=store)
    assert seen == [["user"], ["user", "assistant"], ["user", "assistant", "tool"]]


@pytest.mark.parametrize("session_id", ["../up", "a/b", " ", "x" * 129])
async def test_an_id_that_is_no_name_is_refused_before_anything_is_made(
    session_id: str, parent: Parent, echo: PreparedBundle, store: DurableStore
) -> None:
    with pytest.raises(InvalidSessionId):
        await spawn_bundle(echo, "hello", parent, session_id=session_id, session_storage=store)
    assert await store.sessions() == []


@pytest.mark.parametrize("prepared", [True, False])
@pytest.mark.parametrize("seconds", ["5", True])
async def test_a_time_limit_that_is_no_number_is_refused_before_anything_is_made(
    seconds: Any, prepared: bool, parent: Parent, echo: PreparedBundle, store: DurableStore
) -> None:
    bundle = echo if prepared else echo.bundle
    with pytest.raises(TypeError, match=f"timeout: must be a number of seconds, not {seconds!r}"):
        await spawn_bundle(bundle, "hello", parent, session_storage=store, timeout=seconds)
    assert await store.sessions() == []


@pytest.mark.parametrize("option", ["inherit_tools", "inherit_hooks"])
async def test_a_name_is_no_list_of_modules_to_inherit(option: str, parent: Parent, echo: PreparedBundle) -> None:
    options: Any = {option: "tool-bash-x"}
    with pytest.raises(TypeError, match=rf"{option}: must be True, False or a list of modules, .*\['tool-bash-x'\]"):
        await spawn_bundle(echo, "hello", parent, **options)


def test_a_program_may_choose_the_background_as_it_runs() -> None:
    choices = [signature(each).parameters["background"].annotation for each in get_overloads(spawn_bundle)]
    assert choices == ["Literal[False]", "Literal[True]", "bool"]


async def test_an_instruction_that_is_no_text_is_refused_before_anything_is_made(
    parent: Parent, echo: PreparedBundle, store: DurableStore
) -> None:
    for background in (False, True):
        spawning: Any = spawn_bundle
        with pytest.raises(TypeError, match="instruction: must be text, not NoneType"):
            await spawning(echo, None, parent, session_storage=store, background=background)
    assert await store.sessions() == []


# S26


async def test_mentioned_files_are_the_childs_own_and_told_though_the_parent_was_told_them(
    words: Any, tmp_path: Path
) -> None:
    for name in ("outer", "inner"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "notes.md").write_text(f"Notes of {name}.")
        front = f"bundle: {{name: {name}}}\nproviders: [{json.dumps(words.entry('provider-echo'))}]\n"
        (tmp_path / name / "provider-echo.py").write_text((tmp_path / "provider-echo.py").read_text())
        (tmp_path / name / "bundle.md").write_text(f"---\n{front}---\nSee @{name}:notes.md")
    outer = await (await load_bundle(str(tmp_path / "outer"))).prepare()
    async with await outer.create_session(session_cwd=tmp_path) as session:
        assert "Notes of outer." in await session.execute("hello")
        assert "Notes of outer." in (await spawn_bundle(outer, "hello", session)).output
        inner = await spawn_bundle(str(tmp_path / "inner"), "hello", session)
        assert "Notes of inner." in inner.output
        assert "Notes of outer." not in inner.output


# S27


class Person:
    """Somebody who answers one question at a time, and would notice a second."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.at_once = self.most = 0

    async def request_approval(self, prompt: str, *question: object) -> str:
        self.asked.append(prompt)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        for _ in range(5):
            await asyncio.sleep(0)
        self.at_once -= 1
        return "allow"


@pytest.fixture
def asking(make_bundle: MakeBundle, words: Any) -> PreparedBundle:
    """A bundle that asks before it runs its tool."""
    tools, hooks = [words.entry("tool-probe", mark="ran")], [words.entry("hooks-asking")]
    return make_bundle(providers=words.calls("probe"), tools=tools, hooks=hooks)


async def test_siblings_put_one_question_at_a_time_and_by_their_names(parent: Parent, asking: PreparedBundle) -> None:
    person = parent.coordinator.approval_system = Person()
    results = await asyncio.gather(
        *(spawn_bundle(asking, "hello", parent, session_name=name) for name in ("ada", "ben", "cleo"))
    )
    assert all(result.output.endswith("ran") for result in results)
    assert sorted(person.asked) == ["ada: Run probe?", "ben: Run probe?", "cleo: Run probe?"]
    assert person.most == 1


async def test_what_would_have_to_be_approved_in_the_background_is_denied(
    parent: Parent, asking: PreparedBundle
) -> None:
    person = parent.coordinator.approval_system = Person()
    result = await (await spawn_bundle(asking, "hello", parent, background=True)).wait()
    assert "Denied by hook" in result.output
    assert person.asked == []


# S29, S30, S32


async def test_a_bundle_that_cannot_be_loaded_is_told(parent: Parent, tmp_path: Path) -> None:
    router = EventRouter()
    news = router.subscribe(["session:error"])
    (tmp_path / "wrong.md").write_text("---\nbundle: {nam: x}\n---\n")
    for path in ("nowhere.md", str(tmp_path / "wrong.md")):
        with pytest.raises(BundleError):
            await spawn_bundle(path, "hello", parent, session_id="never", event_router=router)
        event = await anext(news)
        assert (event.source_session_id, event.data["parent_id"], news.lag) == ("never", "parent-1", 0)
        assert event.data["bundle_name"] == path
    with pytest.raises(BundleError, match="not loaded within 0"):
        await spawn_bundle(str(tmp_path / "wrong.md"), "hello", parent, timeout=0)


async def test_plugins_see_a_childs_life_and_may_refuse_it(
    parent: Parent, echo: PreparedBundle, plugins: Plugins, store: DurableStore
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
        await spawn_bundle(echo, "loud", parent, session_storage=store, plugins=plugins)
    assert await store.sessions() == []
    result = await spawn_bundle(echo, "soft", parent, plugins=plugins)
    assert [type(each).__name__ for each in seen] == ["SpawnRequest", "SpawnRequest", "SpawnOutcome"]
    assert isinstance(seen[1], SpawnRequest)
    assert (seen[1].depth, seen[1].session_id) == (1, result.session_id)


async def test_inherited_hooks_hear_their_own_session_alone(
    make_bundle: MakeBundle, words: Any, echo: PreparedBundle
) -> None:
    hooks = [words.entry("hooks-asking")]
    async with await make_bundle("parent", providers=words.playbook(), hooks=hooks).create_session() as parent:
        before = parent.coordinator.hooks.list_handlers()
        for _ in range(2):
            await spawn_bundle(echo, "hello", parent, inherit_hooks=True)
        assert parent.coordinator.hooks.list_handlers() == before


async def test_a_child_is_gone_from_memory_with_its_end(parent: AmplifierSession, echo: PreparedBundle) -> None:
    gone: list[ReferenceType[AmplifierSession]] = []
    Family.of(parent).tree.observers = [lambda session: gone.append(ref(session))]
    gc.disable()
    try:
        await spawn_bundle(echo, "hello", parent)
        assert [each() for each in gone] == [None], "no search for rings was needed"
    finally:
        gc.enable()
