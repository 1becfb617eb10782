"""Hide secrets in texts: in an error of a provider before it is shown, logged or stored."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

HIDDEN = "[REDACTED]"
SHORTEST = 8
"""Characters of the shortest secret that is looked for by its value: shorter ones are words."""
CAUSES = 10
"""Causes of an error looked at."""

KNOWN = re.compile(
    r"(?<![\w-])(?:sk-[\w-]{20,}|gh[pousr]_\w{30,}|github_pat_\w{20,}|glpat-[\w-]{20,}|xox[abeprs]-[\w-]{10,}"
    r"|AKIA[0-9A-Z]{16}\b|AIza[\w-]{35})|-----BEGIN [A-Z ]*PRIVATE KEY-----",
    re.ASCII,
)
"""Prefixes and least lengths of the keys of well-known services."""
SIGNED_IN = re.compile(r"(?P<scheme>\b[A-Za-z][\w+.-]{0,40}://)(?P<secret>[^/?#\s@:]*:[^/?#\s@]+)@")
# As texts: an error compiles them, and most programs end without one.
_BEARER = r"(?i)\b(?P<scheme>bearer|basic)\s+[\w.~+/=-]{8,}"
_NAMED = r"(?i)(?P<name>\b[\w-]*(?:api[_-]?key|token|secret|password))(?P<is>[\"']?\s*[=:]\s*[\"']?)[\w.~+/=-]{8,}"


_secrets_of_process: set[str] = set()


def hide_secret(secret: str) -> None:
    """Hide a secret in every text from now on: it came from elsewhere than the environment and the bundle."""
    _secrets_of_process.add(secret.strip())


def redact_text(text: str, secrets: Iterable[str] = ()) -> str:
    """Return `text` with "[REDACTED]" in place of secrets.

    Secrets are `secrets`, those of `hide_secret`, the values of sensitive environment variables (`OPENAI_API_KEY`; see
    `SENSITIVE_KEYS`), keys of well-known services, passwords in URLs, and what follows `Bearer` or `api_key=`.
    """
    return _redact(text, _known_values(secrets))


def _known_values(secrets: Iterable[str] = ()) -> list[str]:
    """Return the secrets to look for by their value, the longest first."""
    from . import is_sensitive

    variables = {name: os.environ[name] for name in os.environ if is_sensitive(name)}
    values = {value.strip() for value in (*secrets, *_secrets_of_process, *secrets_of(variables))}
    return sorted((value for value in values if len(value) >= SHORTEST), key=len, reverse=True)


def _redact(text: str, values: list[str]) -> str:
    for value in values:
        text = text.replace(value, HIDDEN)
    text = SIGNED_IN.sub(rf"\g<scheme>{HIDDEN}@", KNOWN.sub(HIDDEN, text))
    return re.sub(_NAMED, rf"\g<name>\g<is>{HIDDEN}", re.sub(_BEARER, rf"\g<scheme> {HIDDEN}", text))


def redact_error(error: BaseException, secrets: Iterable[str] = ()) -> None:
    """Hide the secrets in the texts of an error and of its causes, in place: it may be shown anywhere afterwards."""
    values = _known_values(secrets)
    current: BaseException | None = error
    for _ in range(CAUSES):
        if current is None:
            return
        changed = tuple(_redact(each, values) if isinstance(each, str) else each for each in current.args)
        if changed != current.args:
            current.args = changed
        current = current.__cause__ or current.__context__


def redact_all(value: Any) -> Any:
    """Return a copy of a value without secrets, by key (`redact_secrets`) or by form (`redact_text`)."""
    from . import redact_secrets

    return _redact_texts(redact_secrets(value), _known_values())


def _redact_texts(value: Any, values: list[str]) -> Any:
    if isinstance(value, dict):
        return {key: _redact_texts(each, values) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_redact_texts(each, values) for each in value]
    return _redact(value, values) if isinstance(value, str) else value


def secrets_of(config: Any) -> Iterator[str]:
    """Yield the texts at sensitive keys of a configuration, without references."""
    from . import REFERENCE, is_sensitive

    if isinstance(config, dict):
        for key, value in config.items():
            if isinstance(value, str):
                if isinstance(key, str) and is_sensitive(key) and not REFERENCE.fullmatch(value):
                    yield value
            else:
                yield from secrets_of(value)
    elif isinstance(config, list | tuple):
        for value in config:
            yield from secrets_of(value)
