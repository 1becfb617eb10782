"""Offer the contract of triggers under the name that programs import it by; `amplifier_core.triggers` defines it."""

from __future__ import annotations

from amplifier_core.triggers import TriggerEvent, TriggerSource, TriggerType

__all__ = ["TriggerEvent", "TriggerSource", "TriggerType"]
