"""Find secrets in documents, and hide them in output."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from amplifier_core.utils import REFERENCE
from amplifier_core.utils.secrets import KNOWN, SIGNED_IN

from .problems import Problem, warning_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .positions import KeyPath, Positions

REDACTED = "[REDACTED]"

_SHORTEST = len("x://:p@")
_KEY = re.compile(r"([\w-]+)[\"']?\s*:")
_ENVIRONMENT = re.compile(r"\$\{[^{}]+\}")
_WHOLLY_FILLED_IN = re.compile(r"\$\w+|\{\w+\}")


def find_secrets(data: Any, positions: Positions) -> list[Problem]:
    """Return a warning for every secret in a document's data.

    A secret is the text of a sensitive key (`amplifier_core.utils.SENSITIVE_KEYS`), a key of a well-known service
    anywhere, or a password in a URL. Placeholders are none: `${NAME}`, `{name}`, `secret://NAME`.
    """
    message = "a secret is written here; keep it with 'amplifier auth login', and write secret://NAME"
    return [warning_at(positions.at(path), "AMP113", message) for path in _find_paths(data, (), sensitive=False)]


def _find_paths(value: Any, path: KeyPath, *, sensitive: bool) -> Iterator[KeyPath]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _find_paths(each, (*path, key), sensitive=_is_sensitive(key))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _find_paths(each, (*path, number), sensitive=sensitive)
    elif isinstance(value, str):
        plain = value.strip() if sensitive and not REFERENCE.fullmatch(value) else ""
        if is_secret(value) or (plain and not _ENVIRONMENT.search(plain) and not _WHOLLY_FILLED_IN.fullmatch(plain)):
            yield path


@lru_cache(maxsize=1024)
def _is_sensitive(key: str) -> bool:
    from amplifier_core.utils import redact_secrets

    return bool(redact_secrets({key: ""}) != {key: ""})


def is_secret(text: str) -> bool:
    """Whether a text contains a key of a well-known service or a URL with a password."""
    if len(text) < _SHORTEST:
        return False
    signed_in = SIGNED_IN.search(text) if "://" in text else None
    return bool(KNOWN.search(text)) or (signed_in is not None and not _ENVIRONMENT.search(signed_in["secret"]))


def may_hold_secret(line: str) -> bool:
    """Whether a line of a file must stay hidden: it contains a secret, or a sensitive key."""
    return is_secret(line) or any(map(_is_sensitive, _KEY.findall(line)))


def public(value: Any) -> Any:
    """Return a copy of a value for output: secrets, by key or form, read "[REDACTED]"."""
    from amplifier_core.utils import redact_secrets

    return _hide(redact_secrets(value))


def _hide(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _hide(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_hide(each) for each in value]
    if not isinstance(value, str):
        return value
    return REDACTED if KNOWN.search(value) else SIGNED_IN.sub(r"\g<scheme>***@", value)
