"""Offer the router of events; `amplifier_foundation.events` defines it."""

from __future__ import annotations

from amplifier_foundation.events import EventRouter, SessionEmitter, SessionEvent

__all__ = ["EventRouter", "SessionEmitter", "SessionEvent"]
