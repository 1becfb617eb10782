"""One request after the other: whether it is let in, what event it is, and what it is answered."""

from __future__ import annotations

import asyncio
import logging
import re
from ipaddress import ip_address
from typing import TYPE_CHECKING
from uuid import uuid4

from starlette.responses import JSONResponse

from amplifier_core.triggers import TriggerEvent, TriggerType

from .allowance import Allowance
from .bodies import Unreadable, read_body
from .config import is_loopback
from .signatures import Forged, check_signature
from .trigger import NAME

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

    from amplifier_core.triggers import TriggerContext

    from .arrivals import Arrivals
    from .config import WebhookConfig

logger = logging.getLogger(__name__)

MOST_REQUESTS = 64
"""Requests that are read or wait for the store at the same time; one more is answered with 503."""
BODY_TIME = 10.0
"""Seconds that a body may take to arrive."""
STORE_TIME = 30.0
"""Seconds that a request waits for its event to be stored."""
LINGER = 4 * 1024 * 1024
"""Bytes of a body that is too large which are read all the same: who still writes does not see an answer."""
MOST_SIGNATURES = 100_000
"""Signatures that are known again."""
KEPT_HEADERS = (
    "content-type", "user-agent", "x-amplifier-delivery", "x-github-delivery", "x-github-event", "x-github-hook-id",
)  # fmt: skip
LONGEST_HEADER = 512

