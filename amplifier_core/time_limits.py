"""Let modules take their time, say what is waited for, and give up after a limit."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from .eager import Waiting

logger = logging.getLogger(__name__)

T = TypeVar("T")

NOTICE_AFTER = 5.0
"""Seconds until the log names what is waited for."""
GRACE = 5.0
"""Seconds for a module to end after its cancellation."""


async def finish(waiting: Waiting[T], seconds: float, act: str, owner: str) -> T:
    """Return the result of an `act` ("its mount") of `owner`, a module; the log names one that takes long.

    Raises `TimeoutError` after `seconds`, or `GRACE` later for a module that ignores its cancellation: it is closed.
    """

    def is_given_up() -> bool:
        if limit.expired() and last.when() is None:
            last.reschedule(asyncio.get_running_loop().time() + GRACE)
        return last.expired()

    text = "waiting for %s: %s is given up after %g s"
    notice = None
    if seconds > NOTICE_AFTER:
        notice = asyncio.get_running_loop().call_later(NOTICE_AFTER, logger.warning, text, owner, act, seconds)
    try:
        async with asyncio.timeout(None) as last, asyncio.timeout(seconds) as limit:
            waiting.is_given_up = is_given_up
            return await waiting
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise TimeoutError(f"{act} took longer than {seconds:g} s") from error
    finally:
        if notice is not None:
            notice.cancel()
