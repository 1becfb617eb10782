"""Call functions at the end of this process, also of one that runs a single session and ends without `atexit`."""

from __future__ import annotations

import atexit
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

_calls: list[Callable[[], object]] = []


def at_process_end(call: Callable[[], object]) -> None:
    """Call `call` when this process ends in order; it should take a few seconds at most."""
    if not _calls:
        atexit.register(run_process_ends)
    _calls.append(call)


def run_process_ends() -> None:
    """Make the calls, the last one first; each of them once."""
    while _calls:
        try:
            _calls.pop()()
        except Exception:
            logger.exception("a call at the end of the process failed")
