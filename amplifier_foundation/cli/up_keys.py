"""Read single keys at the terminal of `amplifier up`: quit, pause, tool calls, details."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from amplifier_core.errors import AmplifierError

from ..operations.running import Changed, record_change
from .app import person
from .running.stopping import returns_to

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from amplifier_core.storage import SessionStore

    from ..background.up import Up
    from .view import RunView

logger = logging.getLogger(__name__)

_SEQUENCE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|O.|.)?", re.DOTALL)
"""What a key of several characters sends, as an arrow: it means nothing here."""
HINT = "q quits · p pauses · l tool calls · Enter details"


class UpKeys:
    """What each key does: `handle` takes one at a time; a failure is told, and changes nothing else."""

    def __init__(self, view: RunView, running: Sequence[Up], store: SessionStore, quit: Callable[[], None]) -> None:
        self._view = view
        self._running = running
        self._store = store
        self._acts: dict[str, Callable[[], Awaitable[None]]] = {
            "q": self._quit,
            "p": self._pause,
            "l": self._show_tools,
            "\r": self._show_details,
            "\n": self._show_details,
        }
        self._stop = quit

    async def handle(self, keys: asyncio.Queue[str]) -> None:
        """Act on keys until cancelled."""
        while True:
            act = self._acts.get((await keys.get()).lower())
            try:
                if act is not None:
                    await act()
            except AmplifierError as error:
                self._view.note(str(error))

    async def _quit(self) -> None:
        self._stop()

    async def _pause(self) -> None:
        """Pause everything that runs; resume everything when nothing runs unpaused."""
        rows = [(up, row) for up in self._running for row in up.manager.get_status().values()]
        alive = [(up, row) for up, row in rows if row["status"] != "stopped"]
        is_paused = all(row["status"] == "paused" for _, row in alive)
        for up, row in alive:
            await up.manager.change(row["name"], "running" if is_paused else "paused")
            changed = [Changed(up.project, row["queue"])]
            await record_change(self._store, person(), "resume" if is_paused else "pause", changed)
        said = "Resumed" if is_paused else "Paused, also over a restart: events wait; p resumes"
        self._view.note(f"{said}.")

    async def _show_tools(self) -> None:
        self._view.shows_tools = not self._view.shows_tools
        self._view.note("Tool calls are shown." if self._view.shows_tools else "Tool calls are hidden; l shows them.")

    async def _show_details(self) -> None:
        self._view.show_details([row for up in self._running for row in up.manager.get_status().values()])


@contextmanager
def reading_keys() -> Iterator[asyncio.Queue[str] | None]:
    """Put single keys of the terminal into a queue while the block runs; None where stdin is no terminal.

    What was typed before is dropped. Ctrl-C and Ctrl-Z keep their meaning, and keys count after a suspension, too.
    Without input of its own, as a job in the background, nothing is read.
    """
    import termios
    import tty

    descriptor = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else -1
    if descriptor < 0 or not _is_in_front(descriptor):
        yield None
        return
    loop, keys = asyncio.get_running_loop(), asyncio.Queue[str]()
    before = termios.tcgetattr(descriptor)

    def read() -> None:
        try:
            text = os.read(descriptor, 64).decode(errors="ignore")
        except OSError:
            text = ""
        if not text:  # the terminal is gone
            loop.remove_reader(descriptor)
        for key in _SEQUENCE.sub("", text):
            keys.put_nowait(key)

    def begin() -> None:
        """Take single keys from now on: a shell has set its own mode before it lets this program go on."""
        with suppress(termios.error):
            tty.setcbreak(descriptor)

    try:
        begin()
        loop.add_reader(descriptor, read)
        with returns_to(begin):
            yield keys
    finally:
        loop.remove_reader(descriptor)
        with suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _is_in_front(descriptor: int) -> bool:
    """Return whether this process may read the terminal; a job in the background would be stopped."""
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:  # no terminal that has jobs
        return True
