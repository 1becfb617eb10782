"""Carry messages over one connection to NATS.

One stream holds the events of all sites. A site publishes in order and waits for the broker's answers. It reads with a
durable consumer; one that has unacknowledged messages left from an earlier connection is made anew behind the last
acknowledged one, for the broker would send them later than those behind them.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nats.aio.client import Client, RawCredentials
from nats.errors import Error, MaxPayloadError, NoRespondersError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, StreamConfig
from nats.js.errors import NotFoundError, ServiceUnavailableError

from amplifier_foundation.hookspecs import Message

from .subjects import filters_of, parse_subject, subject_of

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Mapping, Sequence

    from nats.aio.msg import Msg
    from nats.js import JetStreamContext
    from nats.js.api import ConsumerInfo

    from amplifier_foundation.hookspecs import Acknowledge

    from .config import NatsConfig

BATCH = 100
"""Messages that are fetched together."""
WAIT = 2.0
"""Seconds for a message to come, before this looks whether the connection is there."""
ACK_WAIT = 60.0
"""Seconds after which the broker sends an unacknowledged message again."""
TIME_LIMIT = 5.0
"""Seconds for the broker to answer."""
ANSWERED = 20.0
"""Seconds for the broker to take the messages that are published together."""
PING = 10
"""Seconds between two pings; after two without an answer, the connection is lost."""
NO_JETSTREAM = "the broker has no JetStream: start it with nats-server -js"


class NatsTransport:
    """A `Transport` over one connection, which is not made again when it is lost: the foundation makes another."""

    def __init__(self, config: NatsConfig) -> None:
        self._config = config
        self._client = Client()
        self._site = ""
        self._names: Sequence[str] = ()
        self._stream: JetStreamContext | None = None
        self._is_open = False
        self._closed = asyncio.Event()
        self._last_error: Exception | None = None

    async def open(self, site: str, names: Sequence[str]) -> None:
        """Connect to the first server that answers. Raises `ConnectionError` with the reason of each."""
        self._site, self._names = site, names
        reasons = []
        for server in self._config.servers:
            try:
                await self._connect(server)
                self._is_open = True
                return
            except (TimeoutError, OSError, Error, ValueError) as error:
                await discard(self._client)
                address = server.rpartition("@")[2]
                reasons.append(f"{address}: {describe(self._last_error or error)}")
        raise ConnectionError("; ".join(reasons))

    async def publish(self, messages: Sequence[Message]) -> Mapping[str, str]:
        """Publish all, then wait for all answers; the broker drops what it got before."""
        stream = await self._open_stream()
        refused: dict[str, str] = {}
        answers = []
        for message in messages:
            subject = subject_of(self._config.stream, message.site, message.name)
            headers = {"Nats-Msg-Id": message.id}
            try:
                answers.append(
                    await stream.publish_async(subject, message.body, stream=self._config.stream, headers=headers)
                )
            except MaxPayloadError:
                limit = self._client.max_payload
                refused[message.id] = f"it has {len(message.body):,} bytes, and max_payload is {limit:,}"
        try:
            async with asyncio.timeout(ANSWERED):
                await asyncio.gather(*answers)
        except (TimeoutError, Error) as error:
            raise ConnectionError(describe(self._last_error or error)) from None
        return refused

    async def receive(self) -> AsyncIterator[tuple[Message, Acknowledge]]:
        """Yield the messages behind the last acknowledged one, and then new ones."""
        if not self._names:
            await self._closed.wait()
            raise ConnectionError(self._describe_loss())
        stream = await self._open_stream()
        try:
            durable = await self._consumer(stream)
            subscription = await stream.pull_subscribe_bind(durable=durable, stream=self._config.stream)
        except (TimeoutError, Error) as error:
            raise ConnectionError(f"stream {self._config.stream}: {describe(error)}") from None
        while True:
            for message in await self._fetch(subscription):
                site, name = parse_subject(message.subject)
                message_id = (message.headers or {}).get("Nats-Msg-Id", "")
                yield Message(message_id, site, name, message.data), message.ack

    async def close(self) -> None:
        """End the connection; acknowledgements still go out."""
        if self._is_open:
            await self._client.close()

    async def _connect(self, server: str) -> None:
        self._last_error = None
        self._client, self._closed = Client(), asyncio.Event()
        await self._client.connect(
            servers=[server],
            name=f"amplifier {self._site}",
            error_cb=self._note_error,
            closed_cb=self._note_end,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=int(TIME_LIMIT),
            ping_interval=PING,
            max_outstanding_pings=2,
            drain_timeout=int(TIME_LIMIT),
            **options_of(self._config),
        )

    async def _note_error(self, error: Exception) -> None:
        self._last_error = error

    async def _note_end(self) -> None:
        self._closed.set()

    def _describe_loss(self) -> str:
        return describe(self._last_error) if self._last_error else "the connection is lost"

    async def _open_stream(self) -> JetStreamContext:
        """Return the way to the stream, which is made where it is missing."""
        if self._client.is_closed:
            raise ConnectionError(self._describe_loss())
        if self._stream is not None:
            return self._stream
        stream = self._client.jetstream(timeout=TIME_LIMIT, publish_async_max_pending=10_000)
        try:
            try:
                await stream.stream_info(self._config.stream)
            except NotFoundError:
                await stream.add_stream(
                    StreamConfig(
                        name=self._config.stream,
                        subjects=[f"{self._config.stream}.>"],
                        max_age=self._config.age,
                        max_bytes=self._config.max_bytes,
                        num_replicas=self._config.replicas,
                    )
                )
        except (TimeoutError, Error) as error:
            raise ConnectionError(f"stream {self._config.stream}: {describe(error)}") from None
        self._stream = stream
        return stream

    async def _consumer(self, stream: JetStreamContext) -> str:
        """Return the name of this site's consumer; nothing that it sends is out of order."""
        durable = f"{self._config.stream}-{self._site}"
        filters = filters_of(self._config.stream, self._names)
        version = self._client.connected_server_version
        if len(filters) > 1 and (version.major, version.minor) < (2, 10):
            filters = [f"{self._config.stream}.>"]  # this broker knows one filter: the foundation leaves out the rest
        info: ConsumerInfo | None = None
        with suppress(NotFoundError):
            info = await stream.consumer_info(self._config.stream, durable)
        if info is not None and not info.num_ack_pending and _filters(info.config) == filters:
            return durable
        acknowledged = info.ack_floor.stream_seq if info is not None and info.ack_floor is not None else 0
        if info is not None:
            await stream.delete_consumer(self._config.stream, durable)
        await stream.add_consumer(
            self._config.stream,
            ConsumerConfig(
                durable_name=durable,
                ack_policy=AckPolicy.EXPLICIT,
                ack_wait=ACK_WAIT,
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=acknowledged + 1,
                filter_subject=filters[0] if len(filters) == 1 else None,
                filter_subjects=filters if len(filters) > 1 else None,
            ),
        )
        return durable

    async def _fetch(self, subscription: JetStreamContext.PullSubscription) -> list[Msg]:
        """Wait for messages; return those that are there. Raises `ConnectionError`."""
        while True:
            if self._client.is_closed:
                raise ConnectionError(self._describe_loss())
            try:
                [first] = await subscription.fetch(1, timeout=WAIT)
                waiting = min(first.metadata.num_pending, BATCH - 1)
                return [first, *(await subscription.fetch(waiting, timeout=WAIT) if waiting else ())]
            except TimeoutError:
                continue
            except Error as error:
                raise ConnectionError(describe(error)) from None


