"""Offer the suites about the structure of a module; a module's own tests inherit them.

    class TestStructure(ToolStructuralTests):
        \"\"\"Run by pytest with pytest-asyncio.\"\"\"

The module is found by `amplifier_core.pytest_plugin`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from .base import check_on_session_ready
from .context import ContextValidator
from .hook import HookValidator
from .orchestrator import OrchestratorValidator
from .provider import ProviderValidator
from .tool import ToolValidator

if TYPE_CHECKING:
    from .validator import ModuleValidator

__all__ = [
    "ContextStructuralTests",
    "HookStructuralTests",
    "OrchestratorStructuralTests",
    "ProviderStructuralTests",
    "ToolStructuralTests",
    "check_on_session_ready",
]


class _StructuralTests:
    """One test: the validator of the kind finds no error."""

    validator: ClassVar[type[ModuleValidator]]
    module_kind: ClassVar[str]

    @pytest.mark.asyncio
    async def test_structural_validation(self, module_path: Any) -> None:
        """The module can be imported and mounted, and its parts keep their protocol."""
        if module_path is None:
            pytest.skip("No module path detected")
        result = await self.validator().validate(module_path)
        if not result.passed:
            errors = "".join(f"\n  {check.name}: {check.message}" for check in result.errors)
            pytest.fail(f"{module_path} is not a valid {self.module_kind}:{errors}", pytrace=False)


class ProviderStructuralTests(_StructuralTests):
    """The structure of a provider module."""

    validator = ProviderValidator
    module_kind = ProviderValidator.module_type


class ToolStructuralTests(_StructuralTests):
    """The structure of a tool module."""

    validator = ToolValidator
    module_kind = ToolValidator.module_type


class HookStructuralTests(_StructuralTests):
    """The structure of a hook module."""

    validator = HookValidator
    module_kind = HookValidator.module_type


class ContextStructuralTests(_StructuralTests):
    """The structure of a context module."""

    validator = ContextValidator
    module_kind = ContextValidator.module_type


class OrchestratorStructuralTests(_StructuralTests):
    """The structure of an orchestrator module."""

    validator = OrchestratorValidator
    module_kind = OrchestratorValidator.module_type
