"""Decide which traces are exported: by their id, so every process decides alike."""

from __future__ import annotations


def is_sampled(trace_id: int, ratio: float) -> bool:
    """Return whether a trace belongs to the share `ratio`, as the sampler `traceidratio` of the SDK does."""
    return (trace_id & 0xFFFF_FFFF_FFFF_FFFF) < round(ratio * (1 << 64))
