"""Report a stall of the serving loop: no trigger, time limit or request to stop is served meanwhile.

Tools run in other loops. A plugin, a trigger or a runner of a package may block this one.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..spawning.stalls import Stall, StallWatch
    from .up import Up

logger = logging.getLogger(__name__)

REMEDY = "Code that blocks belongs in a thread: await asyncio.to_thread(…)"


@contextmanager
def reporting_stalls(watch: StallWatch, running: Sequence[Up]) -> Iterator[None]:
    """Watch the running loop while the block runs.

    A stall is logged at once, and noted in the log of events after its end.
    """
    loop = asyncio.get_running_loop()

    def record(text: str) -> None:
        for each in running:
            each.manager.report_stall(text)

    def report(stall: Stall) -> None:
        task = asyncio.current_task(loop)
        name = task.get_name() if task is not None else ""
        who = name if name.startswith("trigger ") else "a plugin or trigger"
        text = f"nothing is served: {who} has blocked for {stall.seconds:.0f} s in {stall.stack}. {REMEDY}"
        logger.error("%s", text)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(record, text)

    with watch.watch(loop, threading.get_ident(), report):
        yield
