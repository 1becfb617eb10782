"""Fill texts with `{names}`: names are replaced by values, and nothing else happens.

`{{` and `}}` are literal braces. There is no attribute access, no format specification and no evaluation.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_TOKEN = re.compile(r"\{\{|\}\}|\{(?P<name>[A-Za-z_][\w-]*)\}|[{}]")
_LITERAL = {"{{": "{", "}}": "}"}


class UnknownPlaceholder(LookupError):
    """A template needs a value that is missing; `name` is its name."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(name)


def check(text: str) -> None:
    """Raise `ValueError` for a single brace without a name."""
    for token in _TOKEN.finditer(text):
        if token.group() in "{}":
            shown = text[token.start() : token.start() + 20]
            raise ValueError(f"a brace must enclose a name, as in {{path}}, or be doubled; look at {shown!r}")


def fill(value: Any, names: Mapping[str, Any]) -> Any:
    """Return `value` with the names replaced in every text, through lists and mappings.

    A text of exactly `{name}` becomes the value itself, with its type. Raises `UnknownPlaceholder`.
    """
    if isinstance(value, str):
        whole = _TOKEN.fullmatch(value)
        return _look_up(whole["name"], names) if whole and whole["name"] else fill_text(value, names)
    if isinstance(value, dict):
        return {key: fill(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [fill(item, names) for item in value]
    return value


def fill_text(text: str, names: Mapping[str, Any]) -> str:
    """Return `text` with the names replaced; values besides text are written as JSON (`true`, `null`, `1.5`)."""

    def replace(token: re.Match[str]) -> str:
        if token["name"] is None:
            return _LITERAL[token.group()]
        value = _look_up(token["name"], names)
        return value if isinstance(value, str) else json.dumps(value)

    return _TOKEN.sub(replace, text)


def _look_up(name: str, names: Mapping[str, Any]) -> Any:
    if name not in names:
        raise UnknownPlaceholder(name)
    return names[name]
