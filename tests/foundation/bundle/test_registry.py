"""Bundles by name: registered ones, and those that packages bring."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import load_plugins
from amplifier_core.errors import (
    BundleDependencyError,
    BundleLoadError,
    BundleNotFoundError,
    BundleValidationError,
    SessionConflict,
)
from amplifier_foundation import BundleRegistry, BundleState, UpdateInfo
from amplifier_foundation.bundle import Bundle, check_bundle, load_bundle_sync

from ..sources.conftest import Repository


@pytest.fixture
def registry(folder: Path, home: Path) -> BundleRegistry:
    return BundleRegistry(home)


def test_what_is_registered_is_there_for_the_next_who_asks(registry: BundleRegistry, folder: Path, home: Path) -> None:
    registry.register({"near": "./near/bundle.md", "far": "git+https://host/far@main", "path": folder / "x.md"})
    assert BundleRegistry(home).list_registered() == []
    registry.save()
    again = BundleRegistry(home)
    assert again.list_registered() == ["far", "near", "path"]
    assert again.names() == {
        "near": str(folder / "near" / "bundle.md"),
        "far": "git+https://host/far@main",
        "path": str(folder / "x.md"),
    }
    assert again.find("near") == str(folder / "near" / "bundle.md")
    assert again.get_state("far") == BundleState("git+https://host/far@main", "far", explicitly_requested=True)
    assert (home / "registry.json").stat().st_mode & 0o777 == 0o600
    assert again.unregister("near")
    assert not again.unregister("near")
    assert (again.find("near"), again.get_state("near")) == (None, None)


@pytest.mark.parametrize("name", ["", "a:b", "a/b", "a\\b", " a", "a\n", "x" * 129])
def test_what_cannot_be_a_name_is_refused(registry: BundleRegistry, name: str) -> None:
    with pytest.raises(ValueError, match="cannot be a bundle's name"):
        registry.register({name: "./bundle.md"})
    assert registry.list_registered() == []


async def test_what_was_loaded_is_noted_under_its_name(registry: BundleRegistry, write: Any, home: Path) -> None:
    write("includes: [./base.md]\n", bundle="one, version: '2.0'")
    write(name="base.md", bundle="base")
    registry.register({"mine": "bundle.md"})
    bundle = await registry.load("mine")
    assert isinstance(bundle, Bundle)
    assert bundle.name == "one"
    registry.save()
    state = BundleRegistry(home).get_state("mine")
    assert isinstance(state, BundleState)
    assert (state.version, state.includes, state.local_path) == (
        "2.0",
        ["./base.md"],
        str(Path("bundle.md").absolute()),
    )
    assert state.loaded_at.endswith("Z")


async def test_a_bundle_that_is_loaded_by_its_place_is_registered_unless_its_name_is_taken(
    registry: BundleRegistry, write: Any
) -> None:
    write(bundle="one")
    write(name="other.md", bundle="one")
    await registry.load("bundle.md", auto_register=False)
    assert registry.list_registered() == []
    await registry.load("bundle.md")
    await registry.load("other.md")
    assert registry.names() == {"one": str(Path("bundle.md").absolute())}
    loaded = await registry.load()
    assert isinstance(loaded, dict)
    assert {name: bundle.name for name, bundle in loaded.items()} == {"one": "one"}


async def test_names_of_the_registry_may_be_included(registry: BundleRegistry, write: Any) -> None:
    write(name="far/bundle.md", bundle="far")
    write("hooks: [{module: hooks-inner}]\n", name="far/inner.md", bundle="inner")
    write("includes: [far, {bundle: far:inner}]\n", name="main.md", bundle="main")
    with pytest.raises(BundleDependencyError, match="no bundle is registered as 'far'"):
        await registry.load("main.md")
    registry.register({"far": "./far"})
    bundle = await registry.load("main.md")
    assert isinstance(bundle, Bundle)
    assert [hook["module"] for hook in bundle.hooks] == ["hooks-inner"]


def test_a_folder_of_a_registered_name_counts_where_the_bundle_lies_and_not_where_one_stands(
    write: Any, folder: Path
) -> None:
    write("hooks: [{module: hooks-far}]\n", name="elsewhere/bundle.md", bundle="far")
    write("includes: [far]\n", name="main/bundle.md", bundle="main")
    (folder / "far").mkdir()
    bundle = load_bundle_sync("main/bundle.md", registry={"far": folder / "elsewhere"})
    assert [hook["module"] for hook in bundle.hooks] == ["hooks-far"]


def test_a_registry_that_cannot_be_read_is_told_and_strange_entries_do_no_harm(home: Path) -> None:
    home.mkdir()
    (home / "registry.json").write_text("{")
    with pytest.raises(BundleLoadError, match=r"registry\.json: cannot be read .* Repair it, or remove it"):
        BundleRegistry(home)
    entries = {"a": {"uri": "./a.md", "later": True}, "b": 5}
    (home / "registry.json").write_text(json.dumps({"bundles": entries, "version": 3}))
    assert BundleRegistry(home).names() == {"a": "./a.md"}
    (home / "registry.json").write_text("[]")
    assert BundleRegistry(home).names() == {}


def test_a_source_that_moved_is_fetched_when_asked_and_told_with_both_commits(
    registry: BundleRegistry, write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    repository = Repository(tmp_path / "repository")
    first = repository.commit({"bundle.md": "---\nbundle: {name: far, version: '1'}\n---\n"})
    registry.register({"far": repository.uri, "near": "./near.md"})
    assert load_bundle_sync("far", registry=registry.names()).version == "1"
    assert (registry.refresh("far"), registry.refresh("near")) == (None, None)
    second = repository.commit({"bundle.md": "---\nbundle: {name: far, version: '2'}\n---\n"})
    assert registry.refresh("far") == UpdateInfo("far", repository.uri, first, second)
    assert load_bundle_sync("far", registry=registry.names()).version == "2"
    with pytest.raises(BundleNotFoundError, match="registered as 'fur'; did you mean 'far'"):
        registry.refresh("fur")


# bundles that packages bring

PLUGIN = """\
from pathlib import Path
from amplifier_core import hookimpl

