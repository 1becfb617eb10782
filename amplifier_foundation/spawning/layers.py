"""What finds modules and mentioned files for a child: its own bundle's, then its parent's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.module_sources import ModuleNotFoundError

if TYPE_CHECKING:
    from pathlib import Path


class LayeredResolver:
    """Resolves a module where the child's bundle has its code, else where the parent's does.

    Two bundles may write one path for two modules: it is the one whose bundle names that module at that path.
    """

    def __init__(self, own: Any, outer: Any) -> None:
        self._layers = (own, outer)

    def knows(self, module_id: str, source_hint: Any = None) -> bool:
        """Return whether one of the bundles names this module, at this path if there is one."""
        return any(_knows(layer, module_id, source_hint) for layer in self._layers)

    def lacks(self, module_id: str) -> bool:
        """Return whether both of them are sure to find nothing for a module without a path."""
        own, outer = self._layers
        return _lacks(own, module_id) and _lacks(outer, module_id)

    def resolve(self, module_id: str, source_hint: Any = None, profile_hint: Any = None) -> Any:
        """Return where the code of `module_id` is. Raises `ModuleNotFoundError` when neither knows."""
        own, outer = self._layers
        for layer in self._layers:
            if _knows(layer, module_id, source_hint):
                return layer.resolve(module_id, source_hint, profile_hint)
        try:
            return own.resolve(module_id, source_hint, profile_hint)
        except ModuleNotFoundError:
            return outer.resolve(module_id, source_hint, profile_hint)


class LayeredMentions:
    """Finds mentioned files where the child's resolver does, else where the parent's does."""

    def __init__(self, own: Any, outer: Any) -> None:
        self._own = own
        self._outer = outer

    def resolve(self, mention: str) -> Path | None:
        """Return the file that `mention` stands for, None when there is none."""
        found: Path | None = self._own.resolve(mention) or self._outer.resolve(mention)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)


def layered(own: Any, outer: Any, layers: type) -> Any:
    """Return `own` before `outer`; the same one, or none, is no layer."""
    return own if outer is None or outer is own else layers(own, outer)


def _lacks(resolver: Any, module_id: str) -> bool:
    lacks = getattr(resolver, "lacks", None)
    return lacks is not None and bool(lacks(module_id))


def _knows(resolver: Any, module_id: str, source_hint: Any) -> bool:
    knows = getattr(resolver, "knows", None)
    return knows is not None and bool(knows(module_id, source_hint))
