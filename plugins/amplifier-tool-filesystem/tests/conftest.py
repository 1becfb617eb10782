"""A working folder with the tools mounted on it, and a folder outside that nobody may reach."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core import ModuleCoordinator
from amplifier_foundation.bundle.module_loader import BundleModuleLoader
from amplifier_tool_filesystem import mount
from tests.programs import require

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    Call = Callable[..., Awaitable[Any]]  # of a ToolResult, whose output may be anything


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The working folder."""
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder next to the working folder, with a file `secret`."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("outside")
    return tmp_path / "outside"


@pytest.fixture(params=["here", "in a sandbox"])
async def coordinator(request: pytest.FixtureRequest, work: Path) -> AsyncIterator[ModuleCoordinator]:
    """A coordinator with the tools, a small `max_bytes` among their settings; in this process, and in a sandbox."""
    coordinator = ModuleCoordinator(session_id="test")
    coordinator.register_capability("session.working_dir", str(work))
    if request.param == "here":
        await mount(coordinator, {"max_bytes": 64})
    else:
        require("bwrap")
        load = await BundleModuleLoader().load_in_sandbox("tool-filesystem", {"max_bytes": 64}, None, coordinator)
        coordinator.register_cleanup(await load(coordinator))  # type: ignore[arg-type]
    yield coordinator
    await coordinator.cleanup()


@pytest.fixture
def call(coordinator: ModuleCoordinator) -> Call:
    """Call a tool by its name."""

    async def call(tool: str, **given: Any) -> Any:
        return await coordinator.get("tools", tool).execute(given)

    return call
