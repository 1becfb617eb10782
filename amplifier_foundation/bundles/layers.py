"""Where each value of a composed bundle was written: the last of its layers that says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .merge import entry_key
from .positions import Place, show_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .model import Bundle
    from .positions import KeyPath

SECTIONS = ("session", "providers", "tools", "hooks", "agents", "spawn")
"""What is told of a bundle."""
_MODULES = frozenset({"providers", "tools", "hooks"})


class Value(NamedTuple):
    """One value of a composed bundle: its path, what it is, and where it was written (None: by a program)."""

    path: KeyPath
    value: Any
    place: Place | None


def values(bundle: Bundle) -> Iterator[Value]:
    """Yield every value of a bundle that is no mapping or list of others, in the order of its sections."""
    for section in SECTIONS:
        for path, value in _leaves(getattr(bundle, section), (section,)):
            yield Value(path, value, origin(bundle, path))


def origin(bundle: Bundle, path: KeyPath) -> Place | None:
    """Return where the value at `path` of a composed bundle was written: the last layer that has it wins."""
    for layer in reversed(bundle.layers or [bundle]):
        own = _own_path(bundle, layer, path)
        if own is not None:
            return _place(layer, own)
    return None


def _own_path(bundle: Bundle, layer: Bundle, path: KeyPath) -> KeyPath | None:
    """Return the path in `layer` of the value at `path` in the whole; None when it does not have it."""
    section, *rest = path
    if section in _MODULES and rest:
        number = _number(getattr(layer, str(section)), getattr(bundle, str(section))[rest[0]])
        if number is None:
            return None
        rest[0] = number
    own = (section, *rest)
    return own if _has(getattr(layer, str(section)), rest) else None


def _number(entries: Sequence[Mapping[str, Any]], wanted: Mapping[str, Any]) -> int | None:
    return next((number for number, entry in enumerate(entries) if entry_key(entry) == entry_key(wanted)), None)


def _has(value: Any, path: Sequence[str | int]) -> bool:
    for part in path:
        known = range(len(value)) if isinstance(value, list) else value if isinstance(value, Mapping) else ()
        if part not in known:
            return False
        value = value[part]
    return True


def _place(layer: Bundle, path: KeyPath) -> Place | None:
    if layer.positions is not None:
        return layer.positions.at(path)
    return Place(show_file(layer.source_path)) if layer.source_path else None


def _leaves(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    inner: Any = ()
    if isinstance(value, Mapping):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    if not inner:
        if value not in ({}, []) or len(path) > 1:
            yield path, value
        return
    for key, each in inner:
        yield from _leaves(each, (*path, key))
