"""Making data fit to be logged, and calling again what failed."""

from __future__ import annotations

from typing import Any

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


def redact_secrets(obj: Any, sensitive_keys: frozenset[str] = SENSITIVE_KEYS) -> Any:
    """Return a copy of `obj` in which the value of every sensitive key reads "[REDACTED]".

    A key is sensitive when it is one of `sensitive_keys` or ends with one after a `_` or `-` (`GITHUB_TOKEN`,
    `x-api-key`), in any case. Only dicts, lists and tuples are entered.
    """
    endings = tuple(separator + key for key in sensitive_keys for separator in "_-")
    return _redact(obj, sensitive_keys, endings)


def _redact(obj: Any, keys: frozenset[str], endings: tuple[str, ...]) -> Any:
    if isinstance(obj, dict):
        return {
            key: "[REDACTED]" if _is_sensitive(key, keys, endings) else _redact(value, keys, endings)
            for key, value in obj.items()
        }
    if isinstance(obj, list | tuple):
        items = [_redact(item, keys, endings) for item in obj]
        return items if isinstance(obj, list) else tuple(items)
    return obj


def _is_sensitive(key: Any, keys: frozenset[str], endings: tuple[str, ...]) -> bool:
    if not isinstance(key, str):
        return False
    name = key.lower()
    return name in keys or name.endswith(endings)


def truncate_values(obj: Any, max_length: int = 180) -> Any:
    """Return a copy of `obj` in which no string is longer than `max_length` characters, and each cut one says so."""
    if isinstance(obj, str):
        cut = len(obj) - max_length
        return obj if cut <= 0 else f"{obj[:max_length]}... (truncated {cut} chars)"
    if isinstance(obj, dict):
        return {key: truncate_values(value, max_length) for key, value in obj.items()}
    if isinstance(obj, list | tuple):
        items = [truncate_values(item, max_length) for item in obj]
        return items if isinstance(obj, list) else tuple(items)
    return obj
