"""Offer the trigger `trigger-issue`: it wakes sessions on issues that can be begun, and on their changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_core.hookspecs import hookimpl

from .trigger import NAME, IssueTrigger

if TYPE_CHECKING:
    from amplifier_core.hookspecs import Register, TriggerFactory

__all__ = ["IssueTrigger", "amplifier_register_trigger"]


@hookimpl
def amplifier_register_trigger(register: Register[TriggerFactory]) -> None:
    """Register the trigger of issues."""
    register(NAME, IssueTrigger)
