"""Check that the sender of a request knows the secret."""

from __future__ import annotations

import hmac
import json
from base64 import b64decode, b64encode
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from starlette.datastructures import Headers

    from .config import Scheme

LONGEST_TIMESTAMP = 12
"""Digits of a time in seconds since 1970."""
WHSEC = "whsec_"
"""What a secret of Standard Webhooks begins with; base64 follows."""


class BadSignature(Exception):
    """A request has no valid signature; the text says why."""


class Form(NamedTuple):
    """How senders of a scheme sign: the HMAC-SHA256 of the body, with something before it."""

    header: str
    """The header with the signatures."""
    prefix: str
    """What a signature begins with; the HMAC follows, in hex, or in base64 for `standard`."""
    before: str = ""
    """What is signed before the body."""
    time_header: str = ""
    """The header with the seconds since 1970; without one, `t=` among the signatures may have them."""
    id_header: str = ""
    """The header with the signed id of a delivery."""
    id_name: str = ""
    """The name of an id in the body, which stays when the event is sent again under another signature."""
    separator: str | None = None
    """What stands between several signatures: senders sign with two keys while one replaces the other."""


FORMS: Mapping[str, Form] = {
    "github": Form("x-hub-signature-256", "sha256="),
    "plain": Form("x-amplifier-signature", "sha256=", "{time}.", "x-amplifier-timestamp"),
    "slack": Form("x-slack-signature", "v0=", "v0:{time}:", "x-slack-request-timestamp", id_name="event_id"),
    "standard": Form("webhook-signature", "v1,", "{id}.{time}.", "webhook-timestamp", "webhook-id", separator=" "),
    "stripe": Form("stripe-signature", "v1=", "{time}.", id_name="id", separator=","),
}
"""As docs.slack.dev/authentication/verifying-requests-from-slack, docs.stripe.com/webhooks#verify-manually and
www.standardwebhooks.com say."""


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
    form = FORMS[scheme]
    given = _only(headers, form.header).split(form.separator) if form.separator else [_only(headers, form.header)]
    sent_as = _only(headers, form.id_header) if form.id_header else ""
    timestamp = ""
    if "{time}" in form.before:
        marked = (part.removeprefix("t=") for part in given if part.startswith("t="))
        timestamp = _only(headers, form.time_header) if form.time_header else next(marked, "")
        if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= LONGEST_TIMESTAMP):
            raise BadSignature(f"{form.time_header or form.header} must have seconds since 1970")
        if abs(now.timestamp() - int(timestamp)) > tolerance:
            raise BadSignature(f"{form.time_header or form.header} is more than {tolerance:g} s away")
    signed = form.before.format(time=timestamp, id=sent_as).encode("latin-1") + body
    digest = hmac.new(key, signed, sha256)
    text = b64encode(digest.digest()).decode() if scheme == "standard" else digest.hexdigest()
    expected = (form.prefix + text).encode()
    if not any(hmac.compare_digest(expected, part.encode("latin-1")) for part in given):
        raise BadSignature(f"{form.header} does not fit")
    known_by = sent_as or (_id_in(body, form.id_name) if form.id_name else "")
    return sha256(known_by.encode("utf-8", "surrogatepass") if known_by else signed).hexdigest()


def _only(headers: Headers, name: str) -> str:
    values = headers.getlist(name)
    if len(values) != 1:
        raise BadSignature(f"{name} is missing" if not values else f"{name} is there {len(values)} times")
    return values[0]


def _id_in(body: bytes, name: str) -> str:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""
