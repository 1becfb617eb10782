"""Find the hooks of a plugin, without a look at everything that its module has imported."""

from __future__ import annotations

from types import FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import pluggy

from .hookspecs import GROUP

if TYPE_CHECKING:
    from collections.abc import Iterable

_FUNCTIONS = (FunctionType, MethodType, staticmethod, classmethod)


class HookManager(pluggy.PluginManager):
    """Calls the hooks of plugins; pluggy alone looks at each name of a module by `inspect`, for half of a start."""

    def __init__(self, specs: Iterable[ModuleType]) -> None:
        super().__init__(GROUP)
        for each in specs:
            self.add_hookspecs(each)

    def parse_hookimpl_opts(self, plugin: object, name: str) -> Any:
        """Return the options of a hook, or None for what is none: a module holds more imports than functions."""
        if isinstance(plugin, ModuleType) and not isinstance(vars(plugin).get(name), _FUNCTIONS):
            return None
        return super().parse_hookimpl_opts(plugin, name)
