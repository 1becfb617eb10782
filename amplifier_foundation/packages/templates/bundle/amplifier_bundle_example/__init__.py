"""Offer the bundle `example`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from amplifier_core import hookimpl

if TYPE_CHECKING:
    from amplifier_core.hookspecs import Register


@hookimpl
def amplifier_register_bundle(register: Register[str | Path]) -> None:
    """Offer the bundle to `amplifier run -b example`."""
    register("example", Path(__file__).parent / "bundles")
