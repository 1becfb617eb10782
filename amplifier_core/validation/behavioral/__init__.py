"""Offer the suites about the behaviour of a module; a module's own tests inherit them.

    class TestBehavior(ToolBehaviorTests):
        \"\"\"Run by pytest with pytest-asyncio.\"\"\"

The fixtures of `amplifier_core.pytest_plugin` mount the module; a test file may define fixtures of the same names
instead, for a configuration of its own.
"""

from __future__ import annotations

from .context import ContextBehaviorTests
from .hook import HookBehaviorTests
from .orchestrator import OrchestratorBehaviorTests
from .provider import ProviderBehaviorTests
from .tool import ToolBehaviorTests

__all__ = [
    "ContextBehaviorTests",
    "HookBehaviorTests",
    "OrchestratorBehaviorTests",
    "ProviderBehaviorTests",
    "ToolBehaviorTests",
]
