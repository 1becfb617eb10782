"""Find out that paths may have changed, and when they have been left alone for long enough."""

from __future__ import annotations

import errno
import logging
import math
import sys
from typing import TYPE_CHECKING, Protocol, TypeVar

from amplifier_core.descriptors import NO_DESCRIPTOR, lacks_descriptors
from amplifier_core.errors import TriggerError

from .debounce import Debounce
from .folder_index import folders_above
from .scope import RULES_ABOVE

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from amplifier_core.clock import Clock

    from .config import FileWatcherConfig
    from .inotify_places import InotifyPlaces
    from .manifest import Manifest
    from .mounts import Mount
    from .polling import Poller
    from .scope import Scope

    T = TypeVar("T")

LINUX = sys.platform == "linux"
SHARE_OF_TIME = 50
"""A look at links takes at most one part in so many of the time."""
LIMITS = {errno.ENOSPC: ("watches", 524_288, ", or watch a smaller 'path'"), errno.EMFILE: ("instances", 1024, "")}
"""By the system's error: the limit of inotify, a sufficient value, and another remedy."""

logger = logging.getLogger(__name__)


class Observer(Protocol):
    """Notices paths that may have changed."""

    async def start(self) -> None:
        """Begin. Raises `OSError`."""
        ...

    async def stop(self) -> None:
        """End."""
        ...

    def enter(self, folder: str) -> None:
        """Watch this folder from now on. Raises `OSError`."""
        ...

    def add_barrier(self) -> float:
        """Return the time: a path that appears from now on is noticed as since this time or a later one.

        One that appeared before is noticed as since an earlier time, however late the system tells of it. Return 0
        where the order is not known.
        """
        ...

    def watched_since(self, folders: Iterable[str]) -> float:
        """Return the time since which all these folders are watched, `inf` if one is not or that is not known.

        A folder that was made, moved or replaced is watched anew; until then nothing tells of changes in it.
        """
        ...


