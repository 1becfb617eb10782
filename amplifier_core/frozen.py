"""Make frozen dataclasses in half the time."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, TypeVar, dataclass_transform

Kind = TypeVar("Kind")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(kind: type[Kind]) -> type[Kind]:
    """Return a dataclass that is frozen and has slots, as `@dataclass(frozen=True, slots=True)` does.

    Python 3.11 compiles a text for each method of each dataclass: 0.7 ms for a class of eight fields. Here comparison,
    hash and text are closures: 0.4 ms. A first turn defines sixty such classes. A method of the class itself stays.
    """
    made: Any = dataclass(frozen=True, slots=True, eq=False, repr=False)(kind)
    shown = [each.name for each in fields(made) if each.repr]
    read = attrgetter(*(each.name for each in fields(made) if each.compare))

    def __eq__(self: Any, other: Any) -> Any:
        return read(self) == read(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(read(self))

    @recursive_repr()
    def __repr__(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    for method in (__eq__, __hash__, __repr__):
        if vars(kind).get(method.__name__) is None:  # None: no hash beside a comparison of the class itself
            setattr(made, method.__name__, method)
    return made  # type: ignore[no-any-return]  # as typed, it is the class given