@hookimpl
def amplifier_register_bundle(register):
    register("packed", Path(__file__).parent / "bundles")
"""


@pytest.fixture
def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of bundles in an installed package."""
    package, about = tmp_path / "site" / "amplifier_packed", tmp_path / "site" / "amplifier_packed-1.dist-info"
    for name, text in {
        "bundle.md": "---\nbundle: {name: packed}\n---\nBe kind.\n",
        "behaviors/files.yaml": "bundle: {name: files}\ntools: [{module: tool-filesystem}]\n",
        "agents/reviewer.md": "---\nmeta: {name: reviewer, description: Reviews}\n---\nReview.\n",
        "context/rules.md": "Rules.\n",
    }.items():
        (package / "bundles" / name).parent.mkdir(parents=True, exist_ok=True)
        (package / "bundles" / name).write_text(text)
    (package / "__init__.py").write_text(PLUGIN)
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: amplifier-packed\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[amplifier]\npacked = amplifier_packed\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.delitem(sys.modules, package.name, raising=False)
    return package / "bundles"


async def test_a_bundle_of_a_package_is_included_with_its_behaviors_agents_and_context(
    packed: Path, write: Any, home: Path
) -> None:
    plugins = load_plugins(environ={"AMPLIFIER_LOAD_PLUGINS": "packed"})
    registry = BundleRegistry(plugins=plugins)
    assert registry.names_of_packages() == {"packed": str(packed)}
    path = write(
        "providers: [{module: provider-playbook}]\nincludes: [packed, packed:behaviors/files]\n"
        "agents: {include: [packed:reviewer]}\n"
        "context: {include: [packed:context/rules.md]}\n"
    )
    bundle = load_bundle_sync(path, registry=registry.names(), strict=True)
    assert (bundle.name, bundle.instruction) == ("demo", "Be kind.")
    assert [tool["module"] for tool in bundle.tools] == ["tool-filesystem"]
    assert bundle.agents["packed:reviewer"]["instruction"] == "Review."
    assert list(bundle.context.values()) == [packed / "context" / "rules.md"]
    assert await check_bundle(path, plugins, registry=registry.names()) == []


