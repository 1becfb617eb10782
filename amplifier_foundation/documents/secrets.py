"""Find secrets in documents."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from amplifier_core.utils import REFERENCE, is_sensitive
from amplifier_core.utils.secrets import holds_key, redact_text

from .problems import Problem, warning_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .positions import KeyPath, Positions

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
            yield from _find_paths(each, (*path, key), sensitive=is_sensitive(key))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _find_paths(each, (*path, number), sensitive=sensitive)
    elif isinstance(value, str):
        plain = value.strip() if sensitive and not REFERENCE.fullmatch(value) else ""
        if holds_key(value) or (plain and not _ENVIRONMENT.search(plain) and not _WHOLLY_FILLED_IN.fullmatch(plain)):
            yield path


def may_hold_secret(line: str) -> bool:
    """Whether a line of a file must stay hidden: it contains a secret, or a sensitive key."""
    return redact_text(line) != line or any(map(is_sensitive, _KEY.findall(line)))
