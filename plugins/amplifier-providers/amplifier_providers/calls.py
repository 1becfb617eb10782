"""Read the tool calls of an answer, and send them back with the history."""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import TYPE_CHECKING, Any

from amplifier_core.llm_errors import InvalidToolCallError

if TYPE_CHECKING:
    from collections.abc import Mapping

_NO_NAME = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME = 64


def sendable_name(name: str | None) -> str:
    """Return the name of a tool that a model has called, as every service takes it; a model may make one up, or none.

    The rule of OpenAI and Anthropic: letters, digits, `_` and `-`, at most 64. Gemini wants a letter or `_` first.
    """
    plain = _NO_NAME.sub("_", name or "")[:_LONGEST_NAME]
    return plain if plain[:1].isalpha() or plain[:1] == "_" else f"_{plain}"[:_LONGEST_NAME]


def read_input(text: str, name: str, *, is_cut: bool) -> dict[str, Any] | None:
    """Return the input of a tool call; `is_cut` says that the length limit ended the answer within it or behind it.

    None stands for one that the limit cut off, also before its first character. Raises `InvalidToolCallError` for a
    text that is no JSON object; another answer may be better.
    """
    if is_cut and not text:
        return None
    try:
        given = json.loads(text, parse_constant=_refuse, parse_float=_read_float) if text else {}
    except (ValueError, RecursionError):
        given = None
    if isinstance(given, dict):
        return given
    if is_cut:
        return None
    raise refuse_input(name, text)


def take_input(given: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the input of a tool call that the SDK has read.

    Raises `InvalidToolCallError` for one that JSON cannot hold, as with NaN; another answer may be better.
    """
    try:
        json.dumps(given, allow_nan=False)
    except (ValueError, RecursionError):
        raise refuse_input(name, str(given)) from None
    return dict(given)


def refuse_input(name: str, text: str) -> InvalidToolCallError:
    """Return the error of a call whose input is no JSON object; another answer may be better."""
    problem = f"the model called {name} with an input that is no JSON object"
    return InvalidToolCallError(problem, tool_name=name, raw_arguments=text, retryable=True)


def _read_float(text: str) -> float:
    number = float(text)
    return number if isfinite(number) else _refuse(text)


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is no number that JSON can hold")
