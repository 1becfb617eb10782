"""Wait without ever firing: `amplifier trigger fire` stores the events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amplifier_core.triggers import TriggerType

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from amplifier_core.triggers import TriggerEvent

NAME = "trigger-manual"


class ManualTrigger:
    """A trigger for people; it only waits until `stop`."""

    def __init__(self) -> None:
        import asyncio

        self._stopped = asyncio.Event()

    @staticmethod
    def config_schema() -> dict[str, Any]:
        """Return the JSON Schema of the configuration."""
        from .config import ManualConfig

        return ManualConfig.model_json_schema()

    def configure(self, config: Mapping[str, Any]) -> None:
        """Accept an empty configuration. Raises `TriggerConfigError` for any key."""
        from amplifier_core.trigger_config import read_trigger_config

        from .config import ManualConfig

        read_trigger_config(NAME, ManualConfig, config)

    def matches(self, event: TriggerEvent) -> str | None:
        """Return None for an event fired by hand, else the reason against it."""
        manual = event.type is TriggerType.MANUAL
        return None if manual else f"it is fired by hand, and this is a {event.type.value} event"

    def caught_up(self) -> bool:
        """Return True: it yields nothing."""
        return True

    async def watch(self) -> AsyncIterator[TriggerEvent]:
        """Yield nothing until `stop`."""
        await self._stopped.wait()
        nothing: tuple[TriggerEvent, ...] = ()
        for event in nothing:
            yield event

    async def stop(self) -> None:
        """End `watch`."""
        self._stopped.set()
