"""A provider with `stand_in: true` gives way to every other one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import load_plugins
from amplifier_foundation.bundle import check_bundle, load_bundle_sync
from amplifier_foundation.bundle.stand_ins import replace_stand_ins
from amplifier_foundation.settings import read_settings

if TYPE_CHECKING:
    from pathlib import Path

STAND_IN = "providers: [{module: provider-playbook, stand_in: true, config: {otherwise: {say: standing in}}}]\n"


@pytest.fixture(autouse=True)
def _no_keys(home: Path) -> None:
    """Begin without a provider's key and without an Ollama."""


def names(path: Any) -> list[str]:
    return [entry["module"] for entry in load_bundle_sync(path).providers]


async def test_a_provider_that_stands_in_is_the_bundles_only_one(write: Any) -> None:
    path = write(STAND_IN)
    assert names(path) == ["provider-playbook"]
    assert await check_bundle(path, load_plugins(environ={})) == []


@pytest.mark.parametrize("front", ["includes: [./theirs.md]\nproviders: [{module: provider-replay}]\n"])
def test_a_provider_of_the_including_bundle_takes_its_place(front: str, write: Any) -> None:
    write(STAND_IN, name="theirs.md", bundle="theirs")
    assert names(write(front)) == ["provider-replay"]


def test_a_provider_of_the_included_bundle_takes_its_place(write: Any) -> None:
    write("providers: [{module: provider-replay}]\n", name="theirs.md", bundle="theirs")
    assert names(write(f"includes: [./theirs.md]\n{STAND_IN}")) == ["provider-replay"]


def test_a_key_on_this_machine_takes_its_place_with_the_settings(
    write: Any, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-a-test")
    bundle = load_bundle_sync(write(STAND_IN))
    (folder / ".amplifier").mkdir()
    (folder / ".amplifier" / "settings.yaml").write_text(
        "overrides: {provider-anthropic: {config: {default_model: m}}}\n", encoding="utf-8"
    )
    replace_stand_ins(bundle, read_settings(folder), folder)
    [entry] = bundle.providers
    assert (entry["module"], entry["config"]["default_model"]) == ("provider-anthropic", "m")


def test_without_a_key_it_stays_and_a_real_provider_is_never_replaced(
    write: Any, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    bundle = load_bundle_sync(write(STAND_IN))
    replace_stand_ins(bundle, read_settings(folder), folder)
    assert bundle.providers[0]["module"] == "provider-playbook"
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-a-test")
    chosen = load_bundle_sync(write("providers: [{module: provider-playbook}]\n"))
    replace_stand_ins(chosen, read_settings(folder), folder)
    assert chosen.providers[0]["module"] == "provider-playbook"


def test_whether_it_stands_in_is_true_or_false(problems: Any) -> None:
    [problem] = problems("---\nbundle: {name: b}\nproviders: [{module: provider-playbook, stand_in: maybe}]\n---\n")
    assert "providers[0].stand_in: must be true or false, not text" in problem