_DELIVERY = re.compile(r"[\x21-\x7e]{1,128}")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Refusal(Exception):
    """A request that is not let in, and what it is answered."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        self.status, self.headers = status, dict(headers or {})
        super().__init__(message)


class Receiver:
    """Answers the requests for one webhook."""

    def __init__(self, config: WebhookConfig, secret: bytes, context: TriggerContext, arrivals: Arrivals) -> None:
        self._config = config
        self._secret = secret
        self._context = context
        self._arrivals = arrivals
        self._allowance = Allowance(config.rate, context.clock)
        self._hosts = _hosts(config)
        self._busy = 0
        self._keys: dict[str, tuple[float, str]] = {}

    async def answer(self, request: Request) -> JSONResponse:
        """Return the answer: 202 for an event that is stored, 200 for one that is not asked for, else an error.

        Raises `ClientDisconnect` when nobody is there any more to be answered.
        """
        self._busy += 1
        try:
            return await self._let_in(request)
        except Refusal as refusal:
            logger.info("%s answered %d: %s", self._context.name, refusal.status, refusal)
            return JSONResponse({"error": str(refusal)}, refusal.status, refusal.headers)
        finally:
            self._busy -= 1

    async def _let_in(self, request: Request) -> JSONResponse:
        self._check_head(request)
        body = await self._read(request)
        signed = self._check_signature(request, body)
        kind = request.headers.get("x-github-event", "")
        if self._config.events is not None and kind not in self._config.events:
            return JSONResponse({"status": "ignored", "reason": f"event {kind!r} is not asked for"})
        event = self._event(request, body, signed)
        if seconds := self._allowance.take():
            raise _later(429, f"more than {self._config.rate} requests a minute", seconds)
        if not await self._stored(event):
            raise _later(503, "the event could not be stored")
        return JSONResponse({"status": "accepted", "event_id": event.event_id}, 202)

    def _check_head(self, request: Request) -> None:
        """Refuse what the headers alone tell is wrong."""
        headers = request.headers
        if self._hosts and _host_name(headers.get("host", "")) not in self._hosts:
            raise Refusal(421, "this is not the host of the request; list its name in `hosts`")
        if request.method != "POST":
            raise Refusal(405, "post the event", {"Allow": "POST"})
        if self._config.scheme == "none" and ("origin" in headers or "sec-fetch-site" in headers):
            raise Refusal(403, "a page in a browser may not call a webhook without a signature")
        if self._arrivals.closed or self._busy > MOST_REQUESTS:
            raise _later(503, "stopped" if self._arrivals.closed else "too many requests at once")
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise Refusal(415, "the body is compressed; send it as it is")
        if int(headers.get("content-length", "0")) > self._config.max_bytes + LINGER:
            raise self._too_large()

    async def _read(self, request: Request) -> bytes:
        """Return the body. Raises `Refusal` for one that is too large or too slow."""
        body, size, most = bytearray(), 0, self._config.max_bytes
        try:
            async with asyncio.timeout(BODY_TIME) as limit:
                self._arrivals.reading(limit, True)
                try:
                    async for chunk in request.stream():
                        size += len(chunk)
                        if size <= most:
                            body += chunk
                        elif size > most + LINGER:
                            break
                finally:
                    self._arrivals.reading(limit, False)
        except TimeoutError:
            if self._arrivals.closed:
                raise _later(503, "stopped") from None
            if size <= most:
                raise Refusal(408, f"the body did not arrive in {BODY_TIME:g} s", {"Connection": "close"}) from None
        if size > most:
            raise self._too_large()
        return bytes(body)

    def _too_large(self) -> Refusal:
        return Refusal(413, f"the body is larger than {self._config.max_bytes} bytes", {"Connection": "close"})

    def _check_signature(self, request: Request, body: bytes) -> str:
        """Return the digest of what was signed, '' where nothing is."""
        config = self._config
        if config.scheme == "none":
            return ""
        now = self._context.clock.now()
        try:
            return check_signature(config.scheme, self._secret, request.headers, body, now, config.tolerance)
        except Forged as forged:
            raise Refusal(401, str(forged)) from None

    def _event(self, request: Request, body: bytes, signed: str) -> TriggerEvent:
        headers = request.headers
        try:
            value = read_body(headers.get("content-type", ""), body)
        except Unreadable as error:
            raise Refusal(error.status, str(error)) from None
        event_id = uuid4().hex
        return TriggerEvent(
            TriggerType.WEBHOOK,
            NAME,
            timestamp=self._context.clock.now(),
            event_id=event_id,
            # the name, because two webhooks of one background session may be sent the same delivery
            dedupe_key=f"{self._context.name} {self._key(request, signed) or event_id}",
            event_name=headers.get("x-github-event", "")[:LONGEST_HEADER] or None,
            data={
                "method": request.method,
                "path": request.scope["path"],
                "query": dict(request.query_params),
                "headers": {name: headers[name][:LONGEST_HEADER] for name in KEPT_HEADERS if name in headers},
                "body": value,
            },
        )

    def _key(self, request: Request, signed: str) -> str:
        """Return what a request that is sent again has in common with the first.

        A delivery's id is not signed. What was signed therefore keeps the key that it came with first, as long as it
        may come again.
        """
        key = _delivery(request) or signed
        if not signed:
            return key
        now = self._context.clock.monotonic()
        while self._keys and (next(iter(self._keys.values()))[0] < now or len(self._keys) >= MOST_SIGNATURES):
            del self._keys[next(iter(self._keys))]
        return self._keys.setdefault(signed, (now + 2 * self._config.tolerance, key))[1]

    async def _stored(self, event: TriggerEvent) -> bool:
        try:
            async with asyncio.timeout(STORE_TIME):
                return await self._arrivals.stored(event)
        except TimeoutError:
            return False


def _later(status: int, message: str, seconds: int = 1) -> Refusal:
    return Refusal(status, f"{message}; try again", {"Retry-After": str(seconds)})


def _hosts(config: WebhookConfig) -> frozenset[str]:
    """Return the names that a request may call its host by; none: any, as an address for all has no name of its own."""
    if not config.hosts and ip_address(config.host).is_unspecified:
        return frozenset()
    own = _LOOPBACK if is_loopback(config.host) else frozenset[str]()
    return own | {config.host} | frozenset(config.hosts)


def _host_name(header: str) -> str:
    """Return the name in a Host header, without its port and the brackets of an IPv6 address."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0].lower()


def _delivery(request: Request) -> str:
    given = request.headers.get("x-github-delivery") or request.headers.get("x-amplifier-delivery") or ""
    if given and not _DELIVERY.fullmatch(given):
        raise Refusal(400, "a delivery's id is 1 to 128 characters, without spaces")
    return given
