"""Read YAML as plain data, with the position of every key and value.

Values are JSON's: mappings with text keys, lists, text, numbers, booleans, null. Anchors, aliases, merge keys, foreign
tags and duplicate keys are refused at their position. Dates and times (`12:30`) are text.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, NoReturn

from .positions import Place, format_path
from .problems import Problem, error_at

if TYPE_CHECKING:
    from collections.abc import Collection

    from .positions import KeyPath, Positions

MAX_DEPTH = 64
"""Nested mappings and lists."""
MAX_VALUES = 100_000
"""Values of one file."""
MAX_PROBLEMS = 100
"""Reading stops after so many problems."""

_TAG = "tag:yaml.org,2002:"
_KINDS = {"ScalarEvent": "str int float bool null", "SequenceStartEvent": "seq", "MappingStartEvent": "map"}
_ALLOWED_TAGS = {event: {_TAG + kind for kind in kinds.split()} for event, kinds in _KINDS.items()}
_OTHER_BREAKS = re.compile("[\r\x85\u2028\u2029]")
"""Line ends of YAML, but not of editors."""
_UNPRINTABLE_ASCII = r"[^\t\n\r\x20-\x7e]"
_UNPRINTABLE = "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"


class Unreadable(Exception):
    """Reading cannot continue because of `problem`."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(str(problem))


def read_yaml(
    text: str, positions: Positions, *, first_line: int = 1, as_text: Collection[KeyPath] = ()
) -> tuple[Any, list[Problem]]:
    """Return the data of one YAML document and its problems; fill `positions`.

    `first_line` is the file's line number of the first line of `text`. Plain numbers at a path of `as_text` stay text.
    Raises `Unreadable` when reading cannot continue.
    """
    text = text.lstrip("\ufeff")
    positions.values[()] = first_line, 1
    match = re.search(_UNPRINTABLE_ASCII if text.isascii() else _UNPRINTABLE, text)  # the latter compiles for 4 ms
    if match:
        place = place_of(text, match.start(), positions.file, first_line)
        raise Unreadable(error_at(place, "AMP211", f"character U+{ord(match[0]):04X} is not allowed here"))
    return _Reader(text, positions, first_line, as_text).read()


def place_of(text: str, index: int, file: str, first_line: int = 1) -> Place:
    """Return the position in `file` of the character at `index` of `text`."""
    line_start = text.rfind("\n", 0, index) + 1
    return Place(file, text.count("\n", 0, index) + first_line, index - line_start + 1)


