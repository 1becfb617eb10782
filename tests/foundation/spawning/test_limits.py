"""How many sessions may make each other, and for how long: refusals that name the limit and the key that changes it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import AmplifierSession, SpawnRefused
from amplifier_core.plugins import Plugins
from amplifier_core.storage import DurableStore
from amplifier_foundation import PreparedBundle, spawn_bundle
from amplifier_foundation.bundle import BundleProblemsError, load_bundle_sync
from amplifier_foundation.spawning.family import Family
from amplifier_foundation.spawning.limits import time_limit

MakeBundle = Callable[..., PreparedBundle]
Parent = AmplifierSession
MakeParent = Callable[..., Awaitable[Parent]]


@pytest.fixture
async def make_parent(make_bundle: MakeBundle, plugins: Plugins, words: Any) -> AsyncIterator[MakeParent]:
    """Makes a session that knows the installed plugins, with a section `spawn`."""
    made: list[Parent] = []

    async def make(**limits: Any) -> Parent:
        prepared = make_bundle("parent", providers=words.playbook(), spawn=limits)
        made.append(await prepared.create_session(session_id="parent-1", plugins=plugins))
        return made[-1]

    yield make
    for session in made:
        await session.cleanup()


@pytest.mark.parametrize(("limits", "most"), [({}, 5), ({"max_depth": 2}, 2), ({"max_depth": 0}, 0)])
async def test_sessions_make_each_other_to_a_depth(
    limits: dict[str, int], most: int, make_parent: MakeParent, make_bundle: MakeBundle
) -> None:
    parent = await make_parent(**limits)
    parent.coordinator.register_capability("session.depth", most - 1)
    if most:
        await spawn_bundle(make_bundle(), "the last one", parent)
    parent.coordinator.register_capability("session.depth", most)
    expected = f"at most {most} sessions below each other. .*'spawn: {{max_depth: {most + 1}}}'"
    with pytest.raises(SpawnRefused, match=expected):
        await spawn_bundle(make_bundle(), "one too many", parent)


@pytest.mark.parametrize(("limits", "most"), [({}, 20), ({"max_children": 2}, 2)])
async def test_a_session_has_so_many_children_at_the_same_time(
    limits: dict[str, int], most: int, make_parent: MakeParent, make_bundle: MakeBundle, words: Any
) -> None:
    parent = await make_parent(**limits)
    slow, quick = make_bundle(providers=words.slow), make_bundle()
    handles = [await spawn_bundle(slow, "wait", parent, background=True) for _ in range(most)]
    expected = f"at most {most} children of one session at the same time. .*'spawn: {{max_children: {most + 1}}}'"
    with pytest.raises(SpawnRefused, match=expected):
        await spawn_bundle(quick, "one too many", parent)
    await handles[0].cancel(immediate=True)
    assert (await spawn_bundle(quick, "there is room again", parent)).status == "completed"


async def test_children_that_are_made_at_once_are_counted_at_once(
    make_parent: MakeParent, make_bundle: MakeBundle, words: Any
) -> None:
    parent, child = await make_parent(max_children=3), make_bundle(providers=words.playbook(delay_ms=1))
    results = await asyncio.gather(*(spawn_bundle(child, "hello", parent) for _ in range(5)), return_exceptions=True)
    assert [isinstance(result, SpawnRefused) for result in results] == [False, False, False, True, True]


@pytest.mark.parametrize(("limits", "most"), [({}, 500), ({"max_sessions": 3}, 3)])
async def test_a_tree_has_so_many_sessions_in_all(
    limits: dict[str, int], most: int, make_parent: MakeParent, make_bundle: MakeBundle
) -> None:
    parent = await make_parent(**limits)
    Family.of(parent).tree.spawned = most - 1
    await spawn_bundle(make_bundle(), "the last one", parent)
    expected = f"at most {most} sessions below one. .*'spawn: {{max_sessions: {most + 1}}}'"
    for _ in range(2):  # one that is refused does not count
        with pytest.raises(SpawnRefused, match=expected):
            await spawn_bundle(make_bundle(), "one too many", parent)


async def test_what_could_not_be_admitted_does_not_count(
    make_parent: MakeParent, make_bundle: MakeBundle, store: DurableStore
) -> None:
    parent = await make_parent()
    fixed: Any = {"session_id": "fixed", "session_storage": store}
    await spawn_bundle(make_bundle(), "hello", parent, **fixed)
    with pytest.raises(ValueError, match="exists already"):
        await spawn_bundle(make_bundle(), "hello", parent, **fixed)
    assert Family.of(parent).tree.spawned == 1


@pytest.mark.parametrize(
    ("section", "seconds"), [({}, 1800.0), ({"timeout": 2}, 2.0), ({"timeout": 0}, None), ({"timeout": "x"}, 1800.0)]
)
def test_a_session_takes_half_an_hour_unless_the_bundle_says_otherwise(
    section: dict[str, Any], seconds: float | None
) -> None:
    assert time_limit(section) == seconds


async def test_other_plugins_bring_other_limits(make_parent: MakeParent, make_bundle: MakeBundle) -> None:
    parent = await make_parent(max_depth=0)
    assert (await spawn_bundle(make_bundle(), "hello", parent, plugins=Plugins())).status == "completed"


async def test_agents_that_ask_themselves_in_a_circle_are_cut_by_their_depth(
    lead: Any, words: Any, store: DurableStore
) -> None:
    asks = words.calls("delegate", agent="circle", instruction="go on")
    agents = {"circle": {"providers": asks, "tools": [{"module": "tool-delegate"}], "agents": "all"}}
    session = await lead(providers=asks, agents=agents, spawn={"max_depth": 3})
    said = await session.execute("begin")
    for _ in range(3):
        said = json.loads(said)["response"]
    assert "'circle' is not spawned: at most 3 sessions below each other" in said
    assert "max_depth: 4" in said
    assert len(await store.sessions()) == 3


# the section in the bundle


def write(folder: Path, section: str) -> Path:
    path = folder / "bundle.md"
    path.write_text(f"---\nbundle: {{name: a}}\nspawn:\n{section}---\n")
    return path


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ("  max_depth: deep\n", "bundle.md:4:14: error[AMP103] spawn.max_depth: must be a whole number, not text"),
        ("  max_children: -1\n", "bundle.md:4:17: error[AMP104] spawn.max_children: must be at least 0"),
        ("  timeout: [1]\n", "bundle.md:4:12: error[AMP103] spawn.timeout: must be a number, not a list"),
        ("  tools: [5]\n", "bundle.md:4:11: error[AMP103] spawn.tools[0]: must be text, not a whole number"),
        ("  exclude_tools: a\n", "bundle.md:4:18: error[AMP103] spawn.exclude_tools: must be a list, not text"),
    ],
)
def test_a_limit_that_cannot_be_is_told_where_it_stands(
    section: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, section)
    with pytest.raises(BundleProblemsError) as caught:
        load_bundle_sync("bundle.md")
    assert [str(each) for each in caught.value.problems] == [problem]


def test_a_key_that_is_not_known_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "  max_dept: 3\n  exclude_tools: [tool-delegate]\n  tools: [tool-a, {module: tool-b}]\n")
    bundle = load_bundle_sync("bundle.md")
    assert [str(each) for each in bundle.problems] == [
        "bundle.md:4:3: warning[AMP102] spawn.max_dept: unknown key; did you mean 'max_depth'? It is ignored"
    ]
    assert bundle.spawn["max_dept"] == 3
