"""Read, set and merge values in nested mappings by key paths."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence

Keys = tuple[str, ...]


def keys_of(path: str | Sequence[str]) -> Keys:
    """Return the keys of a path: dotted text, or a list of keys; a listed key may contain dots. Raises `ValueError`."""
    keys = tuple(path.split(".")) if isinstance(path, str) else tuple(path)
    if not keys or "" in keys:
        raise ValueError(f"{path!r} is not a path; write keys separated by dots")
    return keys


def get_nested(data: Mapping[str, Any], path: str | Sequence[str], default: Any = None) -> Any:
    """Return the value at `path`, or `default`; an empty list of keys returns `data`. Lists are not entered."""
    value: Any = data
    for key in keys_of(path) if path or isinstance(path, str) else ():
        if not isinstance(value, dict) or key not in value:
            return default
        value = value[key]
    return value


def at_path(data: Any, path: Iterable[object]) -> Any:
    """Return the value at a path of mapping keys in unchecked data, or None."""
    for part in path:
        data = data.get(part) if isinstance(data, dict) else None
    return data


def known_members(kind: type, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of stored data that are fields of a dataclass: a later version may have written others."""
    names = {each.name for each in fields(kind)}
    return {name: value for name, value in data.items() if name in names}


def set_nested(data: MutableMapping[str, Any], path: str | Sequence[str], value: Any) -> None:
    """Set the value at `path` of `data`; missing or null mappings on the way are created.

    Raises `TypeError` before any change when another kind of value is in the way.
    """
    *above, last = keys_of(path)
    for end in range(1, len(above) + 1):
        found = get_nested(data, above[:end])
        if found is not None and not isinstance(found, dict):
            raise TypeError(f"{'.'.join(above[:end])} is a {type(found).__name__}: nothing can be put below it")
    holder: Any = data
    for key in above:
        if holder.get(key) is None:
            holder[key] = {}
        holder = holder[key]
    holder[last] = value


def flatten(data: Mapping[str, Any], above: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """Yield the key path and value of every leaf: other values than mappings, and empty mappings."""
    for key, value in data.items():
        if isinstance(value, dict) and value:
            yield from flatten(value, (*above, key))
        else:
            yield (*above, key), value


def deep_merge(base: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """Return both merged as a deep copy.

    Mappings are merged by key and lists are joined without duplicates; other values of `override` win.
    """
    merged = deepcopy(dict(base))
    merge_into(merged, override)
    return merged


def merge_into(base: dict[str, Any], override: Mapping[str, Any]) -> None:
    """Do as `deep_merge` does with `base` itself."""
    for key, value in override.items():
        known = base.get(key)
        if isinstance(known, dict) and isinstance(value, dict):
            merge_into(known, value)
        elif isinstance(known, list) and isinstance(value, list):
            known += [deepcopy(item) for item in value if item not in known]
        else:
            base[key] = deepcopy(value)
