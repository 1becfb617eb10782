"""A dataclass of ours behaves as one of the standard library."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import FrozenInstanceError, asdict, dataclass, field, is_dataclass, replace
from inspect import isfunction, signature
from typing import Any, Generic, TypeVar

import pytest

from amplifier_core.frozen import compile_constructors, frozen, slotted

T = TypeVar("T")


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


@slotted
class Count:
    """A class that changes; `unit` is given by name, `seen` never."""

    value: int
    notes: list[str] = field(default_factory=list)
    unit: str = field(default="ms", kw_only=True)
    seen: int = field(default=0, init=False, compare=False)
    made: dict[str, int] = field(default_factory=dict, init=False, repr=False)
    late: str = field(init=False, repr=False, compare=False)


@dataclass(slots=True)
class UsualCount:
    value: int
    notes: list[str] = field(default_factory=list)
    unit: str = field(default="ms", kw_only=True)
    seen: int = field(default=0, init=False, compare=False)
    made: dict[str, int] = field(default_factory=dict, init=False, repr=False)
    late: str = field(init=False, repr=False, compare=False)


@frozen
class Pixel(Point):
    """A frozen class on top of another, with a field that is given by name."""

    colour: str = field(default="red", kw_only=True)


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


def test_a_class_that_changes_is_an_ordinary_dataclass_with_slots() -> None:
    ours, usual = Count(1, unit="s"), UsualCount(1, unit="s")
    assert repr(ours) == repr(usual).removeprefix("Usual") == "Count(value=1, notes=[], unit='s', seen=0)"
    ours.value, ours.seen = 2, 3
    assert (ours == Count(2, unit="s"), ours == Count(2), ours == usual) == (True, False, False)
    assert (Count(1).notes is Count(1).notes, Count(1).made, hasattr(ours, "late")) == (False, {}, False)
    assert replace(ours, value=7) == Count(7, unit="s")
    assert deepcopy(replace(ours, notes=["a"])) == Count(2, ["a"], unit="s")
    with pytest.raises(TypeError, match="unhashable"):
        hash(ours)
    with pytest.raises(AttributeError):
        ours.other = 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("given", [(), (1, [], "s"), (1, [], [])])
def test_a_constructor_refuses_what_that_of_a_dataclass_refuses(given: tuple[Any, ...]) -> None:
    messages = []
    for kind in (Count, UsualCount):
        with pytest.raises(TypeError) as refused:
            kind(*given)
        messages.append(str(refused.value).removeprefix("Usual"))
    assert messages[0] == messages[1]
    with pytest.raises(TypeError, match="seen"):
        Count(1, seen=2)  # type: ignore[call-arg]


@pytest.mark.parametrize(("ours", "usual"), [(Point, Usual), (Count, UsualCount)])
def test_a_constructor_has_the_signature_of_a_dataclass_before_any_instance(ours: type, usual: type) -> None:
    assert str(signature(ours)) == str(signature(usual))
    fresh = frozen(type("Fresh", (), {"__annotations__": {"x": int, "y": list}, "y": field(default_factory=list)}))
    assert str(signature(fresh)) == "(x: int, y: list = <factory>) -> None"
    assert fresh.__init__.__qualname__ == "Fresh.__init__"  # type: ignore[misc]


def test_constructors_may_be_compiled_before_the_first_instance() -> None:
    kind: Any = slotted(type("Kind", (), {"__annotations__": {"x": int}}))
    assert not isfunction(vars(kind)["__init__"])
    compile_constructors()
    assert isfunction(vars(kind)["__init__"])
    assert kind(1).x == 1


def test_a_constructor_may_be_asked_for_by_many_threads_at_once() -> None:
    for _ in range(20):
        kind: Any = slotted(type("Kind", (), {"__annotations__": {"x": int}}))
        with ThreadPoolExecutor(8) as pool:
            assert {made.x for made in pool.map(kind, range(16))} == set(range(16))


def test_a_frozen_class_may_stand_on_top_of_another() -> None:
    pixel: Any = Pixel(1, 2, colour="blue")
    assert (pixel, pixel.colour) == (replace(pixel), "blue")
    assert pixel != Point(1, 2)
    assert deepcopy(pixel) == pixel
    with pytest.raises(FrozenInstanceError):
        pixel.x = 2
    with pytest.raises(ValueError, match="negative"):
        Pixel(-1)

    @dataclass(frozen=True)
    class Usual(Point):
        depth: int = 0

    assert Usual(1, depth=2).depth == 2
    with pytest.raises(TypeError, match="frozen"):
        dataclass(type("Open", (Point,), {}))


def test_a_subclass_without_fields_may_have_attributes_of_its_own() -> None:
    class Marked(Point):
        pass

    marked: Any = Marked(1)
    marked.mark = "x"
    with pytest.raises(FrozenInstanceError):
        marked.x = 2
    with pytest.raises(FrozenInstanceError):
        del marked.y
    del marked.mark
    assert not hasattr(marked, "mark")


def test_a_base_that_counts_its_subclasses_counts_the_class_alone() -> None:
    known = []

    class Counting:
        __slots__ = ()

        def __init_subclass__(cls) -> None:
            known.append(cls.__name__)

    @frozen
    class Counted(Counting, Generic[T]):
        x: int
        y: int = 0

    before = list(known)
    counted: Any = Counted(1)
    assert (counted.x, counted.y, known) == (1, 0, before)
    with pytest.raises(FrozenInstanceError):
        counted.x = 2


def test_an_instance_is_of_its_class_for_its_factories_and_after_its_constructor() -> None:
    seen = []

    @frozen
    class Made:
        x: int
        y: list[int] = field(default_factory=list)

        def __post_init__(self) -> None:
            seen.append(type(self))

    made: Any = Made(1)
    assert (type(made), seen, made.y) == (Made, [Made], [])
    with pytest.raises(FrozenInstanceError):
        made.__class__ = Point
