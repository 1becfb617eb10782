"""The trigger `trigger-file-watcher`: wakes sessions when files are created, modified or deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_core.hookspecs import hookimpl

from .trigger import NAME, FileChangeTrigger

if TYPE_CHECKING:
    from amplifier_core.hookspecs import Register, TriggerFactory

__all__ = ["FileChangeTrigger", "amplifier_register_trigger"]


@hookimpl
def amplifier_register_trigger(register: Register[TriggerFactory]) -> None:
    """Offer the file watcher."""
    register(NAME, FileChangeTrigger)
