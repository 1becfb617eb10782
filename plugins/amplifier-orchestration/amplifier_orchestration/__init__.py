"""Offer events, triggers, spawned and background sessions under the import name `amplifier_orchestration`.

A name of this package is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .background import BackgroundSessionConfig, BackgroundSessionManager, BackgroundSessionState
    from .events import EventRouter, SessionEmitter, SessionEvent
    from .spawn import SessionStorage, SpawnResult, spawn_bundle
    from .triggers import (
        FileChangeTrigger,
        ManualTrigger,
        SessionEventTrigger,
        TimerTrigger,
        TriggerEvent,
        TriggerSource,
        TriggerType,
    )

_HOMES = {
    ".background": "BackgroundSessionConfig BackgroundSessionManager BackgroundSessionState",
    ".events": "EventRouter SessionEmitter SessionEvent",
    ".spawn": "SessionStorage SpawnResult spawn_bundle",
    ".triggers": (
        "FileChangeTrigger ManualTrigger SessionEventTrigger TimerTrigger TriggerEvent TriggerSource TriggerType"
    ),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "BackgroundSessionConfig",
    "BackgroundSessionManager",
    "BackgroundSessionState",
    "EventRouter",
    "FileChangeTrigger",
    "ManualTrigger",
    "SessionEmitter",
    "SessionEvent",
    "SessionEventTrigger",
    "SessionStorage",
    "SpawnResult",
    "TimerTrigger",
    "TriggerEvent",
    "TriggerSource",
    "TriggerType",
    "spawn_bundle",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'amplifier_orchestration' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME_OF[name], __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
