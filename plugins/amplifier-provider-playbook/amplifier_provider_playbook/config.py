"""Reading the configuration: every mistake is a `ValueError` that names its key."""

from __future__ import annotations

import math
import re
from difflib import get_close_matches
from typing import Any, NoReturn

from . import templates
from .rules import Answer, Call, Playbook, Rule, When

_RESERVED = ("prompt", "result")


def read_config(config: dict[str, Any]) -> Playbook:
    """Return the playbook that `config` describes. Raises `ValueError`, as in `rules[0].when.user: …`."""
    _mapping(config, "config", ("rules", "otherwise", "delay_ms", "priority", "default_model"))
    entries = config.get("rules", [])
    if not isinstance(entries, list):
        _fail("rules", "must be a list of rules")
    return Playbook(
        rules=tuple(_rule(entry, f"rules[{index}]") for index, entry in enumerate(entries)),
        otherwise=_otherwise(config.get("otherwise")),
        delay=_delay(config.get("delay_ms", 0)) / 1000,
        priority=_priority(config.get("priority", 100)),
    )


def _rule(entry: Any, place: str) -> Rule:
    _mapping(entry, place, ("when", "say", "call"))
    if "when" not in entry:
        _fail(place, "needs 'when': {user: PATTERN} or {tool: NAME}")
    return Rule(_when(entry["when"], f"{place}.when"), _answer(entry, place))


def _otherwise(entry: Any) -> Answer | None:
    if entry is None:
        return None
    _mapping(entry, "otherwise", ("say", "call"))
    return _answer(entry, "otherwise")


def _when(entry: Any, place: str) -> When:
    _mapping(entry, place, ("user", "tool", "where", "output"))
    if ("user" in entry) == ("tool" in entry):
        _fail(place, "needs either 'user' or 'tool'")
    if "user" in entry:
        for key in ("where", "output"):
            if key in entry:
                _fail(f"{place}.{key}", "goes with 'tool', not with 'user'")
        return When(user=_pattern(entry["user"], f"{place}.user"))
    return When(
        tool=_tool(entry["tool"], f"{place}.tool"),
        where=_mapping(entry.get("where", {}), f"{place}.where"),
        output=_pattern(entry["output"], f"{place}.output") if "output" in entry else None,
    )


def _answer(entry: dict[str, Any], place: str) -> Answer:
    if "say" not in entry and "call" not in entry:
        _fail(place, "needs 'say', 'call', or both")
    say = _template(entry["say"], f"{place}.say") if "say" in entry else None
    return Answer(place, say, _calls(entry["call"], f"{place}.call") if "call" in entry else ())


def _calls(entry: Any, place: str) -> tuple[Call, ...]:
    if not isinstance(entry, list):
        return (_call(entry, place),)
    if not entry:
        _fail(place, "must name at least one tool")
    return tuple(_call(each, f"{place}[{index}]") for index, each in enumerate(entry))


def _call(entry: Any, place: str) -> Call:
    _mapping(entry, place, ("tool", "input"))
    if "tool" not in entry:
        _fail(place, "needs 'tool': the name of a tool")
    given = _mapping(entry.get("input", {}), f"{place}.input")
    _check_templates(given, f"{place}.input")
    return Call(_tool(entry["tool"], f"{place}.tool"), given)


def _check_templates(value: Any, place: str) -> None:
    if isinstance(value, str):
        _template(value, place)
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_templates(item, f"{place}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_templates(item, f"{place}[{index}]")


def _template(value: Any, place: str) -> str:
    if not isinstance(value, str):
        _fail(place, f"must be text, not {type(value).__name__}; put it in quotes")
    try:
        templates.check(value)
    except ValueError as error:
        _fail(place, str(error))
    return value


def _pattern(value: Any, place: str) -> re.Pattern[str]:
    if not isinstance(value, str):
        _fail(place, f"must be a regular expression in quotes, not {type(value).__name__}")
    try:
        pattern = re.compile(value)
    except (re.error, OverflowError, RecursionError) as error:
        _fail(place, f"not a regular expression: {error}")
    for name in _RESERVED:
        if name in pattern.groupindex:
            _fail(place, f"a group cannot be named '{name}': that name always means the whole text")
    return pattern


def _tool(value: Any, place: str) -> str:
    if not isinstance(value, str) or not value:
        _fail(place, "must be the name of a tool")
    return value


def _delay(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        _fail("delay_ms", "must be a number of milliseconds, 0 or more")
    return float(value)


def _priority(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        _fail("priority", "must be a whole number; the provider with the lowest one is used")
    return value


def _mapping(value: Any, place: str, allowed: tuple[str, ...] | None = None) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        _fail(place, "must be a mapping of names to values")
    for key in value if allowed is not None else ():
        if key not in (allowed or ()):
            close = get_close_matches(key, allowed or (), n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"there are: {', '.join(allowed or ())}"
            _fail(key if place == "config" else f"{place}.{key}", f"unknown key; {hint}")
    return value


def _fail(place: str, message: str) -> NoReturn:
    raise ValueError(f"provider-playbook: {place}: {message}")