class ChangeDetector:
    """Collects paths that may have changed: from the system's events or, without those, from regular looks."""

    def __init__(self, name: str, config: FileWatcherConfig, scope: Scope, manifest: Manifest, clock: Clock) -> None:
        period, limit = config.debounce_ms, config.max_wait_ms
        self._debounce = Debounce(
            period / 1000, (10 * period if limit is None else limit) / 1000, together=config.batch
        )
        self._name, self._config, self._scope, self._manifest, self._clock = name, config, scope, manifest, clock
        self._noticed: list[str] = []
        self._appeared: dict[str, float] = {}
        self._wake: asyncio.Event | None = None
        self._observer: Observer | None = None
        self._places: InotifyPlaces | None = None
        self._poller: Poller | None = None
        self._next_look = 0.0  # at all files with a poller, else at links and at what could not be looked at

    async def start(self, wake: asyncio.Event, mounts: Iterable[Mount]) -> None:
        """Begin; `wake` is set when `poll_changes` has something to take. Raises `TriggerError`.

        `mounts` are the file systems at, above and below the folder.
        """
        from .mounts import silent_file_system

        self._wake, self._poller = wake, None
        self._next_look = self._clock.monotonic() + self._config.poll_interval
        if self._config.polling is True:
            return await self._start_polling()
        if self._config.polling == "auto" and (kind := silent_file_system(self._scope.base, mounts)):
            reason = f"a file system of the kind {kind} does not tell of changes by others"
            interval = self._config.poll_interval
            logger.info("%s: %s is looked at every %g s: %s", self._name, self._scope.folder, interval, reason)
            return await self._start_polling()
        self._observer = observer = self._new_observer()
        try:
            await observer.start()
        except OSError as error:
            await self._fall_back_to_polling(error)
        else:
            self._manifest.entering = observer.enter
            self._watch_places()

    async def stop(self) -> None:
        """End; changes are not noticed any more."""
        observer, self._observer = self._observer, None
        places, self._places = self._places, None
        self._manifest.entering = None
        for each in (places, observer):
            if each is not None:
                await each.stop()

    async def run_blocking(self, work: Callable[[], T]) -> T:
        """Do some work on the manifest in a thread; once more when the system refuses to watch a folder."""
        import asyncio

        try:
            return await asyncio.to_thread(work)
        except OSError as error:
            await self._fall_back_to_polling(error)
            return await asyncio.to_thread(work)

    async def poll_changes(self) -> None:
        """Take the noticed paths, and look if it is time to; new folders are watched before their files are read."""
        import asyncio

        if self._is_looking() and (start := self._clock.monotonic()) >= self._next_look:
            self._notice(dict.fromkeys(await asyncio.to_thread(self._look), 0.0))
            now = self._clock.monotonic()
            self._next_look = now + max(self._config.poll_interval, SHARE_OF_TIME * (now - start))
        noticed, self._noticed = self._noticed, []
        folders = [path for path in noticed if path == "" or path.endswith("/")]
        if folders:
            await self.run_blocking(lambda: self._manifest.enter(folders))
        if self._scope.has_new_rules_above():
            noticed.insert(0, RULES_ABOVE)  # a writer truncates a file first: its rules are read when it is quiet
        now = self._clock.monotonic()
        for path in noticed:
            self._debounce.note(path, now)

    def take_due(self) -> list[str]:
        """Return the paths that have been left alone for long enough, and forget them."""
        return self._debounce.take_due(self._clock.monotonic())

    def take_appeared(self, paths: Iterable[str]) -> dict[str, float]:
        """Return those of the paths that were created or moved here since the last call for them.

        With each comes a time before which it did not last appear, to compare with that of a barrier.
        """
        return {path: self._appeared.pop(path) for path in paths if path in self._appeared}

    def add_barrier(self) -> float:
        """Return a time that tells later appearances from those before; 0 where nothing does."""
        return 0.0 if self._observer is None else self._observer.add_barrier()

    def watched_since(self, path: str) -> float:
        """Return the time since which all folders that a path lies in are watched; `inf` where that is not known."""
        return math.inf if self._observer is None else self._observer.watched_since(folders_above(path))

    def seconds_left(self) -> float | None:
        """Return the seconds until `poll_changes` or `take_due` has something to do, None for ever."""
        now = self._clock.monotonic()
        waits = [self._next_look - now] if self._is_looking() else []
        until_due = self._debounce.seconds_left(now)
        return min([*waits, *([] if until_due is None else [until_due])], default=None)

    def _new_observer(self) -> Observer:
        if LINUX:
            from .inotify_tree import InotifyTree

            return InotifyTree(self._scope.base, self._notice, every_write=self._config.debounce_ms > 0)
        from .observing import FolderObserver

        return FolderObserver(self._scope.base, self._notice, recursive=self._config.recursive)

    def _watch_places(self) -> None:
        """Wake at once when another folder or other rules may count; the trigger looks now and then as well."""
        paths = self._scope.list_places()
        if LINUX and paths and self._wake is not None:
            from .inotify_places import InotifyPlaces

            self._places = InotifyPlaces(paths, self._wake.set, every_write=self._config.debounce_ms > 0)
            self._places.start()

    def _is_looking(self) -> bool:
        return self._poller is not None or bool(self._manifest.links or self._manifest.unreadable)

    def _look(self) -> list[str]:
        """Return paths with differences beside the system's events, and paths readable again."""
        readable = self._manifest.unreadable.take_readable()
        differing = self._manifest.find_changed_links() if self._poller is None else self._poller.look()
        return [*readable, *differing]

    def _notice(self, paths: Mapping[str, float]) -> None:
        noticed = [path for path in paths if self._scope.counts(path) or self._scope.is_rules_file(path)]
        self._appeared.update((path, paths[path]) for path in noticed if paths[path])
        self._noticed += noticed
        if self._poller is None and self._manifest.links and self._holds_link(paths):
            self._next_look = 0.0  # other links may lead through this one
        elif not noticed:
            return
        if self._wake is not None:
            self._wake.set()

    def _holds_link(self, paths: Mapping[str, float]) -> bool:
        files = (path for path, appeared in paths.items() if appeared and path and not path.endswith("/"))
        return any(map(self._manifest.is_link, files))

    async def _fall_back_to_polling(self, error: OSError) -> None:
        """Poll from now on, if the configuration allows it. Raises `TriggerError` otherwise."""
        await self.stop()
        reason = explain(error, self._scope.folder)
        if self._config.polling != "auto":
            raise TriggerError(self._name, reason) from error
        logger.warning("%s: %s. It is looked at every %g s instead", self._name, reason, self._config.poll_interval)
        await self._start_polling()
        self._notice({"": 0.0})  # everything may have changed meanwhile

    async def _start_polling(self) -> None:
        import asyncio

        from .polling import Poller

        self._poller = Poller(self._manifest.read_facts)
        await asyncio.to_thread(self._poller.look)
        self._next_look = self._clock.monotonic() + self._config.poll_interval


def explain(error: OSError, folder: Path) -> str:
    """Return the reason why a folder cannot be watched, and the remedy."""
    if lacks_descriptors():  # the kernel has the same error for its limit of inotify
        return f"{folder} cannot be watched: {NO_DESCRIPTOR}"
    if error.errno not in LIMITS:
        return f"{folder} cannot be watched: {error.strerror or error}"
    limit, enough, otherwise = LIMITS[error.errno]
    setting = f"fs.inotify.max_user_{limit}"
    return (
        f"{folder} cannot be watched: the system's limit {setting} is reached. "
        f"Raise it with: sudo sysctl {setting}={enough}{otherwise}"
    )
