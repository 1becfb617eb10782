"""The events of a bundle's life, as the hooks of its session hear them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from amplifier_foundation.bundle import load_bundle_sync
from amplifier_foundation.bundle.lifecycle import FAILED, LOADED, PREPARED

LISTENER = """
import json

async def mount(coordinator, config):
    async def listen(event, data):
        with open(config["file"], "a") as file:
            print(json.dumps([event, {key: value for key, value in data.items() if key != "timestamp"}]), file=file)
    for event in ("bundle:loaded", "bundle:prepared", "bundle:failed"):
        coordinator.hooks.register(event, listen)
"""
BROKEN = """
from amplifier_context_simple.context import SimpleContextManager

class Context(SimpleContextManager):
    async def set_system_prompt_factory(self, factory):
        raise RuntimeError("no luck")

async def mount(coordinator, config):
    await coordinator.mount("context", Context())
"""
FRONT = (
    "recipes: 1\nhooks: [{module: hooks-listener, source: ./listener.py, config: {file: heard}}]\n"
    "tools: [{module: tool-emit}]\n"
)


def heard(folder: Any) -> list[list[Any]]:
    return [json.loads(line) for line in (folder / "heard").read_text().splitlines()]


async def test_a_sessions_hooks_hear_that_its_bundle_was_loaded_and_prepared(write: Any, folder: Any) -> None:
    (folder / "listener.py").write_text(LISTENER)
    bundle = load_bundle_sync(write(FRONT, "You help."))
    session = await (await bundle.prepare()).create_session()
    await session.cleanup()
    about = {"name": "demo", "version": "1.0.0", "digest": bundle.digest}
    warnings = ["bundle.md:3:1: warning[AMP106] recipes: unknown section. It is ignored"]
    modules = {"orchestrator": "loop-basic", "context": "context-simple", "providers": [], "tools": ["tool-emit"]}
    [loaded, prepared] = heard(folder)
    assert loaded[0] == LOADED
    assert loaded[1].items() >= {**about, "files": [str(folder / "bundle.md")], "warnings": warnings}.items()
    assert prepared[0] == PREPARED
    assert prepared[1].items() >= {**about, **modules, "hooks": ["hooks-listener"]}.items()


async def test_the_hooks_that_are_mounted_hear_that_a_bundle_failed(write: Any, folder: Any) -> None:
    (folder / "listener.py").write_text(LISTENER)
    (folder / "broken.py").write_text(BROKEN)
    session = "session: {context: {module: context-broken, source: ./broken.py}}\n"
    bundle = load_bundle_sync(write(FRONT + session, "You help."))
    with pytest.raises(RuntimeError, match="no luck"):
        await (await bundle.prepare()).create_session()
    [[event, data]] = heard(folder)
    assert event == FAILED
    assert data.items() >= {"name": "demo", "error": "no luck", "error_type": "RuntimeError"}.items()
