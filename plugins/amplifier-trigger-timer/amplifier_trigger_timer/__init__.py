"""Offer the trigger `trigger-timer`: it wakes sessions at intervals, at a time, or by a cron expression."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_core.hookspecs import hookimpl

from .trigger import NAME, TimerTrigger

if TYPE_CHECKING:
    from amplifier_core.hookspecs import Register, TriggerFactory

__all__ = ["TimerTrigger", "amplifier_register_trigger"]


@hookimpl
def amplifier_register_trigger(register: Register[TriggerFactory]) -> None:
    """Offer the timer."""
    register(NAME, TimerTrigger)
