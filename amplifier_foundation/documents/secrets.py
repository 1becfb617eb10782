"""Find secrets in documents."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from amplifier_core.utils import REFERENCE, find_option_values, is_sensitive
from amplifier_core.utils.secrets import holds_key, redact_all, redact_text

from .problems import Problem, warning_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .positions import KeyPath, Positions

_KEY = re.compile(r"([\w-]+)[\"']?\s*:")
_ENVIRONMENT = re.compile(r"\$\{[^{}]+\}")
_WHOLLY_FILLED_IN = re.compile(r"\$\w+|\{\w+\}")
VARIABLE = re.compile(r"(?:[A-Za-z]+ )?\$\{\w+\}")
"""A value that is a variable of the environment, also after the word `Bearer`."""


def may_hold_secrets(data: Any) -> bool:
    """Return whether data has values of sensitive keys, known secrets, or texts in the form of one.

    A value that is a variable of the environment (`${NAME}`) or the name of a secret (`secret://NAME`) is none.
    """
    named = _name_variables(data)
    return bool(redact_all(named) != named)


def _name_variables(value: Any) -> Any:
    """Return a copy of data with the name of some secret in place of each value that is a variable."""
    if isinstance(value, dict):
        return {key: _name_variables(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_name_variables(each) for each in value]
    return "secret://NAME" if isinstance(value, str) and VARIABLE.fullmatch(value) else value


def find_secrets(data: Any, positions: Positions, *, in_arguments: bool = True) -> list[Problem]:
    """Return a warning for every secret in a document's data.

    A secret is the text of a sensitive key (`amplifier_core.utils.SENSITIVE_KEYS`) or, with `in_arguments`, after an
    option with the name of one in a list (`--password`), a key of a well-known service anywhere, or a password in a
    URL. Placeholders are none: `${NAME}`, `{name}`, `secret://NAME`.
    """
    keep = "keep it with 'amplifier auth login', and write secret://NAME"
    in_trigger = "put it into an environment variable, and name that as the trigger says"
    return [
        warning_at(
            positions.at(path), "AMP113", f"a secret is written here; {in_trigger if 'triggers' in path else keep}"
        )
        for path in _find_paths(data, (), sensitive=False, in_arguments=in_arguments)
    ]


def _find_paths(value: Any, path: KeyPath, *, sensitive: bool, in_arguments: bool) -> Iterator[KeyPath]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _find_paths(each, (*path, key), sensitive=is_sensitive(key), in_arguments=in_arguments)
    elif isinstance(value, list):
        after_options = find_option_values(value) if in_arguments else ()
        for number, each in enumerate(value):
            is_secret = sensitive or number in after_options
            yield from _find_paths(each, (*path, number), sensitive=is_secret, in_arguments=in_arguments)
    elif isinstance(value, str):
        plain = value.strip() if sensitive and not REFERENCE.fullmatch(value) else ""
        if holds_key(value) or (plain and not _ENVIRONMENT.search(plain) and not _WHOLLY_FILLED_IN.fullmatch(plain)):
            yield path


def may_hold_secret(line: str) -> bool:
    """Whether a line of a file must stay hidden: it contains a secret, or a sensitive key."""
    return redact_text(line) != line or any(map(is_sensitive, _KEY.findall(line)))
