"""Offer the trigger `trigger-manual`: people wake its session by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_core.hookspecs import hookimpl

from .trigger import NAME, ManualTrigger

if TYPE_CHECKING:
    from amplifier_core.hookspecs import Register, TriggerFactory

__all__ = ["ManualTrigger", "amplifier_register_trigger"]


@hookimpl
def amplifier_register_trigger(register: Register[TriggerFactory]) -> None:
    """Register the manual trigger."""
    register(NAME, ManualTrigger)
