"""Events between sessions: published once, read by each subscriber at its own pace."""

from __future__ import annotations

from .live import Overflow
from .names import matches
from .router import EventRouter, SessionEmitter
from .subscription import SubscriberLagged, Subscription, SubscriptionStats

__all__ = [
    "EventRouter",
    "Overflow",
    "SessionEmitter",
    "SubscriberLagged",
    "Subscription",
    "SubscriptionStats",
    "matches",
]
