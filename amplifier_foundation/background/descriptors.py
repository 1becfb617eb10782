"""Report a lack of file descriptors once a minute, where asyncio logs a traceback for each refused connection."""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .mistakes import is_exhausted

if TYPE_CHECKING:
    from collections.abc import Iterator

PERIOD = 60.0
"""Seconds between two lines."""

logger = logging.getLogger(__name__)


@contextmanager
def report_exhaustion() -> Iterator[None]:
    """Handle errors of the running loop while the block runs; other errors are handled as before.

    For each refused connection asyncio lets its server accept again a second later, also one that is closed by then:
    the failures of that say nothing new.
    """
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    reported_at = float("-inf")

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal reported_at
        if isinstance(context.get("exception"), ValueError) and "._start_serving(" in context.get("message", ""):
            return
        if not is_exhausted(context.get("exception")):
            before(loop, context) if before is not None else loop.default_exception_handler(context)
            return
        if loop.time() - reported_at >= PERIOD:
            logger.error("no file descriptor is free: connections wait. Raise the limit: ulimit -n")
            reported_at = loop.time()

    loop.set_exception_handler(handle)
    try:
        yield
    finally:
        loop.set_exception_handler(before)
