"""The fork specification, sentence by sentence, and the tests that hold each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from amplifier_core.loader import ModuleLoader
from amplifier_core.session import AmplifierSession

HERE = Path(__file__).parent

SENTENCES: dict[str, tuple[str, ...]] = {
    # the constructor
    "a config is required": ("test_a_config_that_is_missing_or_mistyped_is_refused_with_the_published_texts",),
    "a loader may be given, and forks have their parent's": (
        "test_a_child_takes_over_config_loader_and_what_the_user_is_asked_through",
    ),
    "a session without an id gets a UUID of its own": ("test_an_id_that_is_not_given_is_a_uuid_nobody_has",),
    "parent_id is None for a top-level session": ("test_a_top_level_session_is_no_fork",),
    "a session with a parent_id is its child": ("test_a_child_knows_its_parent",),
    "session:fork is emitted during initialize": ("test_session_fork_is_emitted_while_the_child_is_initialised",),
    "all events of a child include parent_id": ("test_every_event_of_a_child_says_whose_child_it_is",),
    # what the kernel does
    "parent_id is accepted and tracked": ("test_a_child_knows_its_parent",),
    "session:fork is always emitted when parent_id is set, once": (
        "test_session_fork_is_emitted_while_the_child_is_initialised",
        "test_a_top_level_session_is_no_fork",
    ),
    "session.fork() makes a child": (
        "test_a_fork_has_its_parent_s_history_and_shares_every_message",
        "test_ids_are_unique_and_show_the_hierarchy",
    ),
    # ids
    "names show the hierarchy, also of nested forks": ("test_ids_are_unique_and_show_the_hierarchy",),
    "any scheme of ids may be used": ("test_the_kernel_takes_any_id",),
    # the event
    "session:fork has the child's id, the parent's id, the parent in its data, and a time": (
        "test_session_fork_is_emitted_while_the_child_is_initialised",
    ),
    "events can be filtered by parent, and a tree of delegations traced": (
        "test_the_tree_can_be_drawn_from_the_events_alone",
    ),
    # life
    "a child is initialised like any session": ("test_the_four_steps_of_a_child_run_on_installed_modules",),
    "a child is used and cleaned up like any session": ("test_the_four_steps_of_a_child_run_on_installed_modules",),
    "clean-up may cascade to the children": ("test_clean_up_may_cascade_and_then_the_youngest_end_first",),
    "clean-up leaves children alone unless asked": ("test_without_cascade_the_children_stay",),
    "children can have children": ("test_child_sessions_can_have_children_to_any_depth",),
    "the kernel sets no limit of depth": ("test_child_sessions_can_have_children_to_any_depth",),
    # what the kernel leaves to others
    "it does not say what a fork is configured as, nor merge configs": (
        "test_a_config_that_is_given_is_the_child_s_as_it_is",
    ),
    "it enforces no rules of inheritance and validates no overlays": (
        "test_the_kernel_reads_nothing_into_agents_and_spawn",
        "test_an_empty_config_is_not_taken_for_none",
    ),
    "it does not make children that nobody asked for, nor look a parent up": (
        "test_a_session_made_by_its_constructor_is_linked_by_its_parent_s_id_alone",
        "test_a_parent_need_not_exist",
    ),
    "it keeps no registry of agents and gives their descriptions no meaning": (
        "test_the_kernel_reads_nothing_into_agents_and_spawn",
    ),
    "it does not decide how long a fork lives": ("test_the_end_of_the_parent_does_not_touch_its_forks",),
    # what is promised
    "lineage: all events of a child include parent_id": ("test_every_event_of_a_child_says_whose_child_it_is",),
    "generated ids are unique": (
        "test_an_id_that_is_not_given_is_a_uuid_nobody_has",
        "test_a_made_up_id_is_none_that_was_given_before",
    ),
    "parent and child are independent after the fork": (
        "test_parent_and_child_are_independent_after_the_fork",
        "test_the_end_of_the_parent_does_not_touch_its_forks",
    ),
    "forking is deterministic given the same ids": ("test_forking_is_deterministic_given_the_same_ids",),
}


@pytest.mark.parametrize("sentence", SENTENCES)
def test_every_sentence_has_a_test(sentence: str) -> None:
    written = {
        name
        for path in HERE.glob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), flags=re.M)
    }
    assert set(SENTENCES[sentence]) <= written


def test_an_id_that_is_not_given_is_a_uuid_nobody_has(plan: Any) -> None:
    ids = {AmplifierSession(plan).session_id for _ in range(100)}
    assert len(ids) == 100
    assert all(str(UUID(each)) == each for each in ids)


@pytest.mark.parametrize("session_id", ["abc-123", "über/alles", "a b", "0", "x" * 5000])
async def test_the_kernel_takes_any_id(session_id: str, plan: Any, modules: Any) -> None:
    async with AmplifierSession(plan, loader=modules, session_id=session_id) as session:
        child = await session.fork()
        assert (child.session_id, child.parent_id) == (f"{session_id}-fork-1", session_id)


async def test_a_parent_need_not_exist(plan: Any, modules: Any) -> None:
    async with AmplifierSession(plan, loader=modules, parent_id="nobody") as session:
        assert await session.execute("hi") == "hi!"


async def test_the_tree_can_be_drawn_from_the_events_alone(parent: AmplifierSession, modules: Any) -> None:
    first, second = await parent.fork(), await parent.fork()
    nested = await second.fork()
    for session in (first, second, nested):
        await session.execute("hi")
    told = {data["session_id"]: data["parent_id"] for _, data in modules.seen}
    assert told == {"p-fork-1": "p", "p-fork-2": "p", "p-fork-2-fork-1": "p-fork-2"}
    of_second = [event for event, data in modules.seen if data["parent_id"] == "p-fork-2"]
    assert of_second == ["session:fork", "session:start", "prompt:submit"]


async def test_the_four_steps_of_a_child_run_on_installed_modules() -> None:
    plan = {
        "session": {"orchestrator": "loop-basic", "context": "context-simple"},
        "providers": [{"module": "provider-playbook", "config": {"otherwise": {"say": "You said: {prompt}"}}}],
    }
    overlay = {**plan, "providers": [{"module": "provider-playbook", "config": {"otherwise": {"say": "Specialised."}}}]}
    parent = AmplifierSession(config=plan, loader=ModuleLoader(), session_id="parent-123")
    await parent.initialize()
    child = AmplifierSession(
        config=overlay, loader=parent.loader, session_id="parent-123-child", parent_id="parent-123"
    )
    await child.initialize()
    assert await child.execute("Child's task") == "Specialised."
    assert await parent.execute("Parent's task") == "You said: Parent's task"
    await child.cleanup()
    await parent.cleanup(cascade_children=True)
