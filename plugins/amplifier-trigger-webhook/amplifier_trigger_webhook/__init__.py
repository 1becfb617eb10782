"""Offer the trigger `trigger-webhook`: requests to its address wake sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_core.hookspecs import hookimpl

from .trigger import NAME, WebhookTrigger

if TYPE_CHECKING:
    from amplifier_core.hookspecs import Register, TriggerFactory

__all__ = ["WebhookTrigger", "amplifier_register_trigger"]


@hookimpl
def amplifier_register_trigger(register: Register[TriggerFactory]) -> None:
    """Register the webhook."""
    register(NAME, WebhookTrigger)
