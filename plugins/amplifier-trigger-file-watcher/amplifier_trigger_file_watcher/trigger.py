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
    from collections.abc import AsyncIterator, Iterable, Mapping

    from .config import FileWatcherConfig
    from .manifest import Change
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
        self._generation = 0
        self._pending: dict[str, int] = {}

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
        from amplifier_core.trigger_config import read_trigger_config

        from .config import FileWatcherConfig
        from .debounce import Debounce
        from .manifest import Manifest
        from .scope import Scope

        checked = read_trigger_config(NAME, FileWatcherConfig, config)
        folder = self._existing_folder(checked)
        self._scope = Scope(folder, self._context.working_dir, checked.patterns, checked.ignore)
        self._recursive = checked.recursive
        self._manifest = Manifest(
            self._scope.base, self._scope.wanted, recursive=checked.recursive, abandoned=lambda: self._stopped
        )
        period, limit = checked.debounce_ms, checked.max_wait_ms
        self._debounce = Debounce(period / 1000, (10 * period if limit is None else limit) / 1000)

    def _existing_folder(self, checked: FileWatcherConfig) -> Path:
        folder = Path(os.path.normpath(self._context.working_dir.absolute() / checked.path))
        if folder.is_dir():
            return folder
        if folder.exists():
            raise TriggerConfigError(NAME, "path", f"{folder} is not a folder; name its folder, and it in 'patterns'")
        raise TriggerConfigError(NAME, "path", f"{folder} does not exist; create it, or name another folder")

    async def ready(self) -> None:
        """Return when no change is missed any more, or the trigger has ended."""
        await self._armed.wait()

    async def watch(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event for each file that changed, also since the state was stored.

        Raises `TriggerError` when the folder cannot be watched, or is removed or replaced.
        """
        identity, lost = self._scope.identity(), False
        try:
            changes = await self._arm()
            while not self._stopped:
                async for event in self._events(changes):
                    yield event
                if lost:
                    raise TriggerError(NAME, f"{self._scope.folder} was removed or replaced; create it again")
                await self._pause()
                lost = self._scope.identity() != identity
                changes = await self._compare([""] if lost else self._debounce.due(self._context.clock.monotonic()))
        finally:
            self._armed.set()
            await self._close()

    async def stop(self) -> None:
        """End `watch`, and the threads that observe."""
        self._stopped = True
        self._wake.set()
        await self._close()

    async def _arm(self) -> list[Change]:
        """Observe first, and look at what is there then: nothing falls between. Return what changed before."""
        import asyncio

        from .observing import FolderObserver

        self._loop = asyncio.get_running_loop()
        self._observer = FolderObserver(self._scope.base, self._notice, recursive=self._recursive)
        try:
            await asyncio.to_thread(self._observer.start)
        except OSError as error:
            raise TriggerError(NAME, _explain(error, self._scope.folder)) from error
        changes = await self._compare_with_state() if self._context.state else await self._take_baseline()
        self._armed.set()
        return changes

    async def _take_baseline(self) -> list[Change]:
        import asyncio

        from .state import Saved, encode

        for change in await self._compare([""]):
            self._manifest.apply(change)
        if not self._stopped:  # else only a part of the folder was looked at
            baseline = await asyncio.to_thread(encode, Saved(0, self._manifest.files, {}))
            await self._context.save_state(baseline)
        return []

    async def _compare_with_state(self) -> list[Change]:
        import asyncio

        from .state import decode

        saved = await asyncio.to_thread(decode, self._context.state)
        self._generation, self._manifest.files, self._pending = saved
        changes = await self._compare([""])
        return changes + self._manifest.unchanged(set(saved.pending) - {change.path for change in changes})

    async def _compare(self, paths: list[str]) -> list[Change]:
        """Return how these paths differ; files are read in a thread of their own."""
        import asyncio

        return await asyncio.to_thread(self._manifest.compare, paths) if paths else []

    async def _events(self, changes: list[Change]) -> AsyncIterator[TriggerEvent]:
        from .state import carriers

        carried = carriers(len(changes), len(self._manifest.files))
        for index, change in enumerate(changes):
            if self._stopped:
                return
            generation, state = self._pending.pop(change.path, self._generation), None
            self._manifest.apply(change)
            if index in carried:
                state = await self._next_state(changes[later].path for later in carried[index])
            yield self._event(change, generation, state)

    async def _next_state(self, following: Iterable[str]) -> dict[str, Any]:
        """Return the state after an event, for a restart that may come before or after the following ones."""
        import asyncio

        from .state import Saved, encode

        self._generation += 1
        self._pending = dict.fromkeys(following, self._generation) | self._pending
        saved = Saved(self._generation, dict(self._manifest.files), dict(self._pending))
        return await asyncio.to_thread(encode, saved)

    def _event(self, change: Change, generation: int, state: Mapping[str, Any] | None) -> TriggerEvent:
        """Make the event; its key is found again from the state before it, and never used for a later change."""
        shown = self._scope.shown(change.path)
        content = change.fingerprint.content if change.fingerprint else "deleted"
        return TriggerEvent(
            TriggerType.FILE_CHANGE,
            NAME,
            timestamp=self._context.clock.now(),
            data={"path": shown, "change": change.kind, "absolute": self._scope.absolute(change.path)},
            file_path=shown,
            change_type=change.kind,
            dedupe_key=f"{self._context.name} {generation} {content} {shown}",
            state=state,
        )

    def _notice(self, path: str) -> None:
        """Take a path from the observing thread; only the first of many wakes the loop."""
        if self._scope.wanted(path):
            self._noticed.append(path)
            if len(self._noticed) <= 1:
                with suppress(RuntimeError):  # the loop was closed
                    self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        now = self._context.clock.monotonic()
        while self._noticed:
            self._debounce.note(self._noticed.popleft(), now)
        self._wake.set()

    async def _pause(self) -> None:
        """Return when something was noticed, or is due, or the trigger was stopped."""
        import asyncio

        seconds = self._debounce.wait(self._context.clock.monotonic())
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._wake.wait())]
        if seconds is not None:
            waits.append(asyncio.ensure_future(self._context.clock.sleep(seconds)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self._wake.clear()

    async def _close(self) -> None:
        import asyncio

        if self._observer is not None:
            observer, self._observer = self._observer, None
            await asyncio.to_thread(observer.stop)


def _explain(error: OSError, folder: Path) -> str:
    limits = {errno.ENOSPC: ("watches", 524_288, ", or watch a smaller 'path'"), errno.EMFILE: ("instances", 1024, "")}
    if error.errno not in limits:
        return f"{folder} cannot be watched: {error.strerror or error}"
    what, enough, otherwise = limits[error.errno]
    setting = f"fs.inotify.max_user_{what}"
    return (
        f"{folder} cannot be watched: the system's limit {setting} is reached. "
        f"Raise it with: sudo sysctl {setting}={enough}{otherwise}"
    )
