"""Prepare data for logs, and retry calls to a model."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .retry import RetryConfig, classify_error_message, retry_with_backoff

__all__ = [
    "SENSITIVE_KEYS",
    "RetryConfig",
    "classify_error_message",
    "redact_secrets",
    "retry_with_backoff",
    "truncate_values",
]

SENSITIVE_KEYS = frozenset(
    {
        "api-key",
        "api_key",
        "apikey",
        "auth",
        "authorization",
        "credential",
        "credentials",
        "password",
        "private_key",
        "privatekey",
        "secret",
        "token",
    }
)
_ALL_KEYS = SENSITIVE_KEYS | {
    "access_key",
    "account_key",
    "encryption_key",
    "master_key",
    "passphrase",
    "passwd",
    "secret_key",
    "signing_key",
}
"""The default: the published set lacks some."""


def __getattr__(name: str) -> object:
    """Import the retries at their first use: most commands call no model."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import retry

    return getattr(retry, name)


REFERENCE = re.compile(r"secret://([A-Za-z_][\w.-]{0,127})", re.ASCII)
"""A reference to a secret by its name, as a whole value: it is no secret itself."""


NO_SECRET_OPTION = r"(?:no|ask|show|use|skip|generate|prompt|max|num|eos|pad|stop)[_-]"
"""How options begin that only end as one with a secret: `--ask-password`, `--max-token`."""
_PASSWORDS = ("password", "passwd", "passphrase")
_NO_SECRET = re.compile(r"-|secret://|\$[\w{(]|\{|<|\[REDACTED\]|$")
_LIKE_A_KEY = re.compile(
    r"(?![~.]{0,2}/|\d+$|id=|\S*\.(?:json|ya?ml|toml|ini|conf|env|txt|pem|key|crt|p12|pfx)$)(?=\S*\d)\S{4,}$"
)


def redact_secrets(obj: Any, sensitive_keys: frozenset[str] = SENSITIVE_KEYS) -> Any:
    """Return a copy of `obj` with "[REDACTED]" in place of the value of every sensitive key.

    A key is sensitive when it is one of `sensitive_keys` (by default also `secret_key`, `passphrase` and the like) or
    ends with one after a `_` or `-` (`GITHUB_TOKEN`, `x-api-key`), in any case; a number may follow after a `_` or `-`,
    as in `api_key_2`. A reference (`secret://NAME`) stays. In a list, the text after an option
    with such a name (`--password`) is a secret as well; see `find_option_values`.
    Only dicts, lists and tuples are entered.
    """
    if isinstance(obj, dict):
        return {
            key: "[REDACTED]"
            if isinstance(key, str)
            and is_sensitive(key, sensitive_keys)
            and not (isinstance(value, str) and REFERENCE.fullmatch(value))
            else redact_secrets(value, sensitive_keys)
            for key, value in obj.items()
        }
    if isinstance(obj, list | tuple):
        items = [redact_secrets(item, sensitive_keys) for item in obj]
        for index in find_option_values(obj, sensitive_keys):
            items[index] = "[REDACTED]"
        return items if isinstance(obj, list) else tuple(items)
    return obj


def find_option_values(items: Sequence[Any], sensitive_keys: frozenset[str] = SENSITIVE_KEYS) -> list[int]:
    """Return where secrets stand in the arguments of a command: after an option with the name of a sensitive key.

    Options, references, variables and words (`--auth basic`) are no secrets, nor is a number, a path or the name of a
    file; a password may be any text. Options such as `--ask-password` and `--max-token` have no secret.
    """
    return [
        index
        for index, option in enumerate(items[:-1], start=1)
        if isinstance(option, str)
        and option.startswith("--")
        and isinstance(value := items[index], str)
        and is_sensitive(option[2:], sensitive_keys)
        and not re.match(NO_SECRET_OPTION, option[2:])
        and not _NO_SECRET.match(value)
        and (option.lower().endswith(_PASSWORDS) or _LIKE_A_KEY.match(value))
    ]


@lru_cache(maxsize=1024)  # messages are stored without the secrets of the environment: all its variables, each time
def is_sensitive(key: str, sensitive_keys: frozenset[str] = SENSITIVE_KEYS) -> bool:
    """Return whether the value of `key` is a secret; see `redact_secrets`."""
    name = re.sub(r"[_-]\d+$", "", key.lower())
    if sensitive_keys is SENSITIVE_KEYS:
        sensitive_keys = _ALL_KEYS
    return name in sensitive_keys or name.endswith(_endings(sensitive_keys))


@lru_cache(maxsize=8)
def _endings(sensitive_keys: frozenset[str]) -> tuple[str, ...]:
    return tuple(separator + key for key in sensitive_keys for separator in "_-")


def truncate_values(obj: Any, max_length: int = 180) -> Any:
    """Return a copy of `obj` with each string cut to `max_length` characters; a cut string tells its loss."""
    if isinstance(obj, str):
        cut = len(obj) - max_length
        return obj if cut <= 0 else f"{obj[:max_length]}... (truncated {cut} chars)"
    if isinstance(obj, dict):
        return {key: truncate_values(value, max_length) for key, value in obj.items()}
    if isinstance(obj, list | tuple):
        items = [truncate_values(item, max_length) for item in obj]
        return items if isinstance(obj, list) else tuple(items)
    return obj
