"""Whether a request was signed by somebody who knows the secret."""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from starlette.datastructures import Headers

    from .config import Scheme

GITHUB, PLAIN, TIMESTAMP = "x-hub-signature-256", "x-amplifier-signature", "x-amplifier-timestamp"
LONGEST_TIMESTAMP = 12
"""Digits of a time in seconds since 1970."""


class Forged(Exception):
    """A request that is not signed, or not as it must be; the text says what is wrong with it."""


def check_signature(
    scheme: Scheme, secret: bytes, headers: Headers, body: bytes, now: datetime, tolerance: float
) -> str:
    """Return the SHA-256 (hex) of what was signed: the same for a request that is sent again.

    `github` signs the body, `plain` the timestamp, a dot and the body. Raises `Forged`, also for a `plain` signature
    made more than `tolerance` seconds before or after `now`.
    """
    if scheme == "github":
        signed, given = body, _only(headers, GITHUB)
    else:
        timestamp = _only(headers, TIMESTAMP)
        _check_age(timestamp, now, tolerance)
        signed, given = timestamp.encode("latin-1") + b"." + body, _only(headers, PLAIN)
    expected = "sha256=" + hmac.new(secret, signed, sha256).hexdigest()
    if not hmac.compare_digest(expected.encode("latin-1"), given.encode("latin-1")):
        raise Forged(f"{GITHUB if scheme == 'github' else PLAIN} does not fit")
    return sha256(signed).hexdigest()


def _only(headers: Headers, name: str) -> str:
    values = headers.getlist(name)
    if len(values) != 1:
        raise Forged(f"{name} is missing" if not values else f"{name} is there {len(values)} times")
    return values[0]


def _check_age(timestamp: str, now: datetime, tolerance: float) -> None:
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= LONGEST_TIMESTAMP):
        raise Forged(f"{TIMESTAMP} must be seconds since 1970")
    if abs(now.timestamp() - int(timestamp)) > tolerance:
        raise Forged(f"{TIMESTAMP} is more than {tolerance:g} s away")
