"""Accept or refuse requests, make events of them, and answer them."""

from __future__ import annotations

import asyncio
import re
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from amplifier_core.triggers import TriggerEvent, TriggerType

from .bodies import UnreadableBody, read_body
from .rate_limit import RateLimit
from .refused_requests import REASONS, RefusedRequests
from .seen_signatures import SeenSignatures
from .signatures import BadSignature, check_signature
from .trigger import NAME

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

    from amplifier_core.triggers import TriggerContext

    from .config import WebhookConfig
    from .pending_requests import PendingRequests

MOST_REQUESTS = 64
"""Requests in reading or storage at the same time; for one more, a body that is still read is given up with 503."""
TOO_MANY = "too many requests at once"
BODY_TIME = 10.0
"""Seconds until a body must have arrived."""
STORE_TIME = 30.0
"""Seconds until an event must be stored."""
STOPPED_FOR = 60
"""Seconds until a client asks a stopped background session again."""
LINGER = 4 * 1024 * 1024
"""Bytes to read beyond the limit of a body: a client does not see an answer while it writes."""
SEEN_FOR = 365 * 86_400.0
"""Seconds for which a signature without a time in it, or a delivery without a signature, is recognised again."""
DELIVERY_HEADERS = {"gitlab": ("idempotency-key",), "standard": ("webhook-id",)}
OWN_DELIVERY_HEADERS = ("x-github-delivery", "x-amplifier-delivery")
"""Headers with the id of a delivery, of the schemes besides."""
KIND_HEADERS = {"gitlab": "x-gitlab-event", "slack": None, "standard": None, "stripe": None}
"""Headers with the kind of an event, where it is not in GitHub's; None: the body has it."""
KEPT_HEADERS = (
    "content-type", "idempotency-key", "user-agent", "webhook-id", "x-amplifier-delivery", "x-github-delivery",
    "x-github-event", "x-github-hook-id", "x-gitlab-event",
)  # fmt: skip
LONGEST_HEADER = 512

_DELIVERY = re.compile(r"[\x21-\x7e]{1,128}")
_HOST = re.compile(r"(?:\[([^]]*)\]|([^][:@]*))(?::\d*)?")


class Answer(NamedTuple):
    """The answer to a request; `content` is sent as JSON."""

    content: dict[str, Any]
    status: int = 200
    headers: Mapping[str, str] | None = None


class Refusal(Exception):
    """A request is refused; `status` and `headers` are for the answer. With `is_told`, the runner tells people why."""

    def __init__(
        self, status: int, message: str, headers: Mapping[str, str] | None = None, *, is_told: bool = False
    ) -> None:
        self.status, self.headers, self.is_told = status, dict(headers or {}), is_told
        super().__init__(message)


