"""Close the data of events to writing: dictionaries and lists as in JSON that many readers share."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

ATOMS = frozenset({str, int, float, bool, type(None), bytes})


def _refuse(self: object, *_: object, **__: object) -> NoReturn:
    raise TypeError("the data of an event is shared by all its readers: change a copy, as copy.deepcopy(event.data)")


class FrozenDict(dict[str, Any]):
    """A dictionary that refuses to be changed; its copies are plain ones."""

    __slots__ = ()

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def copy(self) -> dict[str, Any]:
        """Return a plain dictionary; the values in it stay frozen."""
        return dict(self)

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return {key: deepcopy(value, memo) for key, value in self.items()}

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[dict[str, Any]]]:
        return FrozenDict, (dict(self),)


class FrozenList(list[Any]):
    """A list that refuses to be changed; its copies are plain ones."""

    __slots__ = ()

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def copy(self) -> list[Any]:
        """Return a plain list; the values in it stay frozen."""
        return list(self)

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return [deepcopy(value, memo) for value in self]

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[list[Any]]]:
        return FrozenList, (list(self),)


def freeze(data: Mapping[str, Any]) -> FrozenDict:
    """Return a copy of `data` that nobody can change; frozen data is returned as it is."""
    if type(data) is FrozenDict:
        return data
    frozen = FrozenDict(data)
    for value in frozen.values():
        if type(value) not in ATOMS:
            return freeze_values(frozen)
    return frozen


def freeze_values(frozen: FrozenDict) -> FrozenDict:
    """Return a copy whose values nobody can change either."""
    return FrozenDict({key: _freeze_value(value) for key, value in frozen.items()})


def _freeze_value(value: Any) -> Any:
    if type(value) in ATOMS or type(value) is FrozenList:
        return value
    if isinstance(value, Mapping):
        return freeze(value)
    if isinstance(value, list):
        return FrozenList(map(_freeze_value, value))
    return tuple(map(_freeze_value, value)) if type(value) is tuple else deepcopy(value)


def thaw(value: Any) -> Any:
    """Return frozen data as plain dictionaries and lists; `freeze` makes the same data of them again.

    Raises `TypeError` for a value of a class that `marshal` does not keep: it turns a bytearray into bytes.
    """
    if type(value) in ATOMS:
        return value
    if isinstance(value, FrozenDict):
        return {key: thaw(each) for key, each in value.items()}
    if isinstance(value, FrozenList):
        return list(map(thaw, value))
    if type(value) is tuple:
        return tuple(map(thaw, value))
    if type(value) in (set, frozenset) and ATOMS.issuperset(map(type, value)):
        return value
    raise TypeError(f"it does not keep a {type(value).__name__}")
