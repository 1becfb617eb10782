"""What a plugin's or module's own tests need: doubles, a clock that tests move, and the contract checks.

Nothing here imports a test runner.
"""

from __future__ import annotations

from .clock import VirtualClock
from .mocks import (
    EventRecorder,
    MockContextManager,
    MockCoordinator,
    MockTool,
    ScriptedOrchestrator,
    create_test_coordinator,
    wait_for,
)
from .store_checks import check_store
from .trigger_checks import check_trigger

__all__ = [
    "EventRecorder",
    "MockContextManager",
    "MockCoordinator",
    "MockTool",
    "ScriptedOrchestrator",
    "VirtualClock",
    "check_store",
    "check_trigger",
    "create_test_coordinator",
    "wait_for",
]
