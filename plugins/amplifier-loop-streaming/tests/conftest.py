"""Put this loop into the tests of loop-basic."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from amplifier_loop_streaming import mount

BASIC = Path(__file__).parents[2] / "amplifier-loop-basic" / "tests"


def load(path: Path) -> Any:
    """Load a module of the tests of loop-basic as `loop_basic_…`."""
    name = f"loop_basic_{path.stem}"
    pytest.register_assert_rewrite(name)
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


basic = load(BASIC / "conftest.py")
TESTS = {path.stem: load(path) for path in sorted(BASIC.glob("test_*.py"))}


class Room(basic.Room):  # type: ignore[misc]
    """One session's parts, with this loop."""

    mount = staticmethod(mount)
    module = "loop-streaming"

    async def steer(self, *texts: str) -> list[bool]:
        """Send messages to the session, and return whether the running turn takes each in."""
        if self.coordinator.get("orchestrator") is None:
            await mount(self.coordinator)
        return [self.coordinator.get_capability("session.steer")(text) for text in texts]


@pytest.fixture
def room() -> Room:
    return Room()


@pytest.fixture
def scripted() -> Any:
    return basic.ScriptedModel


@pytest.fixture
def speech() -> Any:
    return TESTS["test_streaming"].Speech
