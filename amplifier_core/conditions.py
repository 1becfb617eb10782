"""Read and evaluate conditions: small expressions on data, such as `data.exit_code != 0 and name in ['build', 'test']`.

    condition   = and ("or" and)*
    and         = not ("and" not)*
    not         = "not" not | comparison
    comparison  = value [("==" | "!=" | "<" | "<=" | ">" | ">=" | "in" | "not" "in") value]
    value       = "(" condition ")" | path | text | number | "true" | "false" | "null" | "[" [value ("," value)*] "]"
    path        = name ("." (name | digits))*

There is nothing else: no calls, no attributes, no arithmetic. A condition reads its data and nothing of Python: a path
goes into mappings by key and into lists by number, and an absent value is null.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .errors import AmplifierError
from .frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .triggers import TriggerEvent

LONGEST = 2_000
"""The most characters of a condition."""
DEEPEST = 50
"""The most parentheses, lists and `not`s within each other."""

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.]))
    |(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    |(?P<word>[^\W\d][\w-]*(?:\.[\w-]+)*)
    |(?P<sign>==|!=|<=|>=|<|>|\(|\)|\[|\]|,))""",
    re.VERBOSE | re.DOTALL,
)
_CONSTANTS = {"true": True, "false": False, "null": None}
_RESERVED = frozenset({"and", "or", "not", "in"})


class ConditionError(AmplifierError, ValueError):
    """A condition cannot be read; `column` (from 1) is the place, `condition` the whole text."""

    def __init__(self, condition: str, column: int, message: str) -> None:
        self.condition, self.column, self.message = condition, column, message
        super().__init__(f"column {column}: {message}")

    @property
    def caret(self) -> str:
        """The condition, and below it a caret under the column."""
        line = "".join(letter if letter.isprintable() else " " for letter in self.condition)
        return f"{line}\n{' ' * (self.column - 1)}^"


class _Token(NamedTuple):
    kind: str
    text: str
    column: int


@frozen
class _Literal:
    value: Any

    def of(self, data: Mapping[str, Any]) -> Any:
        return self.value

    def paths(self) -> Iterator[str]:
        return iter(())


@frozen
class _Path:
    steps: tuple[str, ...]

    def of(self, data: Mapping[str, Any]) -> Any:
        value: Any = data
        for step in self.steps:
            if isinstance(value, Mapping):
                value = value.get(step)
            elif isinstance(value, list | tuple) and step.isascii() and step.isdigit():
                value = value[int(step)] if len(step) < 10 and int(step) < len(value) else None
            else:
                return None
        return value

    def paths(self) -> Iterator[str]:
        yield ".".join(self.steps)


@frozen
class _Of:
    """A combination of the values of its parts."""

    combine: Callable[[Iterator[Any]], Any]
    parts: tuple[_Node, ...]

    def of(self, data: Mapping[str, Any]) -> Any:
        return self.combine(part.of(data) for part in self.parts)

    def paths(self) -> Iterator[str]:
        for part in self.parts:
            yield from part.paths()


_Node = _Literal | _Path | _Of


