"""The policy: bundles, spawning, recording, events between sessions, background sessions and the command line.

Every name below is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # what type checkers take for true; importing typing would be half of this module's cost
if TYPE_CHECKING:
    from amplifier_core import (
        BundleDependencyError,
        BundleError,
        BundleLoadError,
        BundleNotFoundError,
        BundleValidationError,
        SessionEvent,
        SessionStorage,
        TriggerEvent,
        TriggerSource,
        TriggerType,
    )

    from .background.config import BackgroundSessionConfig, TriggerConfig
    from .background.lane import Activity
    from .background.manager import BackgroundSessionManager
    from .bundles.load import load_bundle
    from .bundles.merge import deep_merge, merge_module_lists
    from .bundles.model import Bundle, PreparedBundle
    from .conversation import Turn, converse
    from .events import EventRouter, SessionEmitter, SubscriberLagged, Subscription
    from .forks import fork_stored
    from .lineage import Node, describe_event, forest
    from .recording import SessionRecorder
    from .runners import InProcessRunner
    from .spawn import SpawnResult, spawn_bundle
    from .stores import open_inbox, open_store
    from .up import Up, brought_up

_HOMES = {
    ".background.config": "BackgroundSessionConfig TriggerConfig",
    ".background.lane": "Activity",
    ".background.manager": "BackgroundSessionManager",
    ".bundles.load": "load_bundle",
    ".bundles.merge": "deep_merge merge_module_lists",
    ".bundles.model": "Bundle PreparedBundle",
    ".conversation": "Turn converse",
    ".events": "EventRouter SessionEmitter SubscriberLagged Subscription",
    ".forks": "fork_stored",
    ".lineage": "Node describe_event forest",
    ".recording": "SessionRecorder",
    ".runners": "InProcessRunner",
    ".spawn": "SpawnResult spawn_bundle",
    ".stores": "open_inbox open_store",
    ".up": "Up brought_up",
    "amplifier_core": (
        "BundleDependencyError BundleError BundleLoadError BundleNotFoundError BundleValidationError "
        "SessionEvent SessionStorage TriggerEvent TriggerSource TriggerType"
    ),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "Activity",
    "BackgroundSessionConfig",
    "BackgroundSessionManager",
    "Bundle",
    "BundleDependencyError",
    "BundleError",
    "BundleLoadError",
    "BundleNotFoundError",
    "BundleValidationError",
    "EventRouter",
    "InProcessRunner",
    "Node",
    "PreparedBundle",
    "SessionEmitter",
    "SessionEvent",
    "SessionRecorder",
    "SessionStorage",
    "SpawnResult",
    "SubscriberLagged",
    "Subscription",
    "TriggerConfig",
    "TriggerEvent",
    "TriggerSource",
    "TriggerType",
    "Turn",
    "Up",
    "brought_up",
    "converse",
    "deep_merge",
    "describe_event",
    "forest",
    "fork_stored",
    "load_bundle",
    "merge_module_lists",
    "open_inbox",
    "open_store",
    "spawn_bundle",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'amplifier_foundation' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME_OF[name], __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