class _Reader:
    """Turns parser events into data, without keeping the events."""

    def __init__(self, text: str, positions: Positions, first_line: int, as_text: Collection[KeyPath]) -> None:
        import yaml

        self._yaml = yaml
        self._text = text
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))] if _OTHER_BREAKS.search(text) else None
        self._positions = positions
        self._first_line = first_line
        self._as_text = as_text
        self._problems: list[Problem] = []
        self._values = 0
        self._loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
        self._next = self._loader.get_event

    def read(self) -> tuple[Any, list[Problem]]:
        try:
            return self._document(), self._problems
        except self._yaml.YAMLError as error:
            raise Unreadable(self._syntax_problem(error)) from error
        finally:
            self._loader.dispose()

    def _document(self) -> Any:
        self._next()
        if type(self._loader.peek_event()).__name__ == "StreamEndEvent":
            return None
        self._next()
        data = self._value(self._next(), (), 0)
        self._next()
        after = self._next()
        if type(after).__name__ != "StreamEndEvent":
            self._refuse(self._spot(after), "AMP203", "a second YAML document begins here; a bundle is one")
        return data

    def _spot(self, event: Any, path: KeyPath = ()) -> Place:
        line, column = self._mark(event.start_mark)
        return Place(self._positions.file, line, column, format_path(path))

    def _mark(self, mark: Any) -> tuple[int, int]:
        if self._starts is None:
            return mark.line + self._first_line, mark.column + 1
        line = bisect_right(self._starts, mark.index)
        return line - 1 + self._first_line, mark.index - self._starts[line - 1] + 1

    def _refuse(self, place: Place, code: str, message: str) -> None:
        problem = error_at(place, code, message)
        if len(self._problems) >= MAX_PROBLEMS:
            raise Unreadable(problem)
        self._problems.append(problem)

    def _value(self, event: Any, path: KeyPath, depth: int) -> Any:
        self._values += 1
        if depth > MAX_DEPTH or self._values > MAX_VALUES:
            self._give_up(event, path, depth)
        self._positions.values[path] = self._mark(event.start_mark)
        kind = type(event).__name__
        if event.anchor is not None:
            named = "alias" if kind == "AliasEvent" else "anchor"
            remedy = "write the value out here, or quote it if it is text"
            self._refuse(self._spot(event, path), "AMP204", f"YAML {named} '{event.anchor[:40]}'; {remedy}")
        if kind == "AliasEvent":
            self._positions.refused.add(path)
            return None
        if event.tag not in (None, "!") and event.tag not in _ALLOWED_TAGS[kind]:
            self._refuse(self._spot(event, path), "AMP205", "YAML tag; remove it, values are plain data here")
        if kind == "MappingStartEvent":
            return self._mapping(path, depth)
        if kind == "SequenceStartEvent":
            return self._sequence(path, depth)
        return self._scalar(event, path)

    def _give_up(self, event: Any, path: KeyPath, depth: int) -> NoReturn:
        if depth > MAX_DEPTH:
            place = self._spot(event, path[:4])
            raise Unreadable(error_at(place, "AMP208", f"nested deeper than {MAX_DEPTH} levels"))
        raise Unreadable(error_at(self._spot(event, path), "AMP209", f"more than {MAX_VALUES:,} values"))

    def _sequence(self, path: KeyPath, depth: int) -> list[Any]:
        items: list[Any] = []
        while type(event := self._next()).__name__ != "SequenceEndEvent":
            items.append(self._value(event, (*path, len(items)), depth + 1))
        return items

    def _mapping(self, path: KeyPath, depth: int) -> dict[str, Any]:
        data: dict[str, Any] = {}
        keys, depth = self._positions.keys, depth + 1
        while type(event := self._next()).__name__ != "MappingEndEvent":
            key = self._key(event, path, depth)
            inner = (*path, key)
            if key in data:
                line, column = keys[inner]
                message = f"this key stands here twice; first at {self._positions.file}:{line}:{column}"
                self._refuse(self._spot(event, inner), "AMP206", message)
            keys[inner] = self._mark(event.start_mark)
            value = self._value(self._next(), inner, depth)
            data.setdefault(key, value)
        return data

    def _key(self, event: Any, path: KeyPath, depth: int) -> str:
        if type(event).__name__ != "ScalarEvent":
            self._refuse(self._spot(event, path), "AMP207", "a key must be text")
            self._value(event, (*path, "?"), depth)
            return "?"
        tag = self._tag(event)
        if event.anchor is not None or tag == _TAG + "merge":
            self._refuse(self._spot(event, path), "AMP204", "anchors and merge keys ('<<') are refused; write it out")
        elif tag in _ALLOWED_TAGS["ScalarEvent"] and tag != _TAG + "str" and event.value != "on":
            shown = event.value[:40]
            self._refuse(self._spot(event, path), "AMP207", f"a key must be text; write '{shown}' in quotes")
        elif event.tag not in (None, "!", _TAG + "str"):
            self._refuse(self._spot(event, path), "AMP205", "YAML tag; remove it, keys are plain text here")
        return str(event.value)

    def _tag(self, event: Any) -> str:
        if event.tag not in (None, "!"):
            return str(event.tag)
        if not event.implicit[0]:
            return _TAG + "str"
        return str(self._loader.resolve(self._yaml.ScalarNode, event.value, event.implicit))

    def _scalar(self, event: Any, path: KeyPath) -> Any:
        tag, text = self._tag(event), event.value
        if tag == _TAG + "null":
            return None
        number = tag in (_TAG + "int", _TAG + "float")
        if tag != _TAG + "bool" and (not number or ":" in text or (event.tag is None and path in self._as_text)):
            return text
        try:
            value = getattr(self._loader, f"construct_yaml_{tag.removeprefix(_TAG)}")(self._yaml.ScalarNode(tag, text))
            finite = math.isfinite(value)
        except (ValueError, LookupError, OverflowError):  # the last: a whole number of hundreds of digits
            self._refuse(self._spot(event, path), "AMP213", "not a number or boolean that can be read")
            return None
        if not finite:
            self._refuse(self._spot(event, path), "AMP213", "must be a finite number")
        return value

    def _syntax_problem(self, error: Any) -> Problem:
        mark = getattr(error, "problem_mark", None)
        if mark is None:
            return error_at(Place(self._positions.file), "AMP203", " ".join(str(error).split()))
        if "tab character" in (error.problem or "") or self._text[mark.index : mark.index + 1] == "\t":
            place = place_of(self._text, min(mark.index, len(self._text)), self._positions.file, self._first_line)
            return error_at(place, "AMP214", "a tab; YAML is indented with spaces")
        if "nesting depth" in (error.problem or ""):  # the parser has a limit of its own
            place = place_of(self._text, mark.index, self._positions.file, self._first_line)
            return error_at(place, "AMP208", f"nested deeper than {MAX_DEPTH} levels")
        from .yaml_errors import explain

        index, message = explain(self._yaml, error, self._text)
        start = getattr(error, "context_mark", None)
        if error.context and start is not None and start.line != mark.line and index == mark.index:
            message += f" ({error.context.removeprefix('while ')} that begins in line {self._mark(start)[0]})"
        return error_at(place_of(self._text, index, self._positions.file, self._first_line), "AMP203", message)