class Receiver:
    """Answers the requests to one webhook."""

    def __init__(self, config: WebhookConfig, secret: bytes, context: TriggerContext, pending: PendingRequests) -> None:
        self._config = config
        self._secret = secret
        self._context = context
        self._pending = pending
        self._rate_limit = RateLimit(config.rate, context.clock)
        self._hosts = config.allowed_hosts
        self._busy = 0
        self._refused = RefusedRequests(context.name, REASONS, dict(config))
        lifetime = 2 * config.tolerance if config.scheme == "plain" else SEEN_FOR
        self._signatures = SeenSignatures(context.state, lifetime)

    async def answer(self, request: Request) -> Answer:
        """Return the answer: 202 for a stored event, 200 for an event besides `events`, else an error.

        Raises `ClientDisconnect` if the client is gone.
        """
        self._busy += 1
        try:
            return await self._accept(request)
        except Refusal as refusal:
            if not self._pending.closed and not refusal.is_told:
                self._refused.note(refusal.status)
            return Answer({"error": str(refusal)}, refusal.status, refusal.headers)
        finally:
            self._busy -= 1

    def close(self) -> None:
        """Report the requests that were refused since the last warning."""
        self._refused.close()

    async def _accept(self, request: Request) -> Answer:
        self._check_head(request)
        body = await self._read(request)
        signed = self._check_signature(request, body)
        if self._signatures.is_stored(signed):
            return Answer({"status": "accepted", "reason": "this request was accepted before"}, 202)
        try:
            value = read_body(request.headers.get("content-type", ""), body)
        except UnreadableBody as error:
            raise Refusal(error.status, str(error)) from None
        if self._config.scheme == "slack" and isinstance(value, dict) and value.get("type") == "url_verification":
            return Answer({"challenge": value.get("challenge")})
        kind = self._kind_of(request, value)
        if self._config.events is not None and kind not in self._config.events:
            return Answer({"status": "ignored", "reason": f"event {kind!r} is not among its events"})
        event = self._event(request, value, kind, signed)
        try:
            async with asyncio.timeout(STORE_TIME):
                retry_after, is_told = await self._pending.submit(event), True
        except TimeoutError:
            retry_after, is_told = 1, False
        if retry_after:
            has_key = event.dedupe_key != f"{self._context.name} {event.event_id}"
            again = "counts once by its id or signature" if has_key else "counts each time: it has no id"
            raise _later(503, f"the event may not be stored, and {again}", retry_after, is_told=is_told)
        if signed:
            self._signatures.mark_stored(signed)
        return Answer({"status": "accepted", "event_id": event.event_id}, 202)

    def _check_head(self, request: Request) -> None:
        """Refuse a request by its headers alone."""
        headers = request.headers
        host = _HOST.fullmatch(headers.get("host", "").lower())
        if self._hosts and not (host and (host[1] or host[2]) in self._hosts):
            raise Refusal(421, "this is not the host of the request; add its name to `hosts`")
        if request.method != "POST":
            raise Refusal(405, "post the event", {"Allow": "POST"})
        if self._config.scheme == "none" and ("origin" in headers or "sec-fetch-site" in headers):
            raise Refusal(403, "a page in a browser may not call a webhook without a signature")
        if self._pending.closed:
            raise _later(503, "stopped")
        if self._busy > MOST_REQUESTS and not self._pending.give_up_reader():
            raise _later(503, TOO_MANY)
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise Refusal(415, "the body is compressed; send it as it is")
        if int(headers.get("content-length", "0")) > self._config.max_bytes + LINGER:
            raise self._too_large()

    async def _read(self, request: Request) -> bytes:
        """Return the body. Raises `Refusal` if it is too large or too slow."""
        body, size, most = bytearray(), 0, self._config.max_bytes
        try:
            async with asyncio.timeout(BODY_TIME) as limit:
                self._pending.begin_reading(limit, request.client.host if request.client else "")
                try:
                    async for chunk in request.stream():
                        size += len(chunk)
                        if size <= most:
                            body += chunk
                        elif size > most + LINGER:
                            break
                finally:
                    was_given_up = not self._pending.end_reading(limit)
        except TimeoutError:
            if self._pending.closed or was_given_up:
                raise _later(503, "stopped" if self._pending.closed else TOO_MANY, close=True) from None
            if size <= most:
                raise Refusal(408, f"the body did not arrive in {BODY_TIME:g} s", {"Connection": "close"}) from None
        if size > most:
            raise self._too_large()
        return bytes(body)

    def _too_large(self) -> Refusal:
        return Refusal(413, f"the body is larger than {self._config.max_bytes} bytes", {"Connection": "close"})

    def _check_signature(self, request: Request, body: bytes) -> str:
        """Return a digest that a repeated request has as well: of its delivery's id, where nothing else is signed."""
        config, digest = self._config, ""
        if config.scheme != "none":
            now = self._context.clock.now()
            try:
                digest = check_signature(config.scheme, self._secret, request.headers, body, now, config.tolerance)
            except BadSignature as error:
                raise Refusal(401, str(error)) from None
        given = self._delivery_of(request)
        return digest or (sha256(given.encode()).hexdigest() if given else "")

    def _event(self, request: Request, value: Any, kind: str, signed: str) -> TriggerEvent:
        if seconds := self._rate_limit.take():  # what is refused is not remembered: it would push accepted ones out
            raise _later(429, f"more than {self._config.rate} requests a minute", seconds)
        headers, event_id, now = request.headers, uuid4().hex, self._context.clock.now()
        key = self._key(request, signed, now.timestamp()) or event_id
        return TriggerEvent(
            TriggerType.WEBHOOK,
            NAME,
            timestamp=now,
            event_id=event_id,
            # the name, because two webhooks of one background session may get the same delivery
            dedupe_key=f"{self._context.name} {key}",
            state_changes=self._signatures.changes(signed, now.timestamp()) if signed else None,
            event_name=kind or None,
            data={
                "method": request.method,
                "path": request.scope["path"],
                "query": dict(request.query_params),
                "headers": {name: headers[name][:LONGEST_HEADER] for name in KEPT_HEADERS if name in headers},
                "body": value,
            },
        )

    def _key(self, request: Request, signed: str, now: float) -> str:
        """Return a key that a repeated request shares with the first one; '' if nothing identifies it.

        A delivery's id is not signed: a signature therefore keeps the key of its first request.
        """
        given = self._delivery_of(request)
        if given and not _DELIVERY.fullmatch(given):
            raise Refusal(400, "a delivery's id is 1 to 128 characters, without spaces")
        key = given or signed
        return self._signatures.key_of(signed, key, now) if signed else key

    def _delivery_of(self, request: Request) -> str:
        names = DELIVERY_HEADERS.get(self._config.scheme, OWN_DELIVERY_HEADERS)
        return next(filter(None, map(request.headers.get, names)), "")

    def _kind_of(self, request: Request, value: Any) -> str:
        """Return the kind of an event: its header, else the `type` in the body, which Slack has within its `event`."""
        header = KIND_HEADERS.get(self._config.scheme, "x-github-event")
        if header is not None:
            return request.headers.get(header, "")[:LONGEST_HEADER]
        inner = value.get("event") if isinstance(value, dict) else None
        holder = inner if isinstance(inner, dict) and self._config.scheme == "slack" else value
        kind = holder.get("type") if isinstance(holder, dict) else None
        return kind[:LONGEST_HEADER] if isinstance(kind, str) else ""


async def refuse_stopped(request: Request) -> Answer:
    """Answer a request to a stopped background session."""
    return Answer({"error": "this background session is stopped"}, 503, {"Retry-After": str(STOPPED_FOR)})


def _later(status: int, message: str, seconds: int = 1, *, close: bool = False, is_told: bool = False) -> Refusal:
    headers = {"Retry-After": str(seconds), **({"Connection": "close"} if close else {})}
    return Refusal(status, f"{message}; try again", headers, is_told=is_told)