def test_a_name_that_the_user_registers_wins_over_a_packages(packed: Path, folder: Path, home: Path) -> None:
    plugins = load_plugins(environ={"AMPLIFIER_LOAD_PLUGINS": "packed"})
    registry = BundleRegistry(plugins=plugins)
    registry.register({"packed": "./own.md"})
    assert registry.find("packed") == str(folder / "own.md")
    assert registry.unregister("packed")
    assert registry.find("packed") == str(packed)


async def test_a_strict_registry_takes_warnings_for_errors(write: Any, home: Path) -> None:
    path = write("recipes: 1\n")
    await BundleRegistry(home).load(str(path), auto_register=False)
    with pytest.raises(BundleValidationError, match=r"error\[AMP106\] recipes"):
        await BundleRegistry(home, strict=True).load(str(path), auto_register=False)


async def test_a_program_says_where_included_bundles_are(write: Any, home: Path) -> None:
    write("tools: [{module: tool-a}]\n", name="a.md", bundle="a")
    write("tools: [{module: tool-b}]\n", name="b.md", bundle="b")
    path = write("includes: ['git+https://host/a', ./b.md]\n")
    registry = BundleRegistry(home, include_source_resolver={"git+https://host/a": "./a.md"}.get)
    loaded: Any = await registry.load(str(path))
    assert [tool["module"] for tool in loaded.tools] == ["tool-a", "tool-b"]
    assert loaded.includes == ["git+https://host/a", "./b.md"]


async def test_what_was_registered_on_request_is_told_from_what_loading_registered(write: Any, home: Path) -> None:
    registry = BundleRegistry(home)
    registry.register({"asked": write(name="asked.md", bundle="asked")})
    await registry.load("asked")
    await registry.load(str(write(name="other.md", bundle="other")))
    states: Any = registry.get_state()
    assert {name: state.explicitly_requested for name, state in states.items()} == {"asked": True, "other": False}
    registry.save()
    again: Any = BundleRegistry(home).get_state()
    assert again == states


# several at once


def test_processes_that_register_and_forget_at_once_lose_nothing(folder: Path, home: Path) -> None:
    code = (
        "import sys; from amplifier_foundation import BundleRegistry\n"
        "for n in range(5):\n"
        "    registry = BundleRegistry(); registry.register({f'{sys.argv[1]}{n}': '/x'}); registry.save()\n"
        "registry = BundleRegistry(); registry.unregister(f'{sys.argv[1]}0'); registry.save()"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, name], stderr=subprocess.PIPE) for name in "abcd"]
    assert [writer.communicate()[1] for writer in writers] == [b""] * 4
    assert BundleRegistry(home).list_registered() == [f"{name}{n}" for name in "abcd" for n in range(1, 5)]


async def test_what_others_did_with_a_name_meanwhile_stands(folder: Path, home: Path, write: Any) -> None:
    write(bundle="one, version: '2.0'")
    first = BundleRegistry(home)
    first.register({"kept": "bundle.md", "gone": "bundle.md", "moved": "bundle.md"})
    first.save()
    slow, quick, late = BundleRegistry(home), BundleRegistry(home), BundleRegistry(home)
    for name in ("kept", "gone", "moved"):
        await slow.load(name)  # as `bundle update` does
    quick.unregister("gone")
    quick.register({"moved": "/elsewhere", "new": "/theirs"})
    quick.save()
    slow.save()
    states: Any = BundleRegistry(home).get_state()
    assert {name: (state.uri, state.version) for name, state in states.items()} == {
        "kept": (str(folder / "bundle.md"), "2.0"),
        "moved": ("/elsewhere", ""),
        "new": ("/theirs", ""),
    }
    late.register({"new": "/ours"})
    with pytest.raises(SessionConflict, match="'new' stands for /theirs by now. First: amplifier bundle remove new"):
        late.save()
