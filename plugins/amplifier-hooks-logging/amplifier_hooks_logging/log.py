"""Collect the lines of one session, and write them at the end of a turn."""

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

from .config import NAME
from .files import RotatingFile
from .lines import line_of
from .paths import log_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from amplifier_core import ModuleCoordinator

    from .config import LogConfig

logger = logging.getLogger(__name__)

PRIORITY = -10_000
"""Before other hooks, so an event is logged as it was emitted, also if one of them refuses it."""
ENDINGS = frozenset({PROMPT_COMPLETE, EXECUTION_END, ORCHESTRATOR_COMPLETE, CANCEL_COMPLETED, SESSION_END})
"""The events that cause a write."""
MOST_WAITING = 64 * 1024
"""Bytes of waiting lines that cause a write."""


class SessionLog:
    """The event log of one session.

    An event becomes a line at once, and the line waits in memory for the end of the turn. If the file cannot be
    written, one warning says so; its lines are dropped, and the next ones are tried again.
    """

    def __init__(self, coordinator: ModuleCoordinator, config: LogConfig) -> None:
        self._coordinator = coordinator
        self._config = config
        self._selection = config.selection
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
        """Listen to well-known events, to exact names of the configuration, and to `events`, as far as selected."""
        selection, handler = self._selection, self.handle
        wanted = [event for event in (*ALL_EVENTS, *selection.exact_names(), *events) if selection.takes(event)]
        for event in (*wanted, *ENDINGS):
            if event not in self._registrations:
                register = self._coordinator.hooks.register
                self._registrations[event] = register(event, handler, priority=PRIORITY, name=NAME)

    async def handle(self, event: str, data: dict[str, Any]) -> HookResult:
        """Keep the line of an event, and let the event pass unchanged."""
        if self._selection.takes(event):
            self._keep(line_of(event, data, self._session, raw=self._config.raw))
        if event in ENDINGS:
            self.flush()
        return self._passed

    def _keep(self, line: bytes) -> None:
        if self._file is None:
            self._choose_file()
        self._lines.append(line)
        self._waiting += len(line)
        if self._waiting >= MOST_WAITING:
            self.flush()

    def _choose_file(self) -> None:
        config = self._config
        try:
            folder = self._coordinator.get_capability("session.working_dir")
            path = log_path(config.path, self._session["session_id"], folder)
        except (OSError, RuntimeError) as error:
            self._warn(config.path, error)
            return
        self._file = RotatingFile(path, config.max_bytes, config.keep)

    def flush(self) -> None:
        """Write the waiting lines."""
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
        """Stop listening, and write the waiting lines; idempotent."""
        while self._registrations:
            self._registrations.popitem()[1]()
        self.flush()
