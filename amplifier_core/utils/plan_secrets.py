"""Hide the secrets of mount plans; the same plan makes many sessions, and is looked through once."""

from __future__ import annotations

import marshal
from functools import lru_cache
from typing import Any

from .secrets import hide_secret, secrets_of


def hide_secrets_of(config: Any) -> None:
    """Hide the secrets of a configuration in every text from now on."""
    try:
        written = marshal.dumps(config, 2)
    except ValueError:  # a value of another kind than JSON has
        written = b"${"
    for secret in secrets_of(config) if b"${" in written else _find_secrets(written):  # a variable may change
        hide_secret(secret)


@lru_cache(maxsize=64)
def _find_secrets(written: bytes) -> tuple[str, ...]:
    return tuple(secrets_of(marshal.loads(written)))
