"""Run webhooks on real sockets, and post to them."""

from __future__ import annotations

import asyncio
import hmac
import http.client
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest

from amplifier_core.errors import QueueFull, StoreUnavailable
from amplifier_core.testing.clock import VirtualClock
from amplifier_core.triggers import TriggerContext, TriggerEvent
from amplifier_trigger_webhook import WebhookTrigger

SECRET = "It's a Secret to Everybody"


@dataclass(slots=True)
class Answer:
    """The answer to a request."""

    status: int
    headers: dict[str, str]
    body: Any


@dataclass(slots=True)
class Running:
    """A running webhook and its events. `hold` makes the events wait for the store."""

    trigger: WebhookTrigger
    clock: VirtualClock
    events: list[TriggerEvent] = field(default_factory=list)
    hold: asyncio.Event = field(default_factory=asyncio.Event)
    failure: Exception | None = None

    async def post(self, body: Any = b"", headers: dict[str, str] | None = None, **request: Any) -> Answer:
        """Send a request; `body` is JSON unless it is bytes."""
        given = headers or {}
        if not isinstance(body, bytes):
            body, given = json.dumps(body).encode(), {"Content-Type": "application/json", **given}
        return await asyncio.to_thread(send, self.trigger.url, body, given, **request)

    async def signed(self, body: bytes, headers: dict[str, str] | None = None) -> Answer:
        """Send a body as GitHub signs it."""
        return await self.post(body, {**github(body), **(headers or {})})

    async def plain(self, body: bytes, headers: dict[str, str] | None = None, at: float = 0) -> Answer:
        """Send a body signed `at` seconds from now."""
        return await self.post(body, {**plain(body, int(self.clock.now().timestamp() + at)), **(headers or {})})


def send(
    url: str, body: bytes, headers: dict[str, str], method: str = "POST", path: str | None = None, chunked: bool = False
) -> Answer:
    """Send one request in this thread."""
    address = urlsplit(url)
    assert address.hostname
    connection = http.client.HTTPConnection(address.hostname, address.port or 80, timeout=120)
    try:
        content: Any = iter([body]) if chunked else body
        connection.request(method, path or address.path, content, headers, encode_chunked=chunked)
        response = connection.getresponse()
        text = response.read()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, json.loads(text or b"null"))
    finally:
        connection.close()


def github(body: bytes, secret: str = SECRET) -> dict[str, str]:
    return {"X-Hub-Signature-256": "sha256=" + hmac.new(secret.encode(), body, "sha256").hexdigest()}


def plain(body: bytes, timestamp: int, secret: str = SECRET) -> dict[str, str]:
    digest = hmac.new(secret.encode(), b"%d.%s" % (timestamp, body), "sha256").hexdigest()
    return {"X-Amplifier-Signature": f"sha256={digest}", "X-Amplifier-Timestamp": str(timestamp)}


def slack(body: bytes, timestamp: int, secret: str = SECRET) -> dict[str, str]:
    digest = hmac.new(secret.encode(), b"v0:%d:%s" % (timestamp, body), "sha256").hexdigest()
    return {"X-Slack-Signature": f"v0={digest}", "X-Slack-Request-Timestamp": str(timestamp)}


def stripe(body: bytes, timestamp: int, secret: str = SECRET) -> dict[str, str]:
    digest = hmac.new(secret.encode(), b"%d.%s" % (timestamp, body), "sha256").hexdigest()
    return {"Stripe-Signature": f"t={timestamp},v1={'0' * 64},v1={digest},v0=old"}


def standard(body: bytes, timestamp: int, secret: str = SECRET, sent_as: str = "msg_1") -> dict[str, str]:
    digest = hmac.new(secret.encode(), b"%s.%d.%s" % (sent_as.encode(), timestamp, body), "sha256").digest()
    signature = f"v1a,x v1,{b64encode(digest).decode()}"
    return {"webhook-id": sent_as, "webhook-timestamp": str(timestamp), "webhook-signature": signature}


def webhook(
    name: str = "tests/hook#1", clock: VirtualClock | None = None, state: dict[str, Any] | None = None, **config: Any
) -> WebhookTrigger:
    trigger = WebhookTrigger()
    trigger.bind(TriggerContext(name, clock=clock or VirtualClock(), state=state or {}))
    trigger.configure({"port": 0, **config})
    return trigger


Run = Callable[..., AbstractAsyncContextManager[Running]]


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)


@pytest.fixture
def run() -> Run:
    """Run a webhook with this configuration; its events are stored at once, unless `hold` is cleared."""

    @asynccontextmanager
    async def running(name: str = "tests/hook#1", **config: Any) -> AsyncIterator[Running]:
        clock = VirtualClock()
        bench = Running(webhook(name, clock, **config), clock)
        bench.hold.set()
        task = asyncio.create_task(_store(bench))
        await bench.trigger.ready()
        if task.done():
            await task
        yield bench
        bench.hold.set()
        await bench.trigger.stop()
        await task

    return running


async def _store(bench: Running) -> None:
    """Store the events as the runner of a trigger does."""
    stream = bench.trigger.watch()
    try:
        event = await anext(stream, None)
        while event is not None:
            bench.events.append(event)
            await bench.hold.wait()
            if isinstance(bench.failure, (StoreUnavailable, QueueFull)):
                event = await stream.athrow(bench.failure)  # type: ignore[attr-defined]
            elif bench.failure is not None:
                break
            else:
                event = await anext(stream, None)
    except StopAsyncIteration:  # it was stopped while the failure was thrown in
        pass
    finally:
        close: Callable[[], Awaitable[None]] = stream.aclose  # type: ignore[attr-defined]
        await close()
