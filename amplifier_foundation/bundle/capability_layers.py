"""Find modules and mentioned files for a child: in its own bundle, then in its parent's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.module_sources import ModuleNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path


INHERITED = "inherited"
"""The mark of a hook's entry in a child's mount plan: it is the parent's, and so is its code."""


class LayeredResolver:
    """Resolves a module in the child's bundle if its code is there, else in the parent's.

    Two bundles may use one path for two modules: the bundle with that module at that path counts. The code of an
    `inherited` module is never the child's.
    """

    def __init__(self, own: Any, outer: Any, inherited: Iterable[str] = ()) -> None:
        self._layers = (own, outer)
        self._lacks = getattr(own, "lacks", _finds_all), getattr(outer, "lacks", _finds_all)
        self._inherited = frozenset(inherited)

    def knows(self, module_id: str, source_hint: Any = None) -> bool:
        """Return whether one of the bundles names this module, at this path if given."""
        return any(_knows(layer, module_id, source_hint) for layer in self._layers)

    def lacks(self, module_id: str) -> bool:
        """Return whether both certainly find nothing for a module without a path."""
        own, outer = self._lacks
        return outer(module_id) and (module_id in self._inherited or own(module_id))

    def resolve(self, module_id: str, source_hint: Any = None, profile_hint: Any = None) -> Any:
        """Return the source of the code of `module_id`. Raises `ModuleNotFoundError` when neither knows it."""
        first, last = self._order(module_id, source_hint)
        try:
            return first.resolve(module_id, source_hint=source_hint)
        except ModuleNotFoundError:
            return last.resolve(module_id, source_hint=source_hint)

    async def async_resolve(self, module_id: str, source_hint: Any = None, profile_hint: Any = None) -> Any:
        """Resolve as `resolve`, awaiting the layers' own `async_resolve` where they have one."""
        first, last = self._order(module_id, source_hint)
        try:
            return await _resolve(first, module_id, source_hint)
        except ModuleNotFoundError:
            return await _resolve(last, module_id, source_hint)

    def _order(self, module_id: str, source_hint: Any) -> tuple[Any, Any]:
        """Return the first and second layer to ask; a layer that knows the module is asked alone."""
        own, outer = self._layers
        if module_id in self._inherited:
            return outer, outer
        knowing = next((layer for layer in self._layers if _knows(layer, module_id, source_hint)), None)
        return (own, outer) if knowing is None else (knowing, knowing)


class LayeredMentions:
    """Finds mentioned files with the child's resolver, else with the parent's."""

    def __init__(self, own: Any, outer: Any) -> None:
        self._own = own
        self._outer = outer

    def resolve(self, mention: str) -> Path | None:
        """Return the file of `mention`, or None."""
        found: Path | None = self._own.resolve(mention) or self._outer.resolve(mention)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)


def add_layer(own: Any, outer: Any, layers: Callable[[Any, Any], Any]) -> Any:
    """Return `own` in front of `outer`; `own` alone if `outer` is None or the same."""
    return own if outer is None or outer is own else layers(own, outer)


async def _resolve(resolver: Any, module_id: str, source_hint: Any) -> Any:
    if hasattr(resolver, "async_resolve"):
        return await resolver.async_resolve(module_id, source_hint=source_hint)
    return resolver.resolve(module_id, source_hint=source_hint)


def _finds_all(module_id: str) -> bool:
    """Stand for the `lacks` of a resolver without one: it may find any module."""
    return False


def _knows(resolver: Any, module_id: str, source_hint: Any) -> bool:
    knows = getattr(resolver, "knows", None)
    return knows is not None and bool(knows(module_id, source_hint))
