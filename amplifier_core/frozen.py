"""Make dataclasses with slots in a fifth of the time.

Python 3.11 compiles a text for each method of each dataclass: 0.5 ms for a frozen class of five fields. Here the
methods are closures over the fields, and the constructor is compiled when it is first asked for. A first turn defines
fifty such classes, a process of background sessions a hundred, and each makes instances of a quarter of them.
"""

from __future__ import annotations

from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields, is_dataclass
from operator import attrgetter
from reprlib import recursive_repr
from types import MethodType
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Kind = TypeVar("Kind")

_uncompiled: WeakSet[Any] = WeakSet()
"""The classes whose constructor nobody has asked for."""


def compile_constructors() -> None:
    """Compile the constructors of all classes that are defined: a process that forks others does so for them."""
    for made in list(_uncompiled):
        made.__init__  # noqa: B018 - to ask for it is enough


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(kind: type[Kind]) -> type[Kind]:
    """Return a dataclass as `@dataclass(frozen=True, slots=True)` does. A method of the class itself stays."""
    made: Any = _make(kind, inherits_frozen=any(is_dataclass(base) for base in kind.__mro__[1:]))
    made.__dataclass_params__.frozen = True  # a dataclass on top of it must be frozen too
    names = tuple(each.name for each in fields(made))
    read = attrgetter(*(each.name for each in fields(made) if each.compare))

    def __setattr__(self: Any, name: str, value: object) -> None:
        if type(self) is made or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(made, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is made or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(made, self).__delattr__(name)

    def __getstate__(self: Any) -> list[Any]:
        return [getattr(self, name) for name in names]

    def __setstate__(self: Any, state: list[Any]) -> None:
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    def __hash__(self: Any) -> int:
        return hash(read(self))

    _add(made, kind, __setattr__, __delattr__, __getstate__, __setstate__, __hash__)
    return made  # type: ignore[no-any-return]  # as typed, it is the class given


@dataclass_transform(field_specifiers=(field,))
def slotted(kind: type[Kind]) -> type[Kind]:
    """Return a dataclass as `@dataclass(slots=True)` does. A method of the class itself stays."""
    made: Any = _make(kind)
    if vars(kind).get("__hash__") is None:
        made.__hash__ = None
    return made  # type: ignore[no-any-return]  # as typed, it is the class given


def _make(kind: type, *, inherits_frozen: bool = False) -> Any:
    """Return a dataclass with slots that compares, shows and constructs itself."""
    kind.__doc__ = kind.__doc__ or kind.__name__  # else a dataclass reads its own signature
    made: Any = dataclass(frozen=inherits_frozen, slots=True, init=False, eq=False, repr=False)(kind)
    shown = [each.name for each in fields(made) if each.repr]
    read = attrgetter(*(each.name for each in fields(made) if each.compare))

    def __eq__(self: Any, other: Any) -> Any:
        return read(self) == read(other) if other.__class__ is self.__class__ else NotImplemented

    @recursive_repr()
    def __repr__(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    _add(made, kind, __eq__, __repr__)
    if "__init__" not in vars(kind):
        made.__init__ = _Constructor(made)
        _uncompiled.add(made)
    return made


def _add(made: Any, kind: type, *methods: Callable[..., Any]) -> None:
    for method in methods:
        if vars(kind).get(method.__name__) is None:  # None: no hash beside a comparison of the class itself
            setattr(made, method.__name__, method)


class _Constructor:
    """Stand for the constructor of a dataclass until the first instance, or a look at its signature, asks for it.

    Two threads may both compile it, and get the same.
    """

    def __init__(self, made: Any) -> None:
        self._made = made

    def __get__(self, instance: object, owner: type) -> Any:
        self._made.__init__ = constructor = _compile_constructor(self._made)
        _uncompiled.discard(self._made)
        return constructor if instance is None else MethodType(constructor, instance)


class _Factory:
    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()
"""The default of a parameter whose field has a factory."""


def _compile_constructor(made: Any) -> Callable[..., None]:
    """Return a constructor with a parameter for each field, from a text like that of a dataclass."""
    scope: dict[str, Any] = {"_FACTORY": _FACTORY}
    by_place, by_name, lines, names, annotations = ["self"], list[str](), list[str](), list[str](), dict[str, Any]()
    for each in fields(made):
        name, default = each.name, f"_default_{each.name}"
        scope[default] = each.default if each.default_factory is MISSING else _FACTORY
        if each.init:
            annotations[name] = each.type
            (by_name if each.kw_only else by_place).append(name if scope[default] is MISSING else f"{name}={default}")
        elif scope[default] is MISSING:
            continue
        else:
            lines.append(f"{name} = {default}")
        if scope[default] is _FACTORY:
            scope[f"_make_{name}"] = each.default_factory
            lines.append(f"if {name} is _FACTORY: {name} = _make_{name}()")
        names.append(name)
    if made.__dataclass_params__.frozen:
        draft, values = _make_draft(made), "".join(f"{each}, " for each in names)
        scope |= {"_made": made if draft is not None else None, "_draft": draft}
        scope |= {"_set_class": object.__setattr__, "_set_all": _set_all}
        assignments = "".join(f"; self.{each} = {each}" for each in names)
        lines.append(f"if self.__class__ is not _made: _set_all(self, {names!r}, ({values}))")
        lines.append(f"else: _set_class(self, '__class__', _draft){assignments}; self.__class__ = _made")
    else:
        lines += [f"self.{each} = {each}" for each in names]
    if hasattr(made, "__post_init__"):
        lines.append("self.__post_init__()")
    parameters = by_place + (["*", *by_name] if by_name else [])
    exec("\n ".join([f"def __init__({', '.join(parameters)}):", *(lines or ["pass"])]), scope)
    constructor: Callable[..., None] = scope["__init__"]
    constructor.__qualname__ = f"{made.__qualname__}.__init__"
    constructor.__annotations__ = {**annotations, "return": None}
    return constructor


def _make_draft(made: Any) -> type | None:
    """Return a class with the same slots that can be set: an instance is of it until its constructor has set them.

    `object.__setattr__` for each of fifteen fields takes six times as long. None where a base would notice the class.
    """
    slots = {"__slots__": made.__slots__, "__setattr__": object.__setattr__}
    if type(made) is not type or any("__init_subclass__" in vars(base) for base in made.__mro__[1:-1]):
        return None
    return type(made.__name__, made.__bases__, slots)


def _set_all(made: Any, names: Sequence[str], values: Sequence[Any]) -> None:
    """Set the fields of an instance without a draft: its class may have further slots."""
    for name, value in zip(names, values, strict=True):
        object.__setattr__(made, name, value)
