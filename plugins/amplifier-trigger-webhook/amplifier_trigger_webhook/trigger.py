"""The webhook as a trigger: what was posted is yielded, and answered when it is stored."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import TriggerConfigError
from amplifier_core.triggers import TriggerContext, TriggerType

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from amplifier_core.triggers import TriggerEvent

    from .arrivals import Arrivals

NAME = "trigger-webhook"


class WebhookTrigger:
    """Fires when its address is posted to; a stopped one is not started again."""

    def __init__(self) -> None:
        import asyncio

        self._context = TriggerContext(NAME)
        self._armed = asyncio.Event()
        self._stopped = False
        self._arrivals: Arrivals | None = None
        self.url = ""
        """Where it listens, once it is ready."""

    @staticmethod
    def config_schema() -> dict[str, Any]:
        """Return the JSON Schema of the configuration."""
        from .config import WebhookConfig

        return WebhookConfig.model_json_schema()

    def bind(self, context: TriggerContext) -> None:
        """Take the clock, and the name that the path comes from."""
        self._context = context

    def configure(self, config: Mapping[str, Any]) -> None:
        """Take the address; where it will listen, the secret must be in the environment. Raises `TriggerConfigError`.

        A bundle can be checked where the secret is not: what only checks has nowhere to save a state.
        """
        from amplifier_core.trigger_config import read_trigger_config

        from .config import WebhookConfig

        if "secret" in config:
            remedy = "a bundle holds no secrets; put it into an environment variable, and name that in secret_env"
            raise TriggerConfigError(NAME, "secret", remedy)
        self._config = read_trigger_config(NAME, WebhookConfig, config)
        if self._context.saver is not None:
            _secret(self._config.secret_env)
        self._path = self._config.path or default_path(self._context.name)

    def matches(self, event: TriggerEvent) -> str | None:
        """Return None for what may be posted to its address, signatures aside, else why not."""
        if event.type is not TriggerType.WEBHOOK:
            return f"it fires when it is posted to, and this is a {event.type.value} event"
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
        """Yield an event for every request that is let in; being asked for the next one answers it with 202.

        Raises `TriggerError` when the port or the path is taken.
        """
        from .arrivals import Arrivals
        from .receiving import Receiver
        from .server import listening

        arrivals = self._arrivals = Arrivals()
        if self._stopped:
            arrivals.close()
        receiver = Receiver(self._config, _secret(self._config.secret_env), self._context, arrivals)
        try:
            async with listening(self._context.name, self._config, self._path, receiver.answer) as self.url:
                self._armed.set()
                try:
                    while (arrival := await arrivals.next()) is not None:
                        with arrival:
                            yield arrival.event
                            arrival.store()
                finally:
                    arrivals.close()
        finally:
            self._armed.set()

    async def stop(self) -> None:
        """End `watch`; requests that wait are answered with 503, and their clients try again."""
        self._stopped = True
        if self._arrivals is not None:
            self._arrivals.close()


def _secret(variable: str | None) -> bytes:
    if variable is None:
        return b""
    secret = os.environ.get(variable, "")
    if not secret:
        raise TriggerConfigError(
            NAME, "secret_env", f"the environment variable {variable} is not set; put the secret there"
        )
    return secret.encode("utf-8", "surrogateescape")


def default_path(name: str) -> str:
    """Return the path for a trigger without one: `/` and its own name, or else that of its background session."""
    *before, own = name.split("/")
    own = own.partition("#")[0]
    return f"/{before[-1] if before and own == NAME else own}"
