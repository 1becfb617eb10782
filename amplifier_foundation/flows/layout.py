"""Give each step of a described workflow its place in a picture, and each fork a way that crosses no box.

Steps stand below each other in a `Column`; a `Frame` is a step with columns side by side. To the left of a column are
its lanes: a fork leaves its source to the left, goes along lanes and through the room at the top or the bottom of
frames, and comes to its task from above. Sizes are pixels; text is measured in characters of one width.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple
from unicodedata import combining, east_asian_width

from .description import described_tasks, steps_below, tasks_before
from .drawing import kind_of, title_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .description import Plain

SIGN = 7.5
"""Width of a character."""
LINE = 17
"""Height of a line of text."""
GAP = 46
"""Room between two steps, for an arrow and a word beside it."""
ROOM = 60
"""Room between the text of a frame and its columns: from above for a word, the arrows to the columns, and forks."""
FORKS = 20
"""Distance of the forks' lines from the box below them; beside it stands the word of each."""
WIDEST = 900
"""Room for columns side by side."""
LANE = 9
PAD = 14
RETURN = 26
"""Room at the right of a loop for the arrow back."""
NARROW, WIDE = 16, 34
"""Characters of the shortest and the longest line in a box."""

Point = tuple[float, float]


@dataclass(slots=True, eq=False)
class Box:
    """A task, or a frame, at its place; `lines` is its text, and `foot` the text at the end of a frame."""

    step: Plain
    lines: list[str]
    depth: int
    columns: list[Column] = field(default_factory=list)
    rows: list[list[Column]] = field(default_factory=list)
    """The columns that stand side by side; of many, the rest stands below."""
    words: list[str] = field(default_factory=list)
    """A word above each column."""
    foot: list[str] = field(default_factory=list)
    x: float = 0
    y: float = 0
    width: float = 0
    height: float = 0

    @property
    def middle(self) -> float:
        return self.x + self.width / 2

    @property
    def bottom(self) -> float:
        return self.y + self.height

    @property
    def end(self) -> float:
        """The top of its foot."""
        return self.bottom - PAD / 2 - (len(self.foot) * LINE + 8 if self.foot else 0)


@dataclass(slots=True, eq=False)
class Column:
    """Boxes below each other, with lanes to their left: the number of each source's lane by its id."""

    boxes: list[Box]
    lanes: dict[str, int] = field(default_factory=dict)
    spans: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The first and the last box that each source's line passes."""
    x: float = 0
    y: float = 0
    width: float = 0
    height: float = 0
    floor: float = 0
    """The bottom of the longest column beside it."""

    @property
    def middle(self) -> float:
        """The axis of its boxes."""
        return self.x + (self.width + self.margin) / 2

    @property
    def margin(self) -> float:
        return (max(self.lanes.values()) + 1) * LANE + 2 if self.lanes else 0

    def lane_of(self, source: str) -> float:
        """Return the place of the lane of a source; the first one is next to the boxes."""
        return self.x + self.margin - (self.lanes[source] + 1) * LANE


class Edge(NamedTuple):
    """A way from one task to another; `fork` or `wait`."""

    source: str
    target: str
    kind: str


class Stop(NamedTuple):
    """A box on the way down to a task, and its place: in which column, and the how manieth."""

    column: Column
    number: int

    @property
    def box(self) -> Box:
        return self.column.boxes[self.number]


