"""Offer the spawning of bundles; `amplifier_foundation.spawn` defines it."""

from __future__ import annotations

from amplifier_foundation.spawn import SessionStorage, SpawnResult, spawn_bundle

__all__ = ["SessionStorage", "SpawnResult", "spawn_bundle"]
