"""Where each value of a composed bundle was written: the last of its layers that says it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .merge import entry_key
from .positions import Place, show_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .model import Bundle
    from .positions import KeyPath, Positions

SECTIONS = ("session", "providers", "tools", "hooks", "agents", "spawn", "context", "background_sessions")
"""What is told of a bundle."""
_MODULES = frozenset({"providers", "tools", "hooks"})
_NOTHING: Any = object()


class Value(NamedTuple):
    """One value of a composed bundle: its path, what it is, and where it was written (None: by a program)."""

    path: KeyPath
    value: Any
    place: Place | None


def values(bundle: Bundle) -> Iterator[Value]:
    """Yield every value of a bundle that is no mapping or list of others, in the order of its sections."""
    for section in SECTIONS:
        for path, value in _leaves(section_of(bundle, section), (section,)):
            yield Value(path, value, origin(bundle, path))


def section_of(bundle: Bundle, section: str) -> Any:
    """Return one of the `SECTIONS` as plain data: of background sessions what was said of them, not the defaults."""
    if section == "context":
        return {name: show_file(path) for name, path in bundle.context.items()}
    if section == "background_sessions":
        return [config.model_dump(exclude_unset=True, by_alias=True) for config in bundle.background_sessions]
    return getattr(bundle, section)


def origin(bundle: Bundle, path: KeyPath, *, key: bool = False) -> Place | None:
    """Return where the value at `path` of a composed bundle was written, or its key: the last layer with it wins."""
    in_file = _in_agents_file(bundle, path)
    if in_file is not None:
        return in_file
    own_path = {"background_sessions": _own_background, "context": _own_context}.get(str(path[0]), _own_path)
    for layer in reversed(bundle.layers or [bundle]):
        own = own_path(bundle, layer, path)
        if own is not None:
            return _place(layer, own, key=key)
    return None


def _own_path(bundle: Bundle, layer: Bundle, path: KeyPath) -> KeyPath | None:
    """Return the path in `layer` of the value at `path` in the whole; None when it does not have it."""
    section, *rest = path
    whole, value, own = getattr(bundle, str(section)), getattr(layer, str(section)), path[:1]
    for part in rest:
        whole = whole[part]
        if part == "module" and isinstance(value, str):  # `orchestrator: loop-x` is `orchestrator: {module: loop-x}`
            return own
        key = _number(value, whole, by_module=own[0] in _MODULES and len(own) == 1) if isinstance(value, list) else part
        value = _inside(value, key)
        if value is _NOTHING:
            return None
        own = (*own, key)
    return own


def _number(entries: Sequence[Any], wanted: Any, *, by_module: bool) -> int:
    """Return where what is now one of several joined lists stands in one of them; -1: it does not."""

    def identity(entry: Any) -> Any:
        return entry_key(entry) if by_module else entry

    return next((number for number, entry in enumerate(entries) if identity(entry) == identity(wanted)), -1)


def _inside(value: Any, key: str | int) -> Any:
    if isinstance(value, list):
        return value[key] if isinstance(key, int) and key >= 0 else _NOTHING
    return value.get(key, _NOTHING) if isinstance(value, Mapping) else _NOTHING


def _own_background(bundle: Bundle, layer: Bundle, path: KeyPath) -> KeyPath | None:
    _, number, *rest = path
    name = bundle.background_sessions[int(number)].name
    found = next((i for i, config in enumerate(layer.background_sessions) if config.name == name), None)
    if found is None:
        return None
    from .shape import FIELD_SPELLING

    top_level = 0
    while layer.positions is not None and ("background_sessions", top_level) in layer.positions.values:
        top_level += 1
    at = ("background_sessions", found) if found < top_level else (*FIELD_SPELLING, found - top_level)
    return (*at, *rest)


def _own_context(bundle: Bundle, layer: Bundle, path: KeyPath) -> KeyPath | None:
    name = str(path[-1])
    written = {**layer.context, **layer._pending_context}
    own = next((key for key in (name, name.removeprefix(f"{layer.name}:")) if key in written), None)
    if own is None:
        return None
    by_name = layer.positions is not None and ("context", own) in layer.positions.values
    return ("context", own) if by_name else ("context", "include")


def _in_agents_file(bundle: Bundle, path: KeyPath) -> Place | None:
    """Return where a value of an agent stands that has a file of its own."""
    if path[0] != "agents" or len(path) < 3:
        return None
    source = bundle.agents[str(path[1])].get("source_path")
    digest = bundle.origins.get(source) if isinstance(source, str) else None
    if digest is None:
        return None
    positions = _positions_in(source, digest)
    own = path[2:] if path[2:] in positions.values else ("meta", *path[2:])
    return positions.at(own) if own in positions.values else Place(positions.file)


@lru_cache(maxsize=256)
def _positions_in(file: str, digest: str) -> Positions:
    """Return the positions of a file; `digest` tells one content of it from another."""
    from .documents import read_document

    return read_document(Path(file)).positions


def _place(layer: Bundle, path: KeyPath, *, key: bool) -> Place | None:
    if layer.positions is not None:
        return layer.positions.at(path, key=key)
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