@frozen
class Condition:
    """A condition, made by `parse`."""

    text: str
    _root: _Node

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Read a condition. Raises `ConditionError`, also for an expression too long or too deep."""
        if len(text) > LONGEST:
            raise ConditionError(text, LONGEST + 1, f"a condition has at most {LONGEST} characters, this {len(text)}")
        return cls(text, _Parser(text).parse())

    def holds(self, data: Mapping[str, Any]) -> bool:
        """Return whether the condition is true of `data`; a lone value is true unless null, false, 0 or empty.

        Never raises for JSON data. Values of different types are unequal, and a comparison of their order is false;
        whole numbers and others are one type, true and false are not numbers.
        """
        try:
            return _truth(self._root.of(data))
        except RecursionError:  # two values too deep for a comparison in Python
            return False

    def paths(self) -> tuple[str, ...]:
        """Return the dotted paths in the condition, each once, in their order."""
        return tuple(dict.fromkeys(self._root.paths()))


def facts_of(event: TriggerEvent) -> dict[str, Any]:
    """Return the data of one event for the `if:` of a background session.

        {"type": "file_change", "source": "trigger-file-watcher", "timestamp": "2026-01-31T09:00:00+00:00",
         "data": {…}, "file_path": "src/a.py", "change_type": "modified", "event_name": null,
         "source_session_id": null, "depth": 0}

    `data` is the trigger's own; facts of other kinds of events are null.
    """
    return {
        "type": event.type.value,
        "source": event.source,
        "timestamp": event.timestamp.isoformat(),
        "data": event.data,
        "file_path": event.file_path,
        "change_type": event.change_type,
        "event_name": event.event_name,
        "source_session_id": event.source_session_id,
        "depth": event.depth,
    }


class _Parser:
    """Reads one condition from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._next = 0
        self._depth = 0

    def parse(self) -> _Node:
        root = self._any()
        if self._token.kind != "end":
            raise self._error(f"expected 'and', 'or' or the end, not {self._token.text!r}")
        return root

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _error(self, message: str) -> ConditionError:
        return ConditionError(self._text, self._token.column, message)

    def _take(self, *texts: str) -> str:
        """Consume and return the next word or sign if it is one of `texts`; else return an empty text."""
        token = self._token
        if token.kind in ("word", "sign") and token.text in texts:
            self._next += 1
            return token.text
        return ""

    def _need(self, sign: str) -> None:
        if not self._take(sign):
            raise self._error(f"expected {sign!r}, {self._found()}")

    def _found(self) -> str:
        return "not the end" if self._token.kind == "end" else f"not {self._token.text!r}"

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            self._next -= 1  # back to the taken token
            raise self._error(f"nested deeper than {DEEPEST}")

    def _any(self) -> _Node:
        return self._join("or", self._all, lambda values: any(map(_truth, values)))

    def _all(self) -> _Node:
        return self._join("and", self._not, lambda values: all(map(_truth, values)))

    def _join(self, word: str, part: Callable[[], _Node], combine: Callable[[Iterator[Any]], Any]) -> _Node:
        parts = [part()]
        while self._take(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else _Of(combine, tuple(parts))

    def _not(self) -> _Node:
        if not self._take("not"):
            return self._comparison()
        self._deeper()
        negated = _Of(lambda values: not _truth(next(values)), (self._not(),))
        self._depth -= 1
        return negated

    def _comparison(self) -> _Node:
        left = self._value()
        sign = self._take(*_COMPARISONS)
        if not sign and self._take("not"):
            self._need("in")
            sign = "not in"
        if not sign:
            return left
        compare = _COMPARISONS[sign]
        compared = _Of(lambda values: compare(next(values), next(values)), (left, self._value()))
        if self._take(*_COMPARISONS):
            self._next -= 1
            raise self._error("comparisons are not chained: join them with 'and'")
        return compared

    def _value(self) -> _Node:
        if self._take("("):
            self._deeper()
            inner = self._any()
            self._need(")")
            self._depth -= 1
            return inner
        if self._take("["):
            return self._list()
        return self._single()

    def _list(self) -> _Node:
        self._deeper()
        items: list[_Node] = []
        while not self._take("]"):
            if items:
                self._need(",")
            items.append(self._value())
        self._depth -= 1
        return _Of(list, tuple(items))

    def _single(self) -> _Node:
        token = self._token
        if token.kind not in ("number", "text", "word") or token.text in _RESERVED:
            raise self._error(f"expected a value, {self._found()}")
        self._next += 1
        if token.kind == "word":
            if token.text in _CONSTANTS:
                return _Literal(_CONSTANTS[token.text])
            return _Path(tuple(token.text.split(".")))
        if token.kind == "number":
            return _Literal(float(token.text) if set(token.text) & set(".eE") else int(token.text))
        return _Literal(re.sub(r"\\(.)", r"\1", token.text[1:-1], flags=re.DOTALL))


def _tokens(text: str) -> Iterator[_Token]:
    position, end = 0, len(text.rstrip())
    while position < end:
        found = _TOKEN.match(text, position)
        if found is None:
            raise _unreadable(text, position)
        kind = found.lastgroup or ""
        yield _Token(kind, found[kind], found.start(kind) + 1)
        position = found.end()
    yield _Token("end", "", end + 1)


def _unreadable(text: str, position: int) -> ConditionError:
    column = position + 1 + len(text[position:]) - len(text[position:].lstrip())
    letter = text[column - 1]
    if letter in "'\"":
        return ConditionError(text, column, f"the text that begins here has no closing {letter}")
    hint = {"=": "; equal is ==", "&": "; write 'and'", "|": "; write 'or'", "!": "; write 'not'"}.get(letter, "")
    return ConditionError(text, column, f"unexpected {letter!r}{hint}")


def _truth(value: Any) -> bool:
    return bool(value)


def _kind(value: Any) -> type:
    """Return the type for comparisons of a value."""
    for kind in (bool, str, list):
        if isinstance(value, kind):
            return kind
    if isinstance(value, int | float):
        return float
    return list if isinstance(value, tuple) else dict if isinstance(value, Mapping) else type(value)


def _equal(left: Any, right: Any) -> bool:
    kind = _kind(left)
    if kind is not _kind(right):
        return False
    if kind is list:
        return len(left) == len(right) and all(map(_equal, left, right))
    if kind is dict:
        return left.keys() == right.keys() and all(_equal(left[key], right[key]) for key in left)
    return bool(left == right)


def _compare_order(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """Return the comparison for two numbers or two texts; of anything else it is false."""
    return lambda left, right: _kind(left) is _kind(right) and _kind(left) in (float, str) and compare(left, right)


def _within(left: Any, right: Any) -> bool:
    kind = _kind(right)
    if kind is str:
        return isinstance(left, str) and left in right
    if kind is dict:
        return isinstance(left, str) and left in right
    return kind is list and _is_in_list(left, right)


def _is_in_list(left: Any, right: Sequence[Any]) -> bool:
    """Return whether an item equals `left`; the list may be as long as the body of a webhook."""
    if left is None or isinstance(left, str):
        return left in right
    if isinstance(left, bool):
        return any(item is left for item in right)
    if isinstance(left, int | float):
        return any(item == left and item is not True and item is not False for item in right)
    return any(_equal(left, item) for item in right)


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": _equal,
    "!=": lambda left, right: not _equal(left, right),
    "<=": _compare_order(lambda left, right: left <= right),
    ">=": _compare_order(lambda left, right: left >= right),
    "<": _compare_order(lambda left, right: left < right),
    ">": _compare_order(lambda left, right: left > right),
    "in": _within,
    "not in": lambda left, right: not _within(left, right),
}
