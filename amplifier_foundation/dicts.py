"""Values in mappings within mappings, by the keys that lead to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, MutableMapping, Sequence

Keys = tuple[str, ...]


def keys_of(path: str | Sequence[str]) -> Keys:
    """Return the keys of a path: a dotted text, or a list of keys, which may hold dots. Raises `ValueError`."""
    keys = tuple(path.split(".")) if isinstance(path, str) else tuple(path)
    if not keys or "" in keys:
        raise ValueError(f"{path!r} is no path; write keys with dots between them")
    return keys


def get_nested(data: Mapping[str, Any], path: str | Sequence[str], default: Any = None) -> Any:
    """Return the value at `path`, or `default` where there is none; lists are not entered."""
    value: Any = data
    for key in keys_of(path):
        if not isinstance(value, dict) or key not in value:
            return default
        value = value[key]
    return value


def set_nested(data: MutableMapping[str, Any], path: str | Sequence[str], value: Any) -> None:
    """Put `value` at `path` of `data`; mappings on the way that are missing, or null, are made.

    Raises `TypeError`, having changed nothing, when something else is in the way.
    """
    *above, last = keys_of(path)
    _refuse_what_is_in_the_way(data, above)
    holder: Any = data
    for key in above:
        if holder.get(key) is None:
            holder[key] = {}
        holder = holder[key]
    holder[last] = value


def _refuse_what_is_in_the_way(data: MutableMapping[str, Any], above: Sequence[str]) -> None:
    for end in range(1, len(above) + 1):
        found = get_nested(data, above[:end])
        if found is not None and not isinstance(found, dict):
            raise TypeError(f"{'.'.join(above[:end])} is a {type(found).__name__}: nothing can be put below it")


def flattened(data: Mapping[str, Any], above: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """Yield every value that is no mapping, and every empty mapping, with the keys that lead to it."""
    for key, value in data.items():
        if isinstance(value, dict) and value:
            yield from flattened(value, (*above, key))
        else:
            yield (*above, key), value
