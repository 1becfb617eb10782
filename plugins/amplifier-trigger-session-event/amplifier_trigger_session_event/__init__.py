"""Offer the trigger `trigger-session-event`: it wakes sessions on events of other sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_core.hookspecs import hookimpl

from .trigger import NAME, SessionEventTrigger

if TYPE_CHECKING:
    from amplifier_core.hookspecs import Register, TriggerFactory

__all__ = ["SessionEventTrigger", "amplifier_register_trigger"]


@hookimpl
def amplifier_register_trigger(register: Register[TriggerFactory]) -> None:
    """Register the session event trigger."""
    register(NAME, SessionEventTrigger)
