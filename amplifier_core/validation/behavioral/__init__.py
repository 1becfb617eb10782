"""The suites that check what a module does; a module's own tests inherit them.

    class TestBehavior(ToolBehaviorTests):
        \"\"\"Run by pytest with pytest-asyncio.\"\"\"

The module is mounted by the fixtures of `amplifier_core.pytest_plugin`; a test file may define fixtures of the same
names instead, to mount it with a configuration of its own.
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
