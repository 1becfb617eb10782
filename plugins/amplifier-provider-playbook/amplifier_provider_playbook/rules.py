"""Define rules, and choose the first one whose `when` fits the last message."""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import cache, cached_property
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from .steps import Step, mark_asked
from .templates import check, fill, fill_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SEARCH_LIMIT = 64 * 1024
"""Characters of a message to search for a pattern: Python's `re` has no time limit."""
_RESERVED = ("prompt", "result")


def _check_template(value: Any, inside: str = "") -> Any:
    """Check every text within `value`, through lists and mappings; `inside` is the path to it."""
    if isinstance(value, str):
        try:
            check(value)
        except ValueError as error:
            raise PydanticCustomError("template", "{problem}", {"inside": inside, "problem": str(error)}) from None
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_template(item, f"{inside}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_template(item, f"{inside}[{index}]")
    return value


ToolName = Annotated[str, Field(min_length=1)]


@cache
def _known_keys(section: type[BaseModel]) -> tuple[str, ...]:
    return tuple(section.model_fields)


class Section(BaseModel):
    """A mapping in the configuration; an unknown key gets the nearest known one."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, given: Any) -> Any:
        for key in given if isinstance(given, dict) else ():
            if key not in _known_keys(cls):
                close = get_close_matches(str(key), _known_keys(cls), n=1)
                hint = f"did you mean '{close[0]}'?" if close else f"known are {', '.join(_known_keys(cls))}"
                raise PydanticCustomError("unknown_key", "unknown key; {hint}", {"inside": f".{key}", "hint": hint})
        return given


class When(Section):
    """The message for a rule: the user's text, or a tool's result."""

    user: Annotated[re.Pattern[str] | None, Field(description="A regular expression in the user's message.")] = None
    tool: Annotated[ToolName | None, Field(description="The tool of the result.")] = None
    where: Annotated[dict[str, Any], Field(description="Top-level fields of the result, with their values.")] = {}
    output: Annotated[re.Pattern[str] | None, Field(description="A regular expression in the text of the result.")] = (
        None
    )

    @field_validator("user", "output", mode="before")
    @classmethod
    def _compile(cls, value: Any) -> re.Pattern[str]:
        if not isinstance(value, str):
            raise ValueError(f"must be a regular expression in quotes, not {type(value).__name__}")
        try:
            pattern = re.compile(value)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"not a regular expression: {error}") from None
        for name in _RESERVED:
            if name in pattern.groupindex:
                raise ValueError(f"a group cannot be named '{name}': that name always means the whole text")
        return pattern

    @field_validator("where", "output")
    @classmethod
    def _need_tool(cls, value: Any, info: ValidationInfo) -> Any:
        if info.data.get("user") is not None and info.data.get("tool") is None:
            raise ValueError("goes with 'tool', not with 'user'")
        return value

    @model_validator(mode="after")
    def _need_one(self) -> When:
        if (self.user is None) == (self.tool is None):
            raise ValueError("needs either 'user' or 'tool'")
        return self

    def match(self, step: Step) -> dict[str, str] | None:
        """Return the named groups if `step` fits (an empty dict without groups), else None."""
        if self.user is not None:
            return _search(self.user, step.text) if step.role == "user" else None
        if step.role != "tool" or step.tool != self.tool:
            return None
        for name, wanted in self.where.items():
            value = step.fields.get(name)  # compared as in JSON: true is not 1
            if name not in step.fields or isinstance(value, bool) != isinstance(wanted, bool) or value != wanted:
                return None
        return _search(self.output, step.text) if self.output is not None else {}


class Call(Section):
    """A tool to call, and the template of its input."""

    tool: ToolName
    input: Annotated[dict[str, Any], AfterValidator(_check_template)] = {}


Calls = Annotated[
    Annotated[Call, Tag("one call")] | Annotated[list[Call], Field(min_length=1), Tag("calls")],
    Discriminator(lambda value: "calls" if isinstance(value, list) else "one call"),
]


class Answer(Section):
    """A text, calls, or both."""

    say: Annotated[str, AfterValidator(_check_template)] | None = Field(None, description="The text of the answer.")
    call: Calls | None = Field(None, description="A tool and its input, or a list of calls at once.")

    @model_validator(mode="after")
    def _need_content(self) -> Answer:
        if self.say is None and self.call is None:
            raise ValueError("needs 'say', 'call', or both")
        return self

    @cached_property
    def is_constant(self) -> bool:
        """Whether it is a text without names and braces."""
        return self.call is None and self.say is not None and not set("{}") & set(self.say)

    def fill(self, names: Mapping[str, Any]) -> FilledAnswer:
        """Return the answer with values for its names. Raises `UnknownPlaceholder`."""
        if self.is_constant:
            return FilledAnswer(self.say, [])
        say = None if self.say is None else fill_text(self.say, names)
        calls = self.call if isinstance(self.call, list) else [self.call] if self.call else []
        return FilledAnswer(say, [(call.tool, fill(call.input, names)) for call in calls])


class FilledAnswer(NamedTuple):
    """An answer for one message."""

    say: str | None
    calls: list[tuple[str, dict[str, Any]]]
    """Tools, each with its input."""


class Rule(Answer):
    """An answer, and the message for it."""

    when: When


class Playbook(Section):
    """The rules of one bundle, without state: the same conversation always gets the same answer."""

    rules: list[Rule] = Field([], description="The first rule with a fitting `when` answers.")
    otherwise: Annotated[Answer | None, Field(description="The answer if no rule fits.")] = None
    delay_ms: Annotated[
        float, Field(ge=0, allow_inf_nan=False, description="Milliseconds to wait before each answer.")
    ] = 0.0
    priority: Annotated[int, Field(description="The provider with the lowest priority is used.")] = 100
    default_model: Annotated[Any, Field(description="Ignored: there is no model.")] = None

    def choose(self, step: Step) -> tuple[str, Answer] | None:
        """Return the answer of the first fitting rule, or `otherwise`; with its place, such as `rules[2]`."""
        for number, rule in enumerate(self.rules):
            if rule.when.match(step) is not None:
                return f"rules[{number}]", rule
        return None if self.otherwise is None else ("otherwise", self.otherwise)

    def collect_names(self, steps: Sequence[Step]) -> dict[str, Any]:
        """Return the values for the names of an answer, from the whole conversation; later ones win.

        They are the named groups of the rules that answered, and the plain top-level fields of results. `prompt` and
        `result` always mean the latest texts of the user and of a tool.
        """
        values: dict[str, Any] = {}
        texts: dict[str, str] = {}
        for step, was_asked in mark_asked(steps):
            if step.role != "assistant":
                texts["prompt" if step.role == "user" else "result"] = step.text
            values.update((key, value) for key, value in step.fields.items() if not isinstance(value, (dict, list)))
            if was_asked:
                matches = (rule.when.match(step) for rule in self.rules)
                values.update(next((groups for groups in matches if groups is not None), {}))
        return values | texts


def _search(pattern: re.Pattern[str], text: str) -> dict[str, str] | None:
    found = pattern.search(text, 0, SEARCH_LIMIT)
    return None if found is None else found.groupdict(default="")
