"""`PreparedBundle.spawn`, as published programs call it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import AmplifierSession, SpawnRefused
from amplifier_core.plugins import Plugins
from amplifier_foundation import Bundle

from ..conftest import MakeBundle


def child_of(tmp_path: Path, **sections: Any) -> Bundle:
    return Bundle.from_dict({"bundle": {"name": "child"}, **sections}, tmp_path)


async def test_a_prepared_bundle_spawns_a_child_composed_with_it(
    make_bundle: MakeBundle, parent: AmplifierSession, words: Any, tmp_path: Path
) -> None:
    prepared = make_bundle("lead", tools=[words.entry("tool-probe")], providers=[words.entry("provider-echo")])
    child = child_of(tmp_path)
    child.instruction = "Be kind."
    result = await prepared.spawn(child, "hello", parent_session=parent, session_id="child-1")
    assert (result["output"], result["session_id"]) == ("system:Be kind.|user:hello [probe]", "child-1")
    assert (result["status"], result["turn_count"], result["metadata"]["usage"]["requests"]) == ("completed", 1, 1)
    apart = await prepared.spawn(child, "hello", parent_session=parent, compose=False)
    assert apart["output"] == "You said: hello", "it takes the provider of its parent, and no tools"


async def test_what_it_is_given_besides_reaches_the_child(
    make_bundle: MakeBundle, parent: AmplifierSession, watched: Any, words: Any, tmp_path: Path
) -> None:
    prepared = make_bundle("lead", providers=[words.entry("provider-echo")])
    (tmp_path / "below").mkdir()
    result = await prepared.spawn(
        child_of(tmp_path),
        "now",
        parent_session=parent,
        parent_messages=[{"role": "user", "content": "one"}, {"role": "assistant", "content": "first"}],
        provider_preferences=[{"provider": "echo", "model": "large-1"}],
        orchestrator_config={"max_iterations": 7},
        session_cwd=tmp_path / "below",
        self_delegation_depth=2,
    )
    assert (result["output"], result["turn_count"]) == ("user:one|assistant:first|user:nowlarge-1", 1)
    [session] = watched.children
    find = session.coordinator.get_capability
    assert (find("session.working_dir"), find("self_delegation_depth")) == (str(tmp_path / "below"), 2)
    assert session.config["session"]["orchestrator"]["config"] == {"max_iterations": 7}
    assert session.parent_id == parent.session_id


async def test_without_a_parent_a_session_of_the_bundle_stands_in(
    make_bundle: MakeBundle, words: Any, tmp_path: Path
) -> None:
    prepared = make_bundle("lead", providers=words.playbook(say="mine"))
    assert (await prepared.spawn(child_of(tmp_path), "hello", session_cwd=tmp_path))["output"] == "mine"


async def test_plugins_may_refuse_it_as_any_spawn(
    make_bundle: MakeBundle, plugins: Plugins, words: Any, tmp_path: Path
) -> None:
    prepared = make_bundle("lead", providers=words.playbook(), spawn={"max_sessions": 0})
    async with await prepared.create_session(plugins=plugins) as session:
        with pytest.raises(SpawnRefused, match="at most 0 sessions below one"):
            await prepared.spawn(child_of(tmp_path), "hello", parent_session=session)


def test_a_program_that_imported_bundles_alone_can_spawn() -> None:
    program = (
        "import asyncio, sys\n"
        "from amplifier_foundation.bundle import Bundle, PreparedBundle\n"
        "assert 'amplifier_foundation.spawn' not in sys.modules\n"
        "say = {'module': 'provider-playbook', 'config': {'rules': [], 'otherwise': {'say': 'yes'}}}\n"
        "lead = PreparedBundle.of(Bundle.from_dict({'bundle': {'name': 'lead'}, 'providers': [say]}, None))\n"
        "print(asyncio.run(lead.spawn(Bundle.from_dict({'bundle': {'name': 'child'}}, None), 'go'))['output'])\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.stdout, ran.stderr) == ("yes\n", "")
