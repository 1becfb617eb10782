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
        first, last = self._order(module_id, source_hint)
        try:
            return first.resolve(module_id, source_hint=source_hint)
        except ModuleNotFoundError:
            return last.resolve(module_id, source_hint=source_hint)

    async def async_resolve(self, module_id: str, source_hint: Any = None, profile_hint: Any = None) -> Any:
        """Do what `resolve` does, and await the bundles' own `async_resolve`, where they have one."""
        first, last = self._order(module_id, source_hint)
        try:
            return await _resolved(first, module_id, source_hint)
        except ModuleNotFoundError:
            return await _resolved(last, module_id, source_hint)

    def _order(self, module_id: str, source_hint: Any) -> tuple[Any, Any]:
        """Return whom to ask first, and whom then: who knows the module is asked alone."""
        own, outer = self._layers
        knowing = next((layer for layer in self._layers if _knows(layer, module_id, source_hint)), None)
        return (own, outer) if knowing is None else (knowing, knowing)


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


async def _resolved(resolver: Any, module_id: str, source_hint: Any) -> Any:
    if hasattr(resolver, "async_resolve"):
        return await resolver.async_resolve(module_id, source_hint=source_hint)
    return resolver.resolve(module_id, source_hint=source_hint)


def _lacks(resolver: Any, module_id: str) -> bool:
    lacks = getattr(resolver, "lacks", None)
    return lacks is not None and bool(lacks(module_id))


def _knows(resolver: Any, module_id: str, source_hint: Any) -> bool:
    knows = getattr(resolver, "knows", None)
    return knows is not None and bool(knows(module_id, source_hint))
