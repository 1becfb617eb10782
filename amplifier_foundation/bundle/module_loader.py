"""Load the modules of a bundle with the values that no mount plan holds: kept keys, and the models of aliases."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from amplifier_core.loader import ModuleLoader

from .aliases import names_model, with_model
from .credentials import DECLARATION, PREFIX, complete_provider, expand_references, has_references, key_names

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from amplifier_core.coordinator import ModuleCoordinator
    from amplifier_core.loader import MountFunction


class BundleModuleLoader(ModuleLoader):
    """Completes the configuration of each module when it is mounted; the plan and the record keep the references."""

    async def load_in_sandbox(
        self, module_id: str, config: dict[str, Any], source_hint: Any, coordinator: ModuleCoordinator
    ) -> MountFunction:
        """Return an async function as `load` does; the module is imported by a process in a sandbox, never here."""
        # The room of processes stands above this one.
        above = import_module("amplifier_foundation.isolation.sandboxed_tools")
        mount: MountFunction = above.make_mount(self, module_id, config, source_hint)
        return mount

    def is_complete(self, module_id: str, mount: Callable[..., Any], config: dict[str, Any]) -> bool:
        """Return whether a configuration has no reference, and a provider's neither needs a key nor names a model."""
        if type(self).complete_config is not BundleModuleLoader.complete_config or (config and has_references(config)):
            return False
        if not module_id.startswith(PREFIX):
            return True
        declared = getattr(sys.modules.get(mount.__module__), DECLARATION, None)
        return not names_model(config) and not key_names(module_id, declared)

    async def complete_config(
        self, module_id: str, module: ModuleType | None, config: dict[str, Any], coordinator: ModuleCoordinator | None
    ) -> dict[str, Any]:
        """Return the configuration with keys in place of `secret://NAME`; a provider's with its model and kept key."""
        if module_id.startswith(PREFIX):
            config = with_model(config, module_id, coordinator)
            config = await complete_provider(module_id, getattr(module, DECLARATION, None), config)
        return await expand_references(config)