class Layout:
    """The picture of the described steps of a workflow; `notes` adds lines to the text of a task."""

    def __init__(self, steps: list[Plain], notes: Callable[[Plain, int], list[str]]) -> None:
        self._notes = notes
        self._stops: dict[str, tuple[Stop, ...]] = {}
        self.top = self._make_column(steps, 0, ())
        self._ways = dict(self._find_ways(steps))
        for edge, way in self._ways.items():
            for column, first, last in way.spans:
                known = column.spans.setdefault(edge.source, (first, last))
                column.spans[edge.source] = min(known[0], first), max(known[1], last)
        self._measure(self.top)
        self._place(self.top, PAD, PAD)
        self.width, self.height = self.top.width + 2 * PAD, self.top.height + 2 * PAD

    def boxes(self, column: Column | None = None) -> Iterator[Box]:
        """Yield all boxes, frames before what is in them."""
        for box in (column or self.top).boxes:
            yield box
            for each in box.columns:
                yield from self.boxes(each)

    def columns(self) -> Iterator[Column]:
        """Yield all columns."""
        yield self.top
        for box in self.boxes():
            yield from box.columns

    def ways(self) -> Iterator[tuple[Edge, list[Point]]]:
        """Yield the edges with the corners of their ways."""
        numbers = {source: number for number, source in enumerate(dict.fromkeys(edge.source for edge in self._ways))}
        for edge, way in self._ways.items():
            yield edge, list(way.points(edge, numbers[edge.source]))

    # what stands where

    def _make_column(self, steps: list[Plain], depth: int, above: tuple[Stop, ...]) -> Column:
        column = Column([])
        for step in _flatten(steps):
            stops = (*above, Stop(column, len(column.boxes)))
            column.boxes.append(self._make_box(step, depth, stops))
        return column

    def _make_box(self, step: Plain, depth: int, stops: tuple[Stop, ...]) -> Box:
        if "id" in step:
            self._stops[step["id"]] = stops
            return Box(step, [cut(step["id"], WIDE), cut(kind_of(step), WIDE), *self._notes(step, depth)], depth)
        title, foot = title_of(step), []
        if "loop" in step:
            title, until = f"loop, at most {step['max_iterations']} times", title.partition(", at most")[0]
            foot = wrap(until.removeprefix("again "), WIDE, 3)
        box = Box(step, [*wrap(title, WIDE, 3), *self._notes(step, depth)], depth, foot=foot)
        inner = depth + 1 if "loop" in step or "for_each" in step else depth
        for word, below in [("", [each]) for each in step["parallel"]] if "parallel" in step else steps_below(step):
            box.words.append(word)
            box.columns.append(self._make_column(below, inner, stops))
        return box

    def _measure(self, column: Column) -> None:
        free: list[int] = []  # the last box that each lane is taken to
        for source, (first, last) in sorted(column.spans.items(), key=lambda item: item[1]):
            lane = next((number for number, end in enumerate(free) if end < first), len(free))
            free[lane:] = [last, *free[lane + 1 :]]
            column.lanes[source] = lane
        for box in column.boxes:
            for each in box.columns:
                self._measure(each)
            text = max(measure(line) for line in (*box.lines, *box.foot, " " * NARROW)) * SIGN + 2 * PAD
            box.rows = list(_break_rows(box.columns))
            edges = 2 * PAD + (2 * RETURN if box.foot else 2 * PAD if len(box.rows) > 1 else 0)
            inner = max((_width_of(row) for row in box.rows), default=0) + edges
            box.width = max(text, inner) if box.columns else text + LINE
            box.height = len(box.lines) * LINE + PAD
            box.height += sum(ROOM + max(each.height for each in row) for row in box.rows)
            box.height += PAD if box.columns else 0
            box.height += len(box.foot) * LINE + 32 if box.foot else 0
        column.width = max((box.width for box in column.boxes), default=0) + column.margin
        column.height = sum(box.height for box in column.boxes) + GAP * max(0, len(column.boxes) - 1)

    def _place(self, column: Column, x: float, y: float) -> None:
        column.x, column.y = x, y
        for box in column.boxes:
            box.x, box.y = x + column.margin + (column.width - column.margin - box.width) / 2, y
            top = y + len(box.lines) * LINE + PAD / 2
            for row in box.rows:
                left, top = box.middle - _width_of(row) / 2, top + ROOM
                floor = top + max(each.height for each in row)
                for each in row:
                    each.floor = floor
                    self._place(each, left, top)
                    left += each.width + GAP / 2
                top = floor
            y += box.height + GAP

    # the ways of forks

    def _find_ways(self, steps: list[Plain]) -> Iterator[tuple[Edge, Way]]:
        for task in described_tasks(steps):
            named = {task["fork"]: "fork"} if "fork" in task else {}
            named = {**dict.fromkeys(tasks_before(task), "wait"), **named}
            for source, kind in named.items():
                if source in self._stops:
                    way = Way(self._stops[source], self._stops[task["id"]])
                    if kind == "fork" or not way.is_in_order:
                        yield Edge(source, task["id"], kind), way


