"""Watch files as a trigger: compare settled paths with the manifest, and yield an event for each difference."""

from __future__ import annotations

import errno
import logging
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import TriggerConfigError
from amplifier_core.triggers import TriggerContext, TriggerType

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Mapping

    from amplifier_core.triggers import TriggerEvent

    from .manifest import Change
    from .mounts import Mount
    from .state import Files

NAME = "trigger-file-watcher"
logger = logging.getLogger(__name__)
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
"""Seconds between two looks for a missing folder: the first, and at most."""
ABSENCE = 2.0
"""Seconds after which a folder that was moved away counts as removed."""
LOOK = 30.0
"""Seconds between two looks whether the folder is another one: nothing tells that a folder above it was moved."""
READING_SECONDS = 0.02
"""Time to read files in between two polls for changes."""


class FileChangeTrigger:
    """Fires for each file that differs from its last event; a stopped one is not started again."""

    local = True
    """Each host that shares a store watches its own."""

    def __init__(self) -> None:
        import asyncio

        self._context = TriggerContext(NAME)
        self._armed, self._wake = asyncio.Event(), asyncio.Event()
        self._stopped = self._unread = False
        self._identity: tuple[str, int, int] | None = None
        self._mounts: list[Mount] = []
        """The file systems at, above and below the folder when its watch began."""
        self._is_remounted = False
        self._barrier = 0.0
        """The last one; any from before an event serves it."""
        self._problem: str | None = None
        """The reported one."""

    @staticmethod
    def config_schema() -> dict[str, Any]:
        """Return the JSON Schema of the configuration."""
        from .config import FileWatcherConfig

        return FileWatcherConfig.model_json_schema()

    @staticmethod
    def event_names() -> set[str]:
        """Return the names in its events, for checks of templates and conditions."""
        return {"path", "change", "absolute", "src_path", "moved_from", "changes", "file_path", "change_type"}

    def bind(self, context: TriggerContext) -> None:
        """Take the working folder, the clock, and the state of the last event."""
        self._context = context

    def configure(self, config: Mapping[str, Any]) -> None:
        """Take the configuration. Raises `TriggerConfigError`, also for a path that is not a folder."""
        from amplifier_core.trigger_config import read_trigger_config

        from .change_detector import ChangeDetector
        from .config import FileWatcherConfig
        from .manifest import Manifest
        from .repeats import Repeats
        from .scope import Scope

        self._config = checked = read_trigger_config(NAME, FileWatcherConfig, config)
        folder = Path(os.path.normpath(self._context.working_dir.absolute() / checked.path))
        if os.path.exists(folder) and not os.path.isdir(folder):  # noqa: PTH110, PTH112 - they never raise
            raise TriggerConfigError(NAME, "path", f"{folder} is not a folder; name its folder, and it in 'patterns'")
        self._scope = Scope(
            folder,
            self._context.working_dir,
            checked.patterns,
            checked.ignore,
            gitignore=checked.gitignore,
        )
        self._manifest = Manifest(  # by its name: a link in it that is switched leads to the new folder at once
            str(folder), self._scope.counts, recursive=checked.recursive, abandoned=lambda: self._stopped
        )
        self._repeats = Repeats()
        self._detector = ChangeDetector(NAME, checked, self._scope, self._manifest, self._context.clock)

    def matches(self, event: TriggerEvent) -> str | None:
        """Return None when a file of the event counts here, else why the first does not."""
        if event.type is not TriggerType.FILE_CHANGE:
            return f"it fires on changed files, and this is a {event.type.value} event"
        changes = event.data.get("changes")
        listed = [each.get("path") for each in changes if isinstance(each, dict)] if isinstance(changes, list) else []
        reasons = [self._refuse(path) for path in listed or [event.file_path]]
        return None if None in reasons else reasons[0]

    def _refuse(self, path: str | None) -> str | None:
        if not path:
            return "it has no file_path"
        if path.endswith("/"):
            return f"{path} names a folder, and it fires on files"
        below = self._scope.relative(str(self._context.working_dir.absolute() / path))
        if below is None:
            return f"{path} is not below {self._scope.folder}"
        if "/" in below and not self._config.recursive:
            return f"{path} is in a folder of the folder, and recursive is false"
        return self._scope.refuse(below)

    async def ready(self) -> None:
        """Return when no change is missed any more, or at the end; a missing folder misses none."""
        await self._armed.wait()

    async def watch(self) -> AsyncIterator[TriggerEvent]:
        """Yield an event for each changed file, or for all at once, also for changes since the state was stored.

        Wait for a missing folder. Raises `TriggerError` when the folder cannot be watched.
        """
        import asyncio

        from .mounts import hearing_of_mounts
        from .state import Journal

        self._journal = Journal(self._context)
        try:
            with hearing_of_mounts(self._hear_of_mounts):
                files = await asyncio.to_thread(self._journal.restore)
                changes = await (self._arm_first() if files is None else self._arm_again(files))
                while not self._stopped:
                    if self._identity is not None:
                        self._report(self._describe_unreadable())
                    async for event in self._make_events(changes):
                        yield event
                    changes = await self._find_changes()
        finally:
            self._armed.set()
            await self._detector.stop()

    async def stop(self) -> None:
        """End `watch`, and listen no more."""
        self._stopped = True
        self._wake.set()
        await self._detector.stop()

    async def _listen(self, patience: float) -> None:
        """Begin to listen; a look at the files afterwards misses nothing. A missing folder has `patience` seconds."""
        from .mounts import find_around, read_mounts

        self._identity = await self._wait_for_folder(patience)
        self._manifest.counts = self._scope.counts
        self._is_remounted, self._mounts = False, find_around(self._scope.base, read_mounts())
        if self._identity is not None and not self._stopped:
            await self._detector.start(self._wake, self._mounts)

    async def _arm_first(self) -> list[Change]:
        """Take the files of the very first start as known; those of a missing folder are none."""
        await self._listen(0)
        await self._detector.run_blocking(self._manifest.begin)
        if not self._stopped:  # else only a part of the folder was looked at
            self._journal.request_snapshot()
            await self._journal.save(self._manifest.files)
        self._unread = True
        self._armed.set()
        return []

    async def _arm_again(self, files: Files) -> list[Change]:
        """Return the changes since these files."""
        await self._listen(ABSENCE)
        self._manifest.files = files
        changes = await self._compare([""])
        changes += self._manifest.repeat(set(self._journal.pending) - {change.path for change in changes})
        self._manifest.find_unread()
        self._unread = True
        self._armed.set()
        return changes

    async def _wait_for_folder(self, seconds: float | None = None) -> tuple[str, int, int] | None:
        """Return the identity of the folder as soon as there is one; None when it does not come, or at the end.

        Without a limit of time, return None for a new reason of its absence: a closed one may be gone.
        """
        clock, pause = self._context.clock, FIRST_PAUSE
        end = None if seconds is None else clock.monotonic() + seconds
        while (identity := self._scope.find_folder()) is None and not self._stopped:
            absence = f"{self._scope.folder} {self._scope.explain_absence()}; it is waited for"
            if absence != self._problem if end is None else clock.monotonic() >= end:
                self._report(absence)
                return None
            await self._pause(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        return identity

    def _report(self, problem: str | None) -> None:
        """Show a new problem, or the end of the last."""
        if problem == self._problem:
            return
        if problem is not None:
            logger.warning("%s: %s", NAME, problem)
        else:
            logger.info("%s: all of %s is watched again", NAME, self._scope.folder)
        self._problem = problem
        self._context.report(problem)

    def _describe_unreadable(self) -> str | None:
        """Describe the unreadable paths, with the remedy; None without any."""
        problems = self._manifest.unreadable.list_problems()
        if not problems:
            return None
        path, reason = min(problems)
        shown = self._scope.absolute(path.removesuffix("/"))
        others = f" and {len(problems) - 1} more" if problems[1:] else ""
        remedy = "make it readable for this user" if reason == os.strerror(errno.EACCES) else "check its disk or server"
        return (
            f"{shown}{others} cannot be read: {reason}. Changes in it fire when it can be; "
            f"{remedy}, or leave it out with 'ignore'"
        )

    def _hear_of_mounts(self, mounts: list[Mount]) -> None:
        from .mounts import find_around

        self._is_remounted = find_around(self._scope.base, mounts) != self._mounts
        if self._is_remounted:
            self._wake.set()

    def _is_replaced(self) -> bool:
        """Return whether the folder is another one, or the file systems at, above or below it are others."""
        return self._is_remounted or self._scope.identity() != self._identity

    async def _find_changes(self) -> list[Change]:
        """Wait for changes and return them, or nothing after a while.

        A folder that was moved away or replaced, also by a mount, is compared when it is back: unchanged files do not
        fire. After `ABSENCE` seconds without a folder, all files fire as deleted.
        """
        if self._identity is None:
            await self._wait_for_folder()
            return await self._arm_again(self._manifest.files)
        await self._read_or_pause()
        return await (self._begin_anew() if self._is_replaced() else self._compare(self._detector.take_due()))

    async def _begin_anew(self) -> list[Change]:
        """Watch the folder of the same name, and return its changes."""
        await self._detector.stop()
        return await self._arm_again(self._manifest.files)

    async def _read_or_pause(self) -> None:
        """Read on, while there are unread files; else save changes without an event, and wait."""
        if self._unread:
            self._unread = await self._detector.run_blocking(lambda: self._manifest.read_more(READING_SECONDS))
            if not self._unread:
                self._journal.request_snapshot()
        elif not self._stopped:
            await self._journal.save(self._manifest.files)
            now = self._context.clock.monotonic()
            waits = [self._detector.seconds_left(), self._repeats.seconds_left(now)]
            if self._scope.list_places():
                waits.append(self._config.poll_interval)  # `_pause` wakes at once where the system tells of them
            await self._pause(min((wait for wait in waits if wait is not None), default=None))
        await self._detector.poll_changes()

    async def _compare(self, paths: list[str]) -> list[Change]:
        """Return the differences of these paths, and the paths that fire again.

        Deleted files are compared anew, after a look at the folder: a link to it may have been away for a moment.
        """
        appeared = self._detector.take_appeared(paths)
        has_new_rules = any(map(self._scope.is_rules_file, paths)) or (
            "" in paths and self._scope.has_new_rules_above()
        )
        changes = await (self._compare_by_new_rules() if has_new_rules else self._look(paths))
        if any(change.fingerprint is None for change in changes):
            if self._is_replaced():  # its files are not deleted, as it may be back in a moment
                return await self._begin_anew()
            found = changes
            changes = await self._detector.run_blocking(lambda: self._drop_own(self._manifest.recheck(found)))
        below = self._repeats.find_below([path for path in appeared if path.endswith("/")])
        active = [*appeared.items(), *((path, self._detector.watched_since(path)) for path in below)]
        active += [(path, math.inf) for path in self._manifest.take_rewritten()]
        changed, now = {change.path for change in changes}, self._context.clock.monotonic()
        self._repeats.note_activity([(path, since) for path, since in active if path not in changed], now)
        again = self._manifest.repeat(filter(self._scope.counts, self._repeats.take_due(now)))
        return changes + await self._detector.run_blocking(lambda: self._drop_own(again)) if again else changes

    async def _look(self, paths: list[str]) -> list[Change]:
        """Return the differences of these paths; a thread reads the files, unless they are few and small.

        A look at a folder finds files before the system's notice of them comes: a barrier tells that notice from later
        ones. A deleted file that is back before the barrier is compared anew by `_compare`: no later notice tells of
        that. Few and small files have had their notices, and do without: a barrier costs an event a tenth of its time.
        """
        if not paths:
            return []
        if self._manifest.is_quick(paths):
            return self._drop_own(self._manifest.compare(paths))
        changes = await self._detector.run_blocking(lambda: self._drop_own(self._manifest.compare(paths)))
        if changes:
            self._barrier = self._detector.add_barrier()
        return changes

    async def _compare_by_new_rules(self) -> list[Change]:
        """Return the changes; a file that only now counts is none."""
        before = self._scope.reread()
        self._manifest.counts = self._scope.counts
        changes = await self._look([""])
        self._apply_silently([change for change in changes if not before(change.path)])
        return [change for change in changes if before(change.path)]

    def _drop_own(self, changes: list[Change]) -> list[Change]:
        """Return the changes by others than the woken sessions; take the changes by those as known."""
        if self._config.self_trigger or not self._context.own_writes:
            return changes
        own = [change for change in changes if self._is_own(change)]
        self._apply_silently(own)
        return [change for change in changes if change not in own]

    def _is_own(self, change: Change) -> bool:
        digest = self._context.own_writes.get(os.path.realpath(os.path.join(self._scope.folder, change.path)))  # noqa: PTH118
        return digest is not None and self._manifest.holds(change, digest)

    def _apply_silently(self, changes: list[Change]) -> None:
        for change in changes:
            self._manifest.apply(change)
            self._journal.pending.pop(change.path, None)
        self._journal.defer(changes)

    async def _make_events(self, changes: list[Change]) -> AsyncIterator[TriggerEvent]:
        """Yield an event for each change, or one for all; each is stored when the next one is asked for."""
        import asyncio

        batches = [changes] if self._config.batch and changes else [[change] for change in changes]
        for batch in batches:
            if self._stopped:
                return
            # of 20,000 changes it takes a quarter of a second
            yield await asyncio.to_thread(self._make_event, batch) if self._config.batch else self._make_event(batch)
            now = self._context.clock.monotonic()
            for change in batch:
                self._repeats.note_event(change.path, now, self._barrier, again=change.again)

    def _make_event(self, batch: list[Change]) -> TriggerEvent:
        """Take changes as known, and return their event."""
        from .events import make_batch_event, make_event

        for change in batch:
            self._manifest.apply(change)
        generation, pending = self._journal.generation, self._journal.pending.get(batch[0].path)
        rows = self._journal.record(batch)
        if self._config.batch:
            return make_batch_event(batch, self._scope, self._context, NAME, generation, rows)
        key = generation if pending is None else pending
        return make_event(batch[0], self._scope, self._context, NAME, key, rows)

    async def _pause(self, seconds: float | None) -> None:
        """Return after so many seconds, when a path is noticed or the trigger is stopped, and for the next `LOOK`."""
        import asyncio

        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._wake.wait())]
        if seconds is not None:
            waits.append(asyncio.ensure_future(self._context.clock.sleep(seconds)))
        try:
            await asyncio.wait(waits, timeout=LOOK, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self._wake.clear()
