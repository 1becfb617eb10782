"""Notice changes of packages under `amplifier up`: later imports may not fit the running code."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from amplifier_core.entry_points import find_entry_points

from ..packages.report import GROUPS
from .tasks import run_beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from amplifier_core.clock import Clock

logger = logging.getLogger(__name__)

PACKAGES = "packages"
"""The component with the problem."""
LOOK_EVERY = 60.0
"""Seconds."""


@asynccontextmanager
async def looking_at_packages(clock: Clock, report: Callable[[str], None]) -> AsyncIterator[None]:
    """Compare the installed packages with those of now each minute, while the block runs.

    `report` gets what has changed after each look, '' for nothing. Packages without entry points of ours are not seen.
    """
    async with run_beside(_look_regularly(_versions(), clock, report), "packages"):
        yield


async def _look_regularly(begun: Mapping[str, str], clock: Clock, report: Callable[[str], None]) -> None:
    while True:
        await clock.sleep(LOOK_EVERY)
        try:
            now = await asyncio.to_thread(_versions)
        except (OSError, RuntimeError) as error:
            logger.warning("the installed packages could not be looked at: %s", error)
            continue
        changes = [
            f"{name} {version} is {now[name]} now" if name in now else f"{name} {version} is gone"
            for name, version in sorted(begun.items())
            if now.get(name) != version
        ]
        report(f"packages changed since this process began: {', '.join(changes)}. Restart it" if changes else "")


def _versions() -> dict[str, str]:
    return {entry.dist.name: entry.dist.version for group in GROUPS for entry in find_entry_points(group)}