class Way:
    """The way from one task to another: up to what holds both, and down again."""

    def __init__(self, source: tuple[Stop, ...], target: tuple[Stop, ...]) -> None:
        shared = 0
        while source[shared] == target[shared]:
            shared += 1
        self._up, self._down = source[shared:], target[shared:]
        self._frame = target[shared - 1].box if shared else None
        """The frame that holds both."""
        self.is_in_order = self._up[0].column is self._down[0].column

    @property
    def is_next(self) -> bool:
        """Whether its task stands right below its source."""
        close = self._down[0].number - self._up[0].number == 1
        return self.is_in_order and close and len(self._up) == len(self._down) == 1

    @property
    def spans(self) -> Iterator[tuple[Column, int, int]]:
        """Yield the columns whose lanes it uses, each with the numbers of the boxes that it passes."""
        if self.is_next:
            return
        if self.is_in_order:
            yield self._up[0].column, self._up[0].number, self._down[0].number
        else:
            yield self._up[0].column, -1, self._up[0].number
        for stop in self._up[1:]:
            yield stop.column, stop.number, len(stop.column.boxes)
        for stop in self._down[1 if self.is_in_order else 0 :]:
            if not self._drops(stop):
                yield stop.column, -1, stop.number

    def _drops(self, stop: Stop) -> bool:
        """Return whether it comes to a task straight from the upper line of the frame around it."""
        return stop is self._down[-1] and stop.number == 0 and not (self.is_in_order and stop is self._down[0])

    def points(self, edge: Edge, number: int) -> Iterator[Point]:
        """Yield its corners; `number` is that of its source, so that the lines of two sources keep apart."""
        room = FORKS + number % 3 * 6
        source, target = self._up[-1].box, self._down[-1].box
        end = target.x + 24 if edge.kind == "fork" else target.x + target.width - 24
        if self.is_next:
            end = max(end, source.x + 24)
            yield from ((end, source.bottom), (end, target.y))
            return
        x, y = source.x, source.y + source.height / 2
        yield x, y
        for stop, above in zip(reversed(self._up), [*reversed(self._up[:-1]), None], strict=True):
            x = stop.column.lane_of(edge.source)
            yield x, y
            if above is not None:
                y = stop.column.floor + 6 + number % 3 * 4
            elif self._frame is not None and not self.is_in_order:
                y = stop.column.y - room
            else:
                break
            yield x, y
        if self._frame is not None and self._up[0].column.y != self._down[0].column.y and not self.is_in_order:
            yield self._frame.x + PAD, y
            y = self._down[0].column.y - room
            yield self._frame.x + PAD, y
        for stop, below in zip(self._down, [*self._down[1:], None], strict=True):
            if not self._drops(stop):
                lane = stop.column.lane_of(edge.source)
                yield lane, y
                y = (below.column.y if below is not None else stop.box.y) - room
                yield lane, y
        yield end, y
        yield end, target.y


def _break_rows(columns: list[Column]) -> Iterator[list[Column]]:
    row: list[Column] = []
    for column in columns:
        if row and _width_of([*row, column]) > WIDEST:
            yield row
            row = []
        row.append(column)
    if row:
        yield row


def _width_of(row: list[Column]) -> float:
    return sum(each.width for each in row) + GAP / 2 * (len(row) - 1)


def _flatten(steps: list[Plain]) -> Iterator[Plain]:
    for step in steps:
        if "sequence" in step:
            yield from _flatten(step["sequence"])
        else:
            yield step


def measure(text: str) -> int:
    """Return the width of a text in characters; an East Asian one counts twice."""
    return sum(0 if combining(each) else 2 if east_asian_width(each) in "WF" else 1 for each in text)


def cut(text: str, length: int) -> str:
    """Return a text of at most `length` characters; a longer one loses its middle."""
    if measure(text) <= length:
        return text
    half = (length - 1) // 2 // (2 if measure(text) > len(text) else 1)
    return f"{text[:half]}…{text[-half:]}"


def wrap(text: str, length: int, most: int) -> list[str]:
    """Return the lines of a text, at most so many."""
    length = length // 2 if measure(text) > len(text) else length
    return textwrap.wrap(text, length, max_lines=most, placeholder=" …") or [""]
