"""Yield an event for each posted request, and answer the request once the event is stored."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import QueueFull, StoreUnavailable, TriggerConfigError
from amplifier_core.triggers import TriggerContext, TriggerType

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from amplifier_core.triggers import TriggerEvent

    from .config import WebhookConfig
    from .pending_requests import PendingRequests

NAME = "trigger-webhook"


class WebhookTrigger:
    """A trigger by requests to its address; a stopped one does not start again.

    A request waits in `PendingRequests` until the runner of the trigger asks for the next event: then it is stored.
    """

    local = True
    """Each host that shares a store watches its own."""

    answers_callers = True

    def __init__(self) -> None:
        import asyncio

        self._context = TriggerContext(NAME)
        self._armed = asyncio.Event()
        self._stopped = False
        self._pending: PendingRequests | None = None
        self.url = ""
        """Its address: once it is configured for a fixed port, else once it is ready."""

    @staticmethod
    def config_schema() -> dict[str, Any]:
        """Return the JSON Schema of the configuration."""
        from .config import WebhookConfig

        return WebhookConfig.model_json_schema()

    @staticmethod
    def event_names() -> set[str]:
        """Return the names in its events, for checks of templates and conditions."""
        return {"method", "path", "query", "headers", "body", "event_name"}

    def bind(self, context: TriggerContext) -> None:
        """Take the clock, and the name for the default path."""
        self._context = context

    def configure(self, config: Mapping[str, Any]) -> None:
        """Take the address. Raises `TriggerConfigError`, also for a missing secret if the trigger is to run.

        Without a `saver` in its context, it is only checked: a bundle can be checked on a machine without the secret.
        """
        from .config import read_config

        self._config = read_config(NAME, config)
        if self._context.saver is not None:
            _read_secret(self._config)
        self._path = self._config.path or default_path(self._context.name)
        self.url = f"{url_of(self._config.host, self._config.port)}{self._path}" if self._config.port else ""

    @property
    def address(self) -> str:
        """Where it listens, alone of its bundle; '' for a port that the system chooses."""
        config = self._config
        return f"{self._path} at {config.host}, port {config.port}," if config.port else ""

    def matches(self, event: TriggerEvent) -> str | None:
        """Return None for a request to its address, signatures aside, else the reason against it."""
        if event.type is not TriggerType.WEBHOOK:
            return f"it fires on requests, and this is a {event.type.value} event"
        path = event.data.get("path", self._path)
        if path != self._path:
            return f"its path is {self._path}, not {path}"
        kinds = self._config.events
        if kinds is not None and event.event_name not in kinds:
            return f"events are {', '.join(kinds)}, and this one is {event.event_name or 'without a name'}"
        return None

    async def ready(self) -> None:
        """Return when the webhook listens, or has ended."""
        await self._armed.wait()

    async def watch(self) -> AsyncIterator[TriggerEvent]:
        """Yield an event for every accepted request; the call for the next event answers the request with 202.

        Its runner throws `StoreUnavailable` in for an event that was not stored: the request gets 503, and the webhook
        goes on. Raises `TriggerError` if another program has the port, or another webhook the path.
        """
        from .pending_requests import PendingRequests
        from .receiving import Receiver
        from .server import listen

        waiting = self._pending = PendingRequests()
        if self._stopped:
            waiting.close()
        receiver = Receiver(self._config, _read_secret(self._config), self._context, waiting)
        try:
            name, fail = self._context.name, waiting.fail
            async with listen(name, self._config, self._path, receiver.answer, fail) as self.url:
                self._armed.set()
                try:
                    while (pending := await waiting.next()) is not None:
                        with suppress(StoreUnavailable, QueueFull), pending:
                            yield pending.event
                            pending.mark_stored()
                finally:
                    waiting.close()
        finally:
            receiver.close()
            self._armed.set()

    async def stand_by(self) -> None:
        """Answer every request with 503 until `stop`: the background session is stopped.

        Raises `TriggerError` if another program has the port, or another webhook the path.
        """
        from .pending_requests import PendingRequests
        from .receiving import refuse_stopped
        from .server import listen

        waiting = self._pending = PendingRequests()
        if self._stopped:
            return
        async with listen(self._context.name, self._config, self._path, refuse_stopped, waiting.fail) as self.url:
            await waiting.next()

    async def stop(self) -> None:
        """End `watch` or `stand_by`; waiting requests get 503, and their clients try again."""
        self._stopped = True
        if self._pending is not None:
            self._pending.close()


def _read_secret(config: WebhookConfig) -> bytes:
    from .signatures import read_key

    variable = config.secret_env
    if variable is None:
        return b""
    secret = os.environ.get(variable, "").strip()  # a file with a secret often ends with a newline
    if not secret:
        state = "empty" if variable in os.environ else "not set"
        remedy = f"the environment variable {variable} is {state}; put the secret there"
        raise TriggerConfigError(NAME, "secret_env", remedy)
    try:
        return read_key(config.scheme, secret)
    except ValueError as error:
        raise TriggerConfigError(NAME, "secret_env", f"the environment variable {variable} {error}") from None


def url_of(host: str, port: int) -> str:
    """Return the URL of a host and a port, without a path."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def default_path(name: str) -> str:
    """Return the path for a trigger without one: `/` and its own name, else the name of its background session."""
    *before, own = name.split("/")
    own = own.partition("#")[0]
    return f"/{before[-1] if before and own == NAME else own}"
