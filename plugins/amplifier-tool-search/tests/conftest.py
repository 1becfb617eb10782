"""A project with every kind of file, and the tool on it: by ripgrep, and by Python."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import ModuleCoordinator
from amplifier_tool_search import mount
from tests.programs import require

Call = Callable[..., Awaitable[Any]]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The working folder, with a secret outside of it."""
    (tmp_path / "work").mkdir()
    (tmp_path / "outside.txt").write_text("needle outside\n")
    return tmp_path / "work"


async def make(work: Path, **config: Any) -> ModuleCoordinator:
    coordinator = ModuleCoordinator(session_id="test")
    coordinator.register_capability("session.working_dir", str(work))
    await mount(coordinator, config)
    return coordinator


@pytest.fixture(params=["ripgrep", "Python"])
async def coordinator(request: pytest.FixtureRequest, work: Path) -> ModuleCoordinator:
    if request.param == "ripgrep":
        require("rg")
    return await make(work, ripgrep=request.param == "ripgrep")


@pytest.fixture
def call(coordinator: ModuleCoordinator) -> Call:
    async def call(pattern: Any, **given: Any) -> Any:
        return await coordinator.get("tools", "search").execute({"pattern": pattern, **given})

    return call