async def discard(client: Client) -> None:
    """Close the socket of a client that was refused: its own `close` leaves it open then (nats-py 2.16)."""
    transport = getattr(client, "_transport", None)
    if transport is not None:
        transport.close()
        with suppress(Exception):  # a broker that refuses a certificate never ends the encryption in order
            async with asyncio.timeout(0.2):
                await transport.wait_closed()


def options_of(config: NatsConfig) -> dict[str, Any]:
    """Return what the client needs to say who it is, and to encrypt the connection."""
    credentials: Any = RawCredentials(config.credentials) if config.credentials else config.credentials_file
    given = {
        "token": config.token,
        "user": config.user,
        "password": config.password,
        "nkeys_seed_str": config.nkey,
        "nkeys_seed": _path(config.nkey_file),
        "user_credentials": _path(credentials),
    }
    if config.tls is not None:
        given["tls"] = make_context(config)
        given["tls_hostname"] = config.tls.hostname
        given["tls_handshake_first"] = config.tls.first or None
    return {key: value for key, value in given.items() if value is not None}


def make_context(config: NatsConfig) -> ssl.SSLContext:
    """Return the context of an encrypted connection. Raises `OSError` for an unreadable file."""
    import ssl

    assert config.tls is not None  # the caller has looked
    context = ssl.create_default_context(cafile=_path(config.tls.ca_file))
    if config.tls.cert_file is not None and config.tls.key_file is not None:
        context.load_cert_chain(str(_path(config.tls.cert_file)), str(_path(config.tls.key_file)))
    return context


def describe(error: BaseException) -> str:
    """Return an error in words, with the remedy where one is known."""
    text = str(error).strip() or type(error).__name__
    if "authorization" in text.lower() or "authentication" in text.lower():
        return f"the broker refuses this site's credentials ({text.removeprefix('nats: ')})"
    if isinstance(error, ServiceUnavailableError | NoRespondersError):
        return NO_JETSTREAM
    if isinstance(error, TimeoutError):
        return "the broker did not answer in time"
    return text.removeprefix("nats: ")


def _filters(config: ConsumerConfig) -> list[str]:
    return list(config.filter_subjects or ()) or ([config.filter_subject] if config.filter_subject else [])


def _path(value: Any) -> Any:
    return str(Path(value).expanduser()) if isinstance(value, str) else value
