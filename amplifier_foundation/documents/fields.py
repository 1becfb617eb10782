"""Define the field types shared by the schemas of documents. Importing this imports pydantic."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from amplifier_core.durations import LONGEST, PATTERN, seconds_of
from amplifier_core.ids import validate_session_id
from amplifier_core.permissions import parse_rule

from .sizes import SIZE_PATTERN, size_of

MODULE_ID = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$"
"""A module's name, or another name with dots."""
SLUG = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"
"""A name allowed inside an id."""
_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
PACKAGE = rf"^{_PART}(?:\[{_PART}(?:,{_PART})*\])?(?:(?:==|>=|~=)[0-9][A-Za-z0-9.+!]*)?$"
"""A package on the package index, with extras and a version if needed: `my-tools[fast]>=1.2`."""


def clip(seconds: float) -> float:
    """Return a duration, a hundred years for a longer one: clocks and stores overflow, and nobody lives to see it."""
    return min(seconds, LONGEST)


Seconds = Annotated[
    float,
    BeforeValidator(seconds_of),
    AfterValidator(clip),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": PATTERN}]}),
]
"""A duration, a hundred years at most: a number of seconds, or text such as `15m`."""
SessionId = Annotated[
    str,
    Field(min_length=1, json_schema_extra={"pattern": r"^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$"}),
    AfterValidator(validate_session_id),
]
"""The id of a session."""
Size = Annotated[
    int,
    BeforeValidator(size_of),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": SIZE_PATTERN}]}),
]
"""Bytes: a whole number, or text such as `500 MB`."""


class Section(BaseModel):
    """A mapping whose keys are all known; numbers are numbers and text is text."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)


def _check_rule(text: str) -> str:
    parse_rule("ask", text)
    return text


PermissionRule = Annotated[str, AfterValidator(_check_rule)]
"""A tool, or `tool(pattern)`."""


class PermissionsSection(Section):
    """Rules for tool calls: deny wins over ask, ask over allow. A call without a rule is for the mode."""

    mode: Literal["read-only", "ask", "auto"] | None = None
    """`read-only` refuses all but reading in the working folder, `ask` asks for the rest; None, `auto`: the default."""
    deny: list[PermissionRule] | None = None
    """Rules for calls that are refused: `bash(rm *)`."""
    ask: list[PermissionRule] | None = None
    """Rules for calls that a person is asked about."""
    allow: list[PermissionRule] | None = None
    """Rules for calls that need no question."""
