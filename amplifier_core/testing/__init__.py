"""Offer the tools for tests of plugins and modules: doubles, a virtual clock, and the contract checks.

Nothing here imports a test runner. Every name below is imported at its first use: the checks start processes.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..models import HookResult, ToolResult
    from .clock import VirtualClock
    from .crashes import crash_points
    from .hooks_checks import check_hooks
    from .memory_store import MemoryStore
    from .mocks import (
        EventRecorder,
        MockContextManager,
        MockCoordinator,
        MockTool,
        ScriptedOrchestrator,
        TestCoordinator,
        create_test_coordinator,
        wait_for,
    )
    from .provider_checks import check_provider
    from .runner_checks import check_runner
    from .session_runs import SessionRun, playbook, run_session
    from .shared_memory_store import SharedMemoryStore
    from .simulated_files import SimulatedFiles
    from .storage_checks import check_storage, check_storage_kills
    from .store_checks import check_store
    from .store_checks.shared import check_shared_store
    from .stream_checks import check_stream
    from .tool_checks import check_tool
    from .trigger_checks import check_trigger, check_trigger_kills

_HOMES = {
    "..models": ("HookResult", "ToolResult"),
    ".clock": ("VirtualClock",),
    ".crashes": ("crash_points",),
    ".hooks_checks": ("check_hooks",),
    ".memory_store": ("MemoryStore",),
    ".mocks": (
        *("EventRecorder", "MockContextManager", "MockCoordinator", "MockTool", "ScriptedOrchestrator"),
        *("TestCoordinator", "create_test_coordinator", "wait_for"),
    ),
    ".provider_checks": ("check_provider",),
    ".runner_checks": ("check_runner",),
    ".shared_memory_store": ("SharedMemoryStore",),
    ".session_runs": ("SessionRun", "playbook", "run_session"),
    ".simulated_files": ("SimulatedFiles",),
    ".storage_checks": ("check_storage", "check_storage_kills"),
    ".store_checks": ("check_store",),
    ".store_checks.shared": ("check_shared_store",),
    ".stream_checks": ("check_stream",),
    ".tool_checks": ("check_tool",),
    ".trigger_checks": ("check_trigger", "check_trigger_kills"),
}

__all__ = [
    "EventRecorder",
    "HookResult",
    "MemoryStore",
    "MockContextManager",
    "MockCoordinator",
    "MockTool",
    "ScriptedOrchestrator",
    "SessionRun",
    "SharedMemoryStore",
    "SimulatedFiles",
    "TestCoordinator",
    "ToolResult",
    "VirtualClock",
    "check_hooks",
    "check_provider",
    "check_runner",
    "check_shared_store",
    "check_storage",
    "check_storage_kills",
    "check_store",
    "check_stream",
    "check_tool",
    "check_trigger",
    "check_trigger_kills",
    "crash_points",
    "create_test_coordinator",
    "playbook",
    "run_session",
    "wait_for",
]


def __getattr__(name: str) -> object:
    home = next((home for home, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module 'amplifier_core.testing' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home, __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
