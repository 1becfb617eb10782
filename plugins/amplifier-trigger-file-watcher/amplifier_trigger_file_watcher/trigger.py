"""The file watcher as a trigger: what changed is found by comparing, when it has settled."""

from __future__ import annotations

import errno
import os
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import TriggerConfigError, TriggerError
from amplifier_core.triggers import TriggerContext, TriggerEvent, TriggerType

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Mapping

    from .manifest import Change, Fingerprint, Manifest
    from .observing import FolderObserver

NAME = "trigger-file-watcher"


class FileChangeTrigger:
    """Fires for each file that differs from what it was; a stopped one is not started again."""

    def __init__(self) -> None:
        import asyncio

        self._context = TriggerContext(NAME)
        self._armed, self._wake = asyncio.Event(), asyncio.Event()
        self._stopped = False
        self._noticed: deque[str] = deque()
        self._observer: FolderObserver | None = None
        self._manifest: Manifest | None = None
        self._generation = 0
        self._baseline: dict[str, Fingerprint] = {}

    @staticmethod
    def config_schema() -> dict[str, Any]:
        """Return the JSON Schema of the configuration."""
        from .config import FileWatcherConfig

        return FileWatcherConfig.model_json_schema()

    def bind(self, context: TriggerContext) -> None:
        """Take the working folder, the clock, and the state of the last event."""
        self._context = context

    def configure(self, config: Mapping[str, Any]) -> None:
        """Take what is watched. Raises `TriggerConfigError`, also for a folder that does not exist."""
        from .config import read_config
        from .debounce import Debounce
        from .patterns import DEFAULT_IGNORES, Patterns

        checked = read_config(NAME, config)
        self._recursive = checked.recursive
        self._included, self._ignored = Patterns(checked.patterns), Patterns([*DEFAULT_IGNORES, *checked.ignore])
        period, limit = checked.debounce_ms, checked.max_wait_ms
        self._debounce = Debounce(period / 1000, (10 * period if limit is None else max(period, limit)) / 1000)
        self._folder = Path(os.path.normpath(self._context.working_dir.absolute() / checked.path))
        if not self._folder.is_dir():
            what = "is not a folder" if self._folder.exists() else "does not exist"
            remedy = "name the folder, and the file in 'patterns'" if self._folder.exists() else "create it first"
            raise TriggerConfigError(NAME, "path", f"{self._folder} {what}; {remedy}")
        self._base = os.path.realpath(self._folder)
        self._shown = self._shown_folder()

    ...
