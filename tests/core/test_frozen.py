"""A frozen dataclass of ours behaves as one of the standard library."""

from __future__ import annotations

import pickle
from copy import deepcopy
from dataclasses import FrozenInstanceError, asdict, dataclass, field, is_dataclass, replace
from typing import Any

import pytest

from amplifier_core.frozen import frozen


@frozen
class Point:
    """A place with a note."""

    x: int
    y: int = 0
    note: str = field(default="", compare=False)
    hidden: list[int] = field(default_factory=list, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("x is negative")


@dataclass(frozen=True, slots=True)
class Usual:
    x: int
    y: int = 0
    note: str = field(default="", compare=False)
    hidden: list[int] = field(default_factory=list, repr=False, compare=False)


@frozen
class Named:
    """A class with methods of its own."""

    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and self.name.lower() == other.name.lower()

    def __repr__(self) -> str:
        return f"<{self.name}>"


@frozen
class Holder:
    """A class with one field, which may hold the object itself."""

    content: list[Any]


def test_it_compares_hashes_and_shows_itself_like_a_dataclass() -> None:
    ours, usual = Point(1, 2, "here"), Usual(1, 2, "here")
    assert repr(ours) == repr(usual).replace("Usual", "Point") == "Point(x=1, y=2, note='here')"
    assert ours == Point(1, 2, "there")
    assert ours != Point(1, 3, "here")
    assert (ours == usual, ours == (1, 2)) == (False, False)
    assert hash(ours) == hash(usual)
    assert len({ours, Point(1, 2), Point(2, 1)}) == 2
    assert Point.__match_args__ == Usual.__match_args__


def test_it_is_frozen_and_has_slots() -> None:
    point: Any = Point(1)
    with pytest.raises(FrozenInstanceError):
        point.x = 2
    with pytest.raises(FrozenInstanceError):
        del point.x
    assert not hasattr(point, "__dict__")
    with pytest.raises(ValueError, match="negative"):
        Point(-1)


def test_the_functions_of_dataclasses_take_it() -> None:
    point = Point(1, hidden=[5])
    assert is_dataclass(point)
    assert asdict(point) == {"x": 1, "y": 0, "note": "", "hidden": [5]}
    assert replace(point, y=7) == Point(1, 7)
    assert deepcopy(point) == pickle.loads(pickle.dumps(point)) == point


def test_methods_of_the_class_stay() -> None:
    assert (Named("a") == Named("A"), repr(Named("a"))) == (True, "<a>")
    assert hash(Named("a")) == hash(Named("a"))


def test_a_class_of_one_field_hashes_by_it_and_shows_a_circle() -> None:
    holder = Holder([])
    holder.content.append(holder)
    assert repr(holder) == "Holder(content=[...])"
    with pytest.raises(TypeError):
        hash(holder)
