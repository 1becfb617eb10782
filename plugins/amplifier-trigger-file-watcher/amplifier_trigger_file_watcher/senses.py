"""How a watcher comes to know that paths may have changed, and when they have been left alone for long enough."""

from __future__ import annotations

import errno
import logging
import sys
from typing import TYPE_CHECKING, Protocol, TypeVar

from amplifier_core.errors import TriggerError

from .debounce import Debounce

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from pathlib import Path

    from amplifier_core.clock import Clock

    from .config import FileWatcherConfig
    from .manifest import Manifest
    from .polling import Poller
    from .scope import Scope

    T = TypeVar("T")

LINUX = sys.platform == "linux"
LIMITS = {errno.ENOSPC: ("watches", 524_288, ", or watch a smaller 'path'"), errno.EMFILE: ("instances", 1024, "")}
"""Which limit of inotify an error stands for, a value that is enough, and what can be done instead."""

logger = logging.getLogger(__name__)


class Observer(Protocol):
    """Tells of paths that may have changed."""

    async def start(self) -> None:
        """Begin; raises `OSError`."""
        ...

    async def stop(self) -> None:
        """End."""
        ...

    def enter(self, folder: str) -> None:
        """Hear of this folder from now on; raises `OSError`."""
        ...


class Senses:
    """Collects what may have changed: the system tells, or, where it cannot, every file is looked at in intervals."""

    def __init__(self, name: str, config: FileWatcherConfig, scope: Scope, manifest: Manifest, clock: Clock) -> None:
        period, limit = config.debounce_ms, config.max_wait_ms
        self._debounce = Debounce(
            period / 1000, (10 * period if limit is None else limit) / 1000, together=config.batch
        )
        self._name, self._config, self._scope, self._manifest, self._clock = name, config, scope, manifest, clock
        self._noticed: list[str] = []
        self._wake: asyncio.Event | None = None
        self._observer: Observer | None = None
        self._poller: Poller | None = None
        self._next_look = 0.0

    async def start(self, wake: asyncio.Event) -> None:
        """Begin to hear; `wake` is set when there is something to `hear`. Raises `TriggerError`."""
        self._wake = wake
        if self._config.polling is True:
            return await self._poll()
        if self._config.polling == "auto" and (reason := self._silent()):
            logger.info("%s: %s is looked at every %g s: %s", self._name, *self._every(), reason)
            return await self._poll()
        self._observer = observer = self._new_observer()
        try:
            await observer.start()
        except OSError as error:
            await self._fall_back(error)
        else:
            self._manifest.entering = observer.enter

    async def stop(self) -> None:
        """Hear no more."""
        observer, self._observer = self._observer, None
        self._manifest.entering = None
        if observer is not None:
            await observer.stop()

    async def look(self, work: Callable[[], T]) -> T:
        """Do some work on the manifest in a thread; once more, if it is what shows that folders cannot be watched."""
        import asyncio

        try:
            return await asyncio.to_thread(work)
        except OSError as error:
            await self._fall_back(error)
            return await asyncio.to_thread(work)

    async def hear(self) -> None:
        """Take what was noticed, and look if it is time to; new folders are watched before anything is made of it."""
        import asyncio

        if self._poller is not None and self._clock.monotonic() >= self._next_look:
            self._notice(await asyncio.to_thread(self._poller.look))
            self._next_look = self._clock.monotonic() + self._config.poll_interval
        noticed, self._noticed = self._noticed, []
        folders = [path for path in noticed if path == "" or path.endswith("/")]
        if folders:
            await self.look(lambda: self._manifest.enter(folders))
        now = self._clock.monotonic()
        for path in noticed:
            self._debounce.note(path, now)

    def due(self) -> list[str]:
        """Return the paths that have been left alone for long enough, and forget them."""
        return self._debounce.due(self._clock.monotonic())

    def wait(self) -> float | None:
        """Return the seconds until `hear` or `due` has something to do, if nothing is noticed before; None for ever."""
        now = self._clock.monotonic()
        waits = [] if self._poller is None else [self._next_look - now]
        until_due = self._debounce.wait(now)
        return min([*waits, *([] if until_due is None else [until_due])], default=None)

    def _silent(self) -> str | None:
        from .polling import silent_file_system

        kind = silent_file_system(self._scope.base)
        return kind and f"what others change on a file system of the kind {kind} is not told"

    def _every(self) -> tuple[Path, float]:
        return self._scope.folder, self._config.poll_interval

    def _new_observer(self) -> Observer:
        if LINUX:
            from .inotify import InotifyObserver

            return InotifyObserver(self._scope.base, self._notice, written=self._config.debounce_ms > 0)
        from .observing import FolderObserver

        return FolderObserver(self._scope.base, self._notice, recursive=self._config.recursive)

    def _notice(self, paths: list[str]) -> None:
        """Take paths; only the first of many wakes who waits."""
        wanted = [path for path in paths if self._scope.wanted(path) or self._scope.rules(path)]
        if wanted and self._wake is not None:
            self._noticed += wanted
            self._wake.set()

    async def _fall_back(self, error: OSError) -> None:
        """Poll from now on, if that is allowed. Raises `TriggerError` otherwise."""
        await self.stop()
        explained = explain(error, self._scope.folder)
        if self._config.polling != "auto":
            raise TriggerError(self._name, explained) from error
        logger.warning("%s: %s. It is looked at every %g s instead", self._name, explained, self._config.poll_interval)
        await self._poll()
        self._noticed.append("")  # what has changed unheard

    async def _poll(self) -> None:
        import asyncio

        from .polling import Poller

        self._poller = Poller(self._manifest.facts)
        await asyncio.to_thread(self._poller.look)
        self._next_look = self._clock.monotonic() + self._config.poll_interval


def explain(error: OSError, folder: Path) -> str:
    """Return why a folder cannot be watched, and what can be done about it."""
    if error.errno not in LIMITS:
        return f"{folder} cannot be watched: {error.strerror or error}"
    what, enough, otherwise = LIMITS[error.errno]
    setting = f"fs.inotify.max_user_{what}"
    return (
        f"{folder} cannot be watched: the system's limit {setting} is reached. "
        f"Raise it with: sudo sysctl {setting}={enough}{otherwise}"
    )
