"""Rules and how one is chosen: the first whose `when` fits the last message."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .steps import Step, seen
from .templates import fill, fill_text

if TYPE_CHECKING:
    import re
    from collections.abc import Mapping, Sequence

SEARCH_LIMIT = 64 * 1024
"""Characters of a message that a pattern is searched in: Python's `re` knows no time limit."""


@dataclass(frozen=True, slots=True)
class When:
    """What a rule waits for: the user's text, or a tool's result."""

    user: re.Pattern[str] | None = None
    tool: str = ""
    where: Mapping[str, Any] = field(default_factory=dict)
    output: re.Pattern[str] | None = None

    def match(self, step: Step) -> dict[str, str] | None:
        """Return the named groups when `step` fits (none: an empty dict), else None."""
        if self.user is not None:
            return _search(self.user, step.text) if step.role == "user" else None
        if step.role != "tool" or step.tool != self.tool or not self._holds(step.fields):
            return None
        return _search(self.output, step.text) if self.output is not None else {}

    def _holds(self, fields: Mapping[str, Any]) -> bool:
        return all(name in fields and _same(fields[name], wanted) for name, wanted in self.where.items())


@dataclass(frozen=True, slots=True)
class Call:
    """A tool to call, and the template of its input."""

    tool: str
    input: dict[str, Any]

    def fill(self, names: Mapping[str, Any]) -> Call:
        """Return the call with the names of its input replaced. Raises `UnknownPlaceholder`."""
        return Call(self.tool, fill(self.input, names))


@dataclass(frozen=True, slots=True)
class Answer:
    """What to say and to call; `place` is where it stands in the configuration, as in `rules[2]`."""

    place: str
    say: str | None = None
    calls: tuple[Call, ...] = ()

    def fill(self, names: Mapping[str, Any]) -> Answer:
        """Return the answer with its names replaced. Raises `UnknownPlaceholder`."""
        say = None if self.say is None else fill_text(self.say, names)
        return Answer(self.place, say, tuple(call.fill(names) for call in self.calls))


@dataclass(frozen=True, slots=True)
class Rule:
    """One answer and what it waits for."""

    when: When
    answer: Answer


@dataclass(frozen=True, slots=True)
class Playbook:
    """The rules of one bundle. It keeps no state: the same conversation always gets the same answer."""

    rules: tuple[Rule, ...] = ()
    otherwise: Answer | None = None
    delay: float = 0.0
    """Seconds to wait before each answer."""
    priority: int = 100

    def choose(self, step: Step) -> Answer | None:
        """Return the answer of the first rule that fits, or the one for everything else, or None."""
        return next((rule.answer for rule in self.rules if rule.when.match(step) is not None), self.otherwise)

    def names(self, steps: Sequence[Step]) -> dict[str, Any]:
        """Return the values that an answer may name, gathered over the conversation; later ones win.

        Named groups are those of the rules that answered; of a tool's result, the plain top-level fields. `prompt` and
        `result` (the latest) always mean the texts of the user and of the tool.
        """
        gathered: dict[str, Any] = {}
        texts: dict[str, str] = {}
        for step, was_asked in seen(steps):
            if step.role != "assistant":
                texts["prompt" if step.role == "user" else "result"] = step.text
            gathered.update((key, value) for key, value in step.fields.items() if not isinstance(value, (dict, list)))
            if was_asked:
                gathered.update(self._groups(step))
        return gathered | texts

    def _groups(self, step: Step) -> dict[str, str]:
        matches = (rule.when.match(step) for rule in self.rules)
        return next((groups for groups in matches if groups is not None), {})


def _search(pattern: re.Pattern[str], text: str) -> dict[str, str] | None:
    found = pattern.search(text, 0, SEARCH_LIMIT)
    return None if found is None else found.groupdict(default="")


def _same(value: Any, wanted: Any) -> bool:
    """Compare as JSON does, where `true` is not 1."""
    return isinstance(value, bool) == isinstance(wanted, bool) and bool(value == wanted)
