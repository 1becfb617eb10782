"""Keep the working folder of the process: all its sessions share it, and its settings are read at each reload."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.events import TOOL_ERROR, TOOL_POST, TOOL_PRE

from .file_causes import call_of

if TYPE_CHECKING:
    from amplifier_core.session import AmplifierSession

logger = logging.getLogger(__name__)

LOOK_EVERY = 1.0
"""Seconds between two looks at the folder."""
_LAST = 1_000_000
"""The priority of hooks that see a tool's call as it will run."""


class WorkingFolder:
    """The current folder at the start, as `path`. A tool that changes it is named in a warning, and it is put back."""

    def __init__(self) -> None:
        self.path = Path.cwd()
        self._found = self.path.stat()
        self._lock = threading.Lock()
        self._running: dict[tuple[str, str], str] = {}
        self._suspects: set[str] = set()

    def follow(self) -> Path:
        """Enter the folder that is now at `path`, if it was replaced; return `path`. Raises `OSError` without one."""
        with self._lock:
            now, here = self.path.stat(), _stat_here()
            is_left = here is not None and not os.path.samestat(here, self._found)  # by a tool, which still runs
            if not is_left and (here is None or not os.path.samestat(now, here)):
                os.chdir(self.path)
            self._found = now
        return self.path

    async def keep(self) -> None:
        """Follow the folder until cancelled; while there is none, wait for it."""
        while True:
            with suppress(OSError):
                await asyncio.to_thread(self.follow)
            await asyncio.sleep(LOOK_EVERY)

    def observe(self, session: AmplifierSession) -> None:
        """Look at the process's folder after each tool of a session."""

        async def begin_tool(event: str, data: dict[str, Any]) -> None:
            with self._lock:
                self._running[session.session_id, call_of(data)] = str(data.get("tool_name"))

        async def end_tool(event: str, data: dict[str, Any]) -> None:
            self._end([(session.session_id, call_of(data))])

        async def end_all() -> None:
            self._end([key for key in list(self._running) if key[0] == session.session_id])

        hooks = session.coordinator.hooks
        hooks.register(TOOL_PRE, begin_tool, _LAST, "working-folder")
        hooks.register(TOOL_POST, end_tool, _LAST, "working-folder")
        hooks.register(TOOL_ERROR, end_tool, _LAST, "working-folder")
        session.coordinator.register_cleanup(end_all)

    def _end(self, calls: list[tuple[str, str]]) -> None:
        """Put the folder back when no tool runs any more: one that runs may have left it for a moment."""
        with self._lock:
            self._suspects.update(self._running.pop(call) for call in calls if call in self._running)
            if self._running or not self._suspects:
                return
            suspects, self._suspects = sorted(self._suspects), set()
            here = _stat_here()
            if here is None or os.path.samestat(here, self._found):
                return
            try:
                left_for = str(Path.cwd())
            except OSError:
                left_for = "a removed folder"
            try:
                os.chdir(self.path)
                outcome = f"it was put back to {self.path}"
            except OSError as error:
                outcome = f"it cannot be put back to {self.path}: {error.strerror}"
        logger.warning(
            "the working folder of the process, which all sessions share, was %s after %s %s; %s",
            left_for,
            "the tool" if len(suspects) == 1 else "one of the tools",
            ", ".join(f"'{each}'" for each in suspects),
            outcome,
        )


def _stat_here() -> os.stat_result | None:
    """Return the status of the current folder; None for one that cannot be reached any more, as on a dead mount."""
    try:
        return Path().stat()
    except OSError:
        return None
