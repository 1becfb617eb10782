"""Find JSON in the answer of an agent, hold it to a schema, and every output to JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from amplifier_core.json_values import to_json

from .errors import INVALID, OUTPUT_INVALID, FlowError
from .formats import ANSWER, as_dict, is_object

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_PROBLEMS = 10
"""Problems of an answer that its agent is told at a time."""


def as_stored(value: object, task: str) -> Any:
    """Return the output of a task as a store gives it back: so later tasks see the same in a run and in its resume.

    Raises `FlowError` for an output that is no JSON.
    """
    try:
        return json.loads(to_json(value, "its output"))
    except TypeError as error:
        raise FlowError(OUTPUT_INVALID, f"{error}. Give text, numbers, lists or mappings", task) from None


class Shape:
    """The schema of an output: a pydantic model, or a JSON Schema."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema

    def read(self, text: str) -> tuple[Any, list[str]]:
        """Return the output in an answer and what is wrong with it; with problems, the output counts for nothing.

        A value that is no object may stand in an object, under `answer`: see `formats`.
        """
        is_json, value = find_json(text)
        if not is_json:
            return None, ["the answer holds no JSON"]
        output, problems = self._check(value)
        if problems and isinstance(value, dict) and [*value] == [ANSWER] and not is_object(as_dict(self._schema)):
            output, problems = self._check(value[ANSWER])
        if not problems:
            try:
                to_json(output, "$")
            except TypeError as error:  # Python reads NaN and infinity
                return None, [str(error)]
        return output, problems

    def _check(self, value: Any) -> tuple[Any, list[str]]:
        if hasattr(self._schema, "model_validate"):
            return self._check_model(value)
        from ..documents.json_schema import SchemaUnusable, find_problems

        try:
            return value, find_problems(self._schema, value, MOST_PROBLEMS)
        except SchemaUnusable as error:
            raise FlowError(INVALID, f"its output_schema {error}") from None

    def _check_model(self, value: Any) -> tuple[Any, list[str]]:
        from pydantic import ValidationError

        try:
            model = self._schema.model_validate(value)
        except ValidationError as error:
            told = [f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}" for each in error.errors()]
            return None, told[:MOST_PROBLEMS]
        return model.model_dump(mode="json"), []

    def describe(self) -> str:
        """Return the schema as JSON."""
        return json.dumps(as_dict(self._schema), indent=1)


def find_json(text: str) -> tuple[bool, Any]:
    """Return the last balanced object or list in a text, in prose or in a fence, else the text itself if it is JSON."""
    last: tuple[bool, Any] = (False, None)
    for start, end in _find_balanced(text):
        try:
            last = True, json.loads(text[start:end])
        except (ValueError, RecursionError):
            continue
    if last[0]:
        return last
    try:
        return True, json.loads(text)
    except (ValueError, RecursionError):
        return False, None


def _find_balanced(text: str) -> Iterator[tuple[int, int]]:
    """Yield the beginnings and ends of what stands in balanced braces or brackets, outermost ones alone."""
    stack: list[str] = []
    start, is_text, is_escaped = 0, False, False
    for position, sign in enumerate(text):
        if is_text:
            if is_escaped:
                is_escaped = False
            elif sign == "\\":
                is_escaped = True
            elif sign == '"':
                is_text = False
        elif sign == '"' and stack:
            is_text = True
        elif sign in "{[":
            if not stack:
                start = position
            stack.append("}" if sign == "{" else "]")
        elif stack and sign == stack[-1]:
            stack.pop()
            if not stack:
                yield start, position + 1
        elif stack and sign in "}]":
            stack.clear()  # not JSON: a brace in prose
