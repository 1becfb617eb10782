"""Find the origin of each value of a composed bundle: its position in the last layer with it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..documents.positions import Place, show_file
from .merge import entry_key
from .sections import MODULE_LISTS, SECTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..documents.positions import KeyPath, Positions
    from .background_config import BackgroundSessionConfig
    from .model import Bundle

SHOWN = {each.name: each for each in SECTIONS if each.is_shown}
"""The sections with values to show, by name."""
_NOTHING: Any = object()


class Value(NamedTuple):
    """One value of a composed bundle with its path and its place (None: made by a program)."""

    path: KeyPath
    value: Any
    place: Place | None


def values(bundle: Bundle) -> Iterator[Value]:
    """Yield every single value of a bundle, and every empty mapping and list, in the order of its sections."""
    for section in SHOWN:
        for path, value in leaves(section_of(bundle, section), (section,)):
            yield Value(path, value, origin(bundle, path))


def section_of(bundle: Bundle, section: str) -> Any:
    """Return one of the `SHOWN` sections as plain data, with files as shown to people."""
    if section == "context":
        return {name: show_file(path) for name, path in bundle.context.items()}
    return SHOWN[section].dump(getattr(bundle, section))


def origin(bundle: Bundle, path: KeyPath, *, key: bool = False) -> Place | None:
    """Return the place of the value at `path` of a composed bundle, or of its key: the last layer with it wins."""
    in_file = _find_in_agent_file(bundle, path)
    if in_file is not None:
        return in_file
    find = _IRREGULAR.get(str(path[0]), _find_path)
    for layer in reversed(bundle.layers or [bundle]):
        own = find(bundle, layer, path)
        if own is not None and layer.positions is not None:
            return layer.positions.at(own, key=key)
        if own is not None:
            return Place(show_file(layer.source_path)) if layer.source_path else None
    return None


def _find_path(bundle: Bundle, layer: Bundle, path: KeyPath) -> KeyPath | None:
    """Return the path in `layer` of the value at `path` in the whole bundle, or None."""
    section, *rest = path
    whole, value, own = getattr(bundle, str(section)), getattr(layer, str(section)), path[:1]
    for part in rest:
        try:
            whole = whole[part]
        except (LookupError, TypeError):  # a check may name a key that is missing
            return None
        if part == "module" and isinstance(value, str):  # `orchestrator: loop-x` is `orchestrator: {module: loop-x}`
            return own
        if isinstance(value, list):  # merging may have moved the entry: find it by its identity
            by_module = own[0] in MODULE_LISTS and len(own) == 1
            wanted = entry_key(whole) if by_module else whole
            part = next((at for at, each in enumerate(value) if (entry_key(each) if by_module else each) == wanted), -1)
            value = value[part] if part >= 0 else _NOTHING
        else:
            value = value.get(part, _NOTHING) if isinstance(value, Mapping) else _NOTHING
        if value is _NOTHING:
            return None
        own = (*own, part)
    return own


def _find_background(bundle: Bundle, layer: Bundle, path: KeyPath) -> KeyPath | None:
    _, number, *rest = path
    name = bundle.background_sessions[int(number)].name
    found = next((i for i, config in enumerate(layer.background_sessions) if config.name == name), None)
    if found is None or (rest and not _gives(layer.background_sessions[found], str(rest[0]))):
        return None
    from .sections import FIELD_SPELLING

    top_level = 0
    while layer.positions is not None and ("background_sessions", top_level) in layer.positions.values:
        top_level += 1
    at = ("background_sessions", found) if found < top_level else (*FIELD_SPELLING, found - top_level)
    return (*at, *rest)


def _gives(config: BackgroundSessionConfig, key: str) -> bool:
    fields = type(config).model_fields
    return any(key in (name, fields[name].alias) for name in config.model_fields_set)


def _find_context(bundle: Bundle, layer: Bundle, path: KeyPath) -> KeyPath | None:
    name = str(path[-1])
    written = {**layer.context, **layer._pending_context}
    own = next((key for key in (name, name.removeprefix(f"{layer.name}:")) if key in written), None)
    if own is None:
        return None
    by_name = layer.positions is not None and ("context", own) in layer.positions.values
    return ("context", own) if by_name else ("context", "include")


_IRREGULAR = {"background_sessions": _find_background, "context": _find_context}
"""The sections built from several places of a file."""


def _find_in_agent_file(bundle: Bundle, path: KeyPath) -> Place | None:
    """Return the place of a value in an agent's own file, or None."""
    if path[0] != "agents" or len(path) < 3:
        return None
    source = bundle.agents[str(path[1])].get("source_path")
    digest = bundle.origins.get(source) if isinstance(source, str) else None
    if digest is None:
        return None
    positions = _read_positions(source, digest)
    own = path[2:] if path[2:] in positions.values else ("meta", *path[2:])
    return positions.at(own) if own in positions.values else Place(positions.file)


@lru_cache(maxsize=256)
def _read_positions(file: str, digest: str) -> Positions:
    """Return the positions of a file; `digest` distinguishes versions of it."""
    from ..documents.document import read_document

    return read_document(Path(file)).positions


def leaves(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
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
        yield from leaves(each, (*path, key))
