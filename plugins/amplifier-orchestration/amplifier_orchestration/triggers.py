"""Offer the contract of triggers, and those of the trigger packages, ready to watch without a manager.

A trigger has its defaults from its constructor on, and shows what it is configured to.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import amplifier_trigger_file_watcher
import amplifier_trigger_manual
import amplifier_trigger_session_event
import amplifier_trigger_timer
from amplifier_core.errors import TriggerConfigError
from amplifier_core.triggers import TriggerEvent, TriggerSource, TriggerType

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from amplifier_core.log_triggers import Router

__all__ = [
    "FileChangeTrigger",
    "ManualTrigger",
    "SessionEventTrigger",
    "TimerTrigger",
    "TriggerEvent",
    "TriggerSource",
    "TriggerType",
]


class FileChangeTrigger(amplifier_trigger_file_watcher.FileChangeTrigger):
    """Fires for changed files: by default all below the current folder, when they are quiet for a second."""

    def __init__(self) -> None:
        super().__init__()
        self.configure({})

    def configure(self, config: Mapping[str, Any]) -> None:
        """Take the configuration; its `path` may be a `Path`. Raises `TriggerConfigError`."""
        path = config.get("path")
        super().configure({**config, "path": os.fspath(path)} if isinstance(path, os.PathLike) else config)

    @property
    def patterns(self) -> list[str]:
        """The patterns of files that fire."""
        return self._config.patterns

    @property
    def debounce_ms(self) -> int:
        """Milliseconds without a change before a file fires."""
        return self._config.debounce_ms

    @property
    def base_path(self) -> Path:
        """The watched folder."""
        return self._scope.folder


class TimerTrigger(amplifier_trigger_timer.TimerTrigger):
    """Fires at times: every 60 seconds by default."""

    def __init__(self) -> None:
        super().__init__()
        self.configure({})

    @property
    def interval_seconds(self) -> float | None:
        """Seconds from one tick to the next; None with `cron` or `at`."""
        return self._schedule.describe().get("interval")


class SessionEventTrigger(amplifier_trigger_session_event.SessionEventTrigger):
    """Fires for events of a router, given here or by `set_event_router`."""

    def __init__(self, router: Router | None = None) -> None:
        super().__init__()
        self.event_names: list[str] = []
        self.source_sessions: list[str] | None = None
        if router is not None:
            self.set_event_router(router)

    def configure(self, config: Mapping[str, Any]) -> None:
        """Take the names and sessions. Raises `TriggerConfigError`, also without any name."""
        super().configure(config)
        self.event_names, self.source_sessions = self._config.event_names, self._config.source_sessions

    def watch(self) -> AsyncIterator[TriggerEvent]:
        """Yield an event for each matching one. Raises `TriggerConfigError` before `configure`."""
        if not self.event_names:
            raise TriggerConfigError("trigger-session-event", "event_names", "there are none; call configure() first")
        return super().watch()


class ManualTrigger(amplifier_trigger_manual.ManualTrigger):
    """Fires when `fire` is called."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: asyncio.Queue[TriggerEvent | None] = asyncio.Queue()

    async def fire(self, data: Mapping[str, Any] | None = None) -> None:
        """Have `watch` yield an event with this data."""
        event = TriggerEvent(TriggerType.MANUAL, "trigger-manual", data=dict(data or {}))
        self._waiting.put_nowait(event)

    async def watch(self) -> AsyncIterator[TriggerEvent]:
        """Yield an event for each `fire`, until `stop`."""
        while (event := await self._waiting.get()) is not None:
            yield event

    async def stop(self) -> None:
        """End `watch` after the events fired before."""
        self._waiting.put_nowait(None)
