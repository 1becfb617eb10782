"""Offer the tools for tests of plugins and modules: doubles, a virtual clock, and the contract checks.

Nothing here imports a test runner.
"""

from __future__ import annotations

from ..models import HookResult, ToolResult
from .clock import VirtualClock
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
from .shared_memory_store import SharedMemoryStore
from .storage_checks import check_storage
from .store_checks import check_store
from .stream_checks import check_stream
from .trigger_checks import check_trigger

__all__ = [
    "EventRecorder",
    "HookResult",
    "MemoryStore",
    "MockContextManager",
    "MockCoordinator",
    "MockTool",
    "ScriptedOrchestrator",
    "SharedMemoryStore",
    "TestCoordinator",
    "ToolResult",
    "VirtualClock",
    "check_provider",
    "check_runner",
    "check_storage",
    "check_store",
    "check_stream",
    "check_trigger",
    "create_test_coordinator",
    "wait_for",
]
