"""What settings put over the modules of bundles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from amplifier_foundation.bundle import load_bundle_sync
from amplifier_foundation.bundle.overrides import override_modules, overriding

if TYPE_CHECKING:
    from pathlib import Path

FRONT = """\
session: {orchestrator: loop-basic, context: {module: context-simple, config: {max_tokens: 5}}}
providers:
  - {module: provider-x, config: {model: small, tags: [a], limits: {tokens: 1, calls: 2}}}
  - {module: provider-x, instance_id: second}
tools: [{module: tool-t}]
hooks: [{module: hooks-h}]
"""


@pytest.mark.parametrize(
    ("overrides", "section", "entries"),
    [
        (
            {"provider-x": {"config": {"model": "large", "tags": ["b"], "limits": {"calls": 3}}}},
            "providers",
            [
                {
                    "module": "provider-x",
                    "config": {"model": "large", "tags": ["a", "b"], "limits": {"tokens": 1, "calls": 3}},
                },
                {
                    "module": "provider-x",
                    "instance_id": "second",
                    "config": {"model": "large", "tags": ["b"], "limits": {"calls": 3}},
                },
            ],
        ),
        ({"hooks-h": {"config": {"on": True}}}, "hooks", [{"module": "hooks-h", "config": {"on": True}}]),
        ({"hooks-h": {}, "hooks-absent": {"config": {"x": 1}}}, "hooks", [{"module": "hooks-h"}]),
        ({"tool-t": {"source": "git+https://host/t"}}, "tools", [{"module": "tool-t", "source": "git+https://host/t"}]),
    ],
)
def test_settings_go_over_every_entry_of_a_module(
    overrides: dict[str, Any], section: str, entries: list[dict[str, Any]], write: Any, folder: Path
) -> None:
    bundle = load_bundle_sync(write(FRONT))
    override_modules(bundle, overrides, folder)
    assert getattr(bundle, section) == entries


def test_settings_go_over_the_orchestrator_and_the_context_however_they_are_written(write: Any, folder: Path) -> None:
    bundle = load_bundle_sync(write(FRONT))
    overrides = {"loop-basic": {"config": {"max_iterations": 3}}, "context-simple": {"config": {"max_tokens": 9}}}
    override_modules(bundle, overrides, folder)
    assert bundle.session == {
        "orchestrator": {"module": "loop-basic", "config": {"max_iterations": 3}},
        "context": {"module": "context-simple", "config": {"max_tokens": 9}},
    }


async def test_code_of_this_machine_is_taken_in_the_place_of_an_installed_module(write: Any, folder: Path) -> None:
    (folder / "lib").mkdir()
    (folder / "lib" / "t.py").write_text("")
    bundle = load_bundle_sync(write(FRONT))
    override_modules(bundle, {"tool-t": {"source": "./t.py"}}, folder / "lib")
    prepared = await bundle.prepare()
    assert prepared.resolver.resolve("tool-t").resolve() == folder / "lib" / "t.py"
    assert load_bundle_sync("bundle.md").tools == [{"module": "tool-t"}]


def test_what_a_value_comes_from_is_known_to_the_key(write: Any, folder: Path) -> None:
    overrides = {"provider-x": {"config": {"model": "large", "tags": ["b"]}}}
    bundle = load_bundle_sync(write(FRONT))
    override_modules(bundle, overrides, folder)
    config = ("providers", 0, "config")
    assert overriding(bundle, (*config, "model"), overrides) == ("provider-x", "config", "model")
    assert overriding(bundle, (*config, "tags", 1), overrides) == ("provider-x", "config", "tags")
    for own in [(*config, "tags", 0), (*config, "limits", "calls"), ("tools", 0, "module"), ("spawn", "x")]:
        assert overriding(bundle, own, overrides) is None
