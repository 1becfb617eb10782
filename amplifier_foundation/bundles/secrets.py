"""Secrets that stand where everybody reads them: found in a file, and left out of what is shown."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from .problems import Problem, warning_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .positions import KeyPath, Positions

REDACTED = "[REDACTED]"

_KNOWN = re.compile(
    r"\b(?:sk-[\w-]{20,}|gh[pousr]_\w{30,}|github_pat_\w{20,}|glpat-[\w-]{20,}|xox[abeprs]-[\w-]{10,}"
    r"|AKIA[0-9A-Z]{16}\b|AIza[\w-]{35})|-----BEGIN [A-Z ]*PRIVATE KEY-----",
    re.ASCII,
)
"""How the keys of well-known services begin, and how long they are at least."""
_SIGNED_IN = re.compile(r"(?P<scheme>\b[A-Za-z][\w+.-]{0,40}://)(?P<secret>[^/?#\s@:]*:[^/?#\s@]+)@")
_SHORTEST = len("x://:p@")
_KEY = re.compile(r"([\w-]+)[\"']?\s*:")
_ENVIRONMENT = re.compile(r"\$\{[^{}]+\}")
_WHOLLY_FILLED_IN = re.compile(r"\$\w+|\{\w+\}")


def find_secrets(data: Any, positions: Positions) -> list[Problem]:
    """Return a warning for every secret that is written out in a document's data.

    One is the text of a sensitive key (`amplifier_core.utils.SENSITIVE_KEYS`), a key of a well-known service wherever
    it stands, and a password in a URL. What is filled in later is none: `${NAME}`, `{name}`.
    """
    message = "a secret is written here; set it in the environment instead"
    return [warning_at(positions.at(path), "AMP113", message) for path in _secrets(data, (), sensitive=False)]


def _secrets(value: Any, path: KeyPath, *, sensitive: bool) -> Iterator[KeyPath]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _secrets(each, (*path, key), sensitive=_is_sensitive(key))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _secrets(each, (*path, number), sensitive=sensitive)
    elif isinstance(value, str) and (is_secret(value) or (sensitive and _is_written_out(value))):
        yield path


@lru_cache(maxsize=1024)
def _is_sensitive(key: str) -> bool:
    from amplifier_core.utils import redact_secrets

    return bool(redact_secrets({key: ""}) != {key: ""})


def _is_written_out(text: str) -> bool:
    return bool(text.strip()) and not _ENVIRONMENT.search(text) and not _WHOLLY_FILLED_IN.fullmatch(text.strip())


def is_secret(text: str) -> bool:
    """Whether a text holds, by its form, a key of a well-known service or a URL with a password."""
    if len(text) < _SHORTEST:
        return False
    signed_in = _SIGNED_IN.search(text) if "://" in text else None
    return bool(_KNOWN.search(text)) or (signed_in is not None and not _ENVIRONMENT.search(signed_in["secret"]))


def may_hold_secret(line: str) -> bool:
    """Whether a line of a file must not be shown: it holds a secret by its form, or names a sensitive key."""
    return is_secret(line) or any(map(_is_sensitive, _KEY.findall(line)))


def public(value: Any) -> Any:
    """Return a copy of a value as it may be shown: what is secret by its key or its form reads "[REDACTED]"."""
    from amplifier_core.utils import redact_secrets

    return _public(redact_secrets(value))


def _public(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _public(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_public(each) for each in value]
    if not isinstance(value, str):
        return value
    return REDACTED if _KNOWN.search(value) else _SIGNED_IN.sub(r"\g<scheme>***@", value)
