"""Check that the sender of a request knows the secret."""

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


class BadSignature(Exception):
    """A request has no valid signature; the text says why."""


def check_signature(
    scheme: Scheme, secret: bytes, headers: Headers, body: bytes, now: datetime, tolerance: float
) -> str:
    """Return the SHA-256 (hex) of the signed bytes: the same for a repeated request.

    `github` signs the body, `plain` the timestamp, a dot and the body. Raises `BadSignature`, also for a `plain`
    signature made more than `tolerance` seconds before or after `now`.
    """
    if scheme == "github":
        signed, given = body, _only(headers, GITHUB)
    else:
        timestamp = _only(headers, TIMESTAMP)
        if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= LONGEST_TIMESTAMP):
            raise BadSignature(f"{TIMESTAMP} must be seconds since 1970")
        if abs(now.timestamp() - int(timestamp)) > tolerance:
            raise BadSignature(f"{TIMESTAMP} is more than {tolerance:g} s away")
        signed, given = timestamp.encode("latin-1") + b"." + body, _only(headers, PLAIN)
    expected = "sha256=" + hmac.new(secret, signed, sha256).hexdigest()
    if not hmac.compare_digest(expected.encode("latin-1"), given.encode("latin-1")):
        raise BadSignature(f"{GITHUB if scheme == 'github' else PLAIN} does not fit")
    return sha256(signed).hexdigest()


def _only(headers: Headers, name: str) -> str:
    values = headers.getlist(name)
    if len(values) != 1:
        raise BadSignature(f"{name} is missing" if not values else f"{name} is there {len(values)} times")
    return values[0]
