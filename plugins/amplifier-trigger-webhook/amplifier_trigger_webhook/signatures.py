"""Check that the sender of a request knows the secret."""

from __future__ import annotations

import hmac
import json
from base64 import b64decode, b64encode
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from starlette.datastructures import Headers

    from .config import Scheme

LONGEST_TIMESTAMP = 12
"""Digits of a time in seconds since 1970."""
WHSEC = "whsec_"
"""What a secret of Standard Webhooks begins with; base64 follows."""


class BadSignature(Exception):
    """A request has no valid signature; the text says why."""


class _Claim(NamedTuple):
    """What a request says of itself."""

    header: str
    """The header with its signatures."""
    given: list[str]
    prefix: str
    """What a valid one begins with; the HMAC-SHA256 of `signed` follows."""
    signed: bytes
    known_by: bytes
    """What a repeated request has as well."""
    timestamp: str | None = None
    """When it was signed."""
    id_name: str = ""
    """The name of the id in its body by which a repeated request is known, if it is there."""


def read_key(scheme: Scheme, secret: str) -> bytes:
    """Return the key of the HMAC. Raises `ValueError` for one that a sender of this scheme cannot have."""
    if scheme != "standard":
        return secret.encode("utf-8", "surrogateescape")
    try:
        key = b64decode(secret.removeprefix(WHSEC), validate=True)
    except ValueError:
        key = b""
    if not key:
        raise ValueError(f"must be a secret of Standard Webhooks: {WHSEC}, and base64")
    return key


def check_signature(scheme: Scheme, key: bytes, headers: Headers, body: bytes, now: datetime, tolerance: float) -> str:
    """Return the SHA-256 (hex) of what a repeated request has as well; '' for `gitlab`, which signs nothing.

    Raises `BadSignature`, also for a signature made more than `tolerance` seconds before or after `now`.
    """
    if scheme == "gitlab":
        header = "x-gitlab-token"
        if not hmac.compare_digest(key, _only(headers, header).encode("latin-1")):
            raise BadSignature(f"{header} does not fit")
        return ""
    claim = _CLAIMS[scheme](headers, body)
    if (timestamp := claim.timestamp) is not None:
        if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= LONGEST_TIMESTAMP):
            raise BadSignature(f"the time in {claim.header} or beside it must be seconds since 1970")
        if abs(now.timestamp() - int(timestamp)) > tolerance:
            raise BadSignature(f"the time of {claim.header} is more than {tolerance:g} s away")
    digest = hmac.new(key, claim.signed, sha256)
    text = b64encode(digest.digest()).decode() if scheme == "standard" else digest.hexdigest()
    expected = (claim.prefix + text).encode()
    if not any([hmac.compare_digest(expected, given.encode("latin-1")) for given in claim.given]):
        raise BadSignature(f"{claim.header} does not fit")
    return sha256(_id_in(body, claim.id_name) or claim.known_by).hexdigest()


def _read_github(headers: Headers, body: bytes) -> _Claim:
    header = "x-hub-signature-256"
    return _Claim(header, [_only(headers, header)], "sha256=", body, body)


def _read_plain(headers: Headers, body: bytes) -> _Claim:
    header, timestamp = "x-amplifier-signature", _only(headers, "x-amplifier-timestamp")
    signed = f"{timestamp}.".encode("latin-1") + body
    return _Claim(header, [_only(headers, header)], "sha256=", signed, signed, timestamp)


def _read_slack(headers: Headers, body: bytes) -> _Claim:
    """As https://docs.slack.dev/authentication/verifying-requests-from-slack has it."""
    header, timestamp = "x-slack-signature", _only(headers, "x-slack-request-timestamp")
    signed = f"v0:{timestamp}:".encode("latin-1") + body
    return _Claim(header, [_only(headers, header)], "v0=", signed, body, timestamp, "event_id")


def _read_stripe(headers: Headers, body: bytes) -> _Claim:
    """As https://docs.stripe.com/webhooks#verify-manually has it: `t=<time>,v1=<hex>`, with more `v1` while keys change."""
    header = "stripe-signature"
    parts = [part.strip().partition("=") for part in _only(headers, header).split(",")]
    timestamp = next((value for name, _, value in parts if name == "t"), "")
    given = [value for name, _, value in parts if name == "v1"]
    signed = f"{timestamp}.".encode("latin-1") + body
    return _Claim(header, given, "", signed, body, timestamp, "id")


def _read_standard(headers: Headers, body: bytes) -> _Claim:
    """As https://www.standardwebhooks.com has it: `v1,<base64>`, and more after a space while keys change."""
    header, sent_as, timestamp = "webhook-signature", _only(headers, "webhook-id"), _only(headers, "webhook-timestamp")
    signed = f"{sent_as}.{timestamp}.".encode("latin-1") + body
    return _Claim(header, _only(headers, header).split(" "), "v1,", signed, sent_as.encode("latin-1"), timestamp)


_CLAIMS: Mapping[str, Callable[[Headers, bytes], _Claim]] = {
    "github": _read_github,
    "plain": _read_plain,
    "slack": _read_slack,
    "standard": _read_standard,
    "stripe": _read_stripe,
}


def _only(headers: Headers, name: str) -> str:
    values = headers.getlist(name)
    if len(values) != 1:
        raise BadSignature(f"{name} is missing" if not values else f"{name} is there {len(values)} times")
    return values[0]


def _id_in(body: bytes, name: str) -> bytes:
    try:
        value = json.loads(body) if name else None
    except (ValueError, RecursionError):
        value = None
    found = value.get(name) if isinstance(value, dict) else None
    return found.encode("utf-8", "surrogatepass") if isinstance(found, str) else b""
