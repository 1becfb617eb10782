"""The log of one session: it hears events, keeps their lines, and writes them when a turn ends."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from amplifier_core import HookResult
from amplifier_core.events import (
    ALL_EVENTS,
    CANCEL_COMPLETED,
    EXECUTION_END,
    ORCHESTRATOR_COMPLETE,
    PROMPT_COMPLETE,
    SESSION_END,
)

from .files import RotatingFile
from .lines import line_of
from .place import log_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from amplifier_core import ModuleCoordinator

    from .config import Settings

logger = logging.getLogger(__name__)

NAME = "hooks-logging"
PRIORITY = -10_000
"""Before other hooks: an event that one of them refuses happened too, and is logged as it was emitted."""
ENDINGS = frozenset({PROMPT_COMPLETE, EXECUTION_END, ORCHESTRATOR_COMPLETE, CANCEL_COMPLETED, SESSION_END})
"""The events after which nothing waits to be written."""
MOST_WAITING = 64 * 1024
"""Bytes of lines that may wait."""


class SessionLog:
    """What one session logs, and where.

    A line is made when its event happens and waits in memory for the end of the turn. A file that cannot be written is
    warned about once; the lines that were meant for it are dropped, and the next ones are tried again.
    """

    def __init__(self, coordinator: ModuleCoordinator, settings: Settings) -> None:
        self._coordinator = coordinator
        self._settings = settings
        self._session = {"session_id": str(coordinator.session_id or "")}
        if coordinator.parent_id:
            self._session["parent_id"] = str(coordinator.parent_id)
        self._registrations: dict[str, Callable[[], None]] = {}
        self._file: RotatingFile | None = None
        self._lines: list[bytes] = []
        self._waiting = 0
        self._warned = False
        self._passed = HookResult(action="continue")

    def listen(self, events: Iterable[str] = ()) -> None:
        """Hear the well-known events, those that the settings spell out, and `events`, as far as they are selected."""
        selection, handler = self._settings.selection, self.hear
        wanted = [event for event in (*ALL_EVENTS, *selection.named(), *events) if selection.takes(event)]
        for event in (*wanted, *ENDINGS):
            if event not in self._registrations:
                register = self._coordinator.hooks.register
                self._registrations[event] = register(event, handler, priority=PRIORITY, name=NAME)

    async def hear(self, event: str, data: dict[str, Any]) -> HookResult:
        """Keep the line of an event, and let the event pass as it is."""
        if self._settings.selection.takes(event):
            self._keep(line_of(event, data, self._session, raw=self._settings.raw))
        if event in ENDINGS:
            self.flush()
        return self._passed

    def _keep(self, line: bytes) -> None:
        if self._file is None:
            self._locate()
        self._lines.append(line)
        self._waiting += len(line)
        if self._waiting >= MOST_WAITING:
            self.flush()

    def _locate(self) -> None:
        settings, coordinator = self._settings, self._coordinator
        try:
            folder = coordinator.get_capability("session.working_dir")
            path = log_path(settings.path, self._session["session_id"], folder)
        except (OSError, RuntimeError) as error:
            self._warn(settings.path, error)
            return
        self._file = RotatingFile(path, settings.max_bytes, settings.keep)

    def flush(self) -> None:
        """Write the lines that wait."""
        lines, self._lines, self._waiting = self._lines, [], 0
        if not lines or self._file is None:
            return
        try:
            self._file.append(lines)
        except (OSError, ValueError) as error:
            self._warn(self._file.path, error)

    def _warn(self, path: object, error: Exception) -> None:
        if self._warned:
            return
        self._warned = True
        reason = getattr(error, "strerror", None) or str(error)
        logger.warning(
            "the event log %s cannot be written (%s), and events of session %s are lost. "
            "Make it writable, or name another file with 'path' in the config of hooks-logging",
            path,
            reason,
            self._session["session_id"],
        )

    def close(self) -> None:
        """Hear nothing any more, and write the lines that wait; idempotent."""
        while self._registrations:
            self._registrations.popitem()[1]()
        self.flush()
