"""Carry events between sessions: each is published once, and each subscriber reads at its own pace."""

from __future__ import annotations

from amplifier_core.events import SessionEvent

from .emitting import Emitter, SessionEmitter
from .live import Overflow
from .names import matches
from .router import EventRouter
from .subscription import SubscriberLagged, Subscription, SubscriptionStats

__all__ = [
    "Emitter",
    "EventRouter",
    "Overflow",
    "SessionEmitter",
    "SessionEvent",
    "SubscriberLagged",
    "Subscription",
    "SubscriptionStats",
    "matches",
]
