"""The file watcher as a trigger: what changed is found by comparing, when it has settled."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import TriggerConfigError, TriggerError
from amplifier_core.triggers import TriggerContext, TriggerType

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Iterable, Mapping

    from amplifier_core.triggers import TriggerEvent

    from .config import FileWatcherConfig
    from .manifest import Change

NAME = "trigger-file-watcher"
READING_SECONDS = 0.02
"""How long files are read before it is asked again what has changed meanwhile."""


class FileChangeTrigger:
    """Fires for each file that differs from what it was; a stopped one is not started again."""

    def __init__(self) -> None:
        import asyncio

        self._context = TriggerContext(NAME)
        self._armed, self._wake = asyncio.Event(), asyncio.Event()
        self._stopped = False
        self._unread = self._unsaved = False
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
        from .manifest import Manifest
        from .scope import Scope
        from .senses import Senses

        self._config = checked = read_trigger_config(NAME, FileWatcherConfig, config)
        self._scope = Scope(
            self._existing_folder(checked),
            self._context.working_dir,
            checked.patterns,
            checked.ignore,
            gitignore=checked.gitignore,
        )
        self._manifest = Manifest(
            self._scope.base, self._scope.wanted, recursive=checked.recursive, abandoned=lambda: self._stopped
        )
        self._senses = Senses(NAME, checked, self._scope, self._manifest, self._context.clock)

    def matches(self, event: TriggerEvent) -> str | None:
        """Return None when a file of the event counts here, else why the first does not."""
        if event.type is not TriggerType.FILE_CHANGE:
            return f"it fires on changed files, and this is a {event.type.value} event"
        changes = event.data.get("changes")
        listed = [each.get("path") for each in changes if isinstance(each, dict)] if isinstance(changes, list) else []
        reasons = [self._refusal(path) for path in listed or [event.file_path]]
        return None if None in reasons else reasons[0]

    def _refusal(self, path: str | None) -> str | None:
        if not path:
            return "it has no file_path"
        below = self._scope.below(str(self._context.working_dir.absolute() / path))
        if below is None:
            return f"{path} is not below {self._scope.folder}"
        if "/" in below and not self._config.recursive:
            return f"{path} is in a folder of the folder, and recursive is false"
        return self._scope.refusal(below)

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
        """Yield an event for each file that changed, or for all at once, also for those since the state was stored.

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
                await self._between()
                lost = self._scope.identity() != identity
                changes = await self._compare([""] if lost else self._senses.due())
        finally:
            self._armed.set()
            await self._senses.stop()

    async def stop(self) -> None:
        """End `watch`, and hear of no more changes."""
        self._stopped = True
        self._wake.set()
        await self._senses.stop()

    async def _arm(self) -> list[Change]:
        """Listen first, and look at what is there then: nothing falls between. Return what changed before."""
        import asyncio

        from .state import decode

        await self._senses.start(self._wake)
        saved = await asyncio.to_thread(decode, self._context.state)
        if saved is None:
            changes = await self._begin()
        else:
            self._generation, self._manifest.files, self._pending = saved
            changes = await self._compare([""])
            changes += self._manifest.unchanged(set(saved.pending) - {change.path for change in changes})
            self._manifest.find_unread()
        self._unread = True
        self._armed.set()
        return changes

    async def _begin(self) -> list[Change]:
        await self._senses.look(self._manifest.begin)
        if not self._stopped:  # else only a part of the folder was looked at
            await self._context.save_state(await self._state())
        return []

    async def _between(self) -> None:
        """Read on, while there are files that were not read; else save what no event carried, and wait."""
        if self._unread:
            self._unread = await self._senses.look(lambda: self._manifest.read_more(READING_SECONDS))
            self._unsaved |= not self._unread
        else:
            if self._unsaved and not self._stopped:
                await self._context.save_state(await self._state())
                self._unsaved = False
            await self._pause()
        await self._senses.hear()

    async def _compare(self, paths: list[str]) -> list[Change]:
        """Return how these paths differ; files are read in a thread of their own."""
        if any(map(self._scope.rules, paths)):
            return await self._compare_by_new_rules()
        return await self._senses.look(lambda: self._foreign(self._manifest.compare(paths))) if paths else []

    async def _compare_by_new_rules(self) -> list[Change]:
        """Return what changed; a file that only now counts is no change."""
        before = self._scope.reread()
        self._manifest.wanted = self._scope.wanted
        changes = await self._senses.look(lambda: self._foreign(self._manifest.compare([""])))
        for change in changes:
            if not before(change.path):
                self._manifest.apply(change)
        return [change for change in changes if before(change.path)]

    def _foreign(self, changes: list[Change]) -> list[Change]:
        """Return the changes that the sessions that were woken have not made; those they have are taken as known."""
        if self._config.self_trigger or not self._context.own_writes:
            return changes
        own = [change for change in changes if self._is_own(change)]
        for change in own:
            self._manifest.apply(change)
            self._pending.pop(change.path, None)
            self._unsaved = True
        return [change for change in changes if change not in own]

    def _is_own(self, change: Change) -> bool:
        digest = self._context.own_writes.get(os.path.realpath(os.path.join(self._scope.base, change.path)))  # noqa: PTH118
        return digest is not None and self._manifest.holds(change, digest)

    async def _events(self, changes: list[Change]) -> AsyncIterator[TriggerEvent]:
        from .events import event_of
        from .state import carriers

        if self._config.batch:
            if changes and not self._stopped:
                yield await self._event_of_all(changes)
            return
        carried = carriers(len(changes), len(self._manifest.files))
        for index, change in enumerate(changes):
            if self._stopped:
                return
            generation, carries = self._pending.pop(change.path, self._generation), index in carried
            self._manifest.apply(change)
            state = await self._next_state(changes[later].path for later in carried[index]) if carries else None
            yield event_of(change, self._scope, self._context, NAME, generation, state)

    async def _event_of_all(self, changes: list[Change]) -> TriggerEvent:
        from .events import event_of_all

        for change in changes:
            self._manifest.apply(change)
            self._pending.pop(change.path, None)
        generation, state = self._generation, await self._next_state(())
        return event_of_all(changes, self._scope, self._context, NAME, generation, state)

    async def _next_state(self, following: Iterable[str]) -> dict[str, Any]:
        """Return the state after an event, for a restart that may come before or after the following ones."""
        self._generation += 1
        self._pending = dict.fromkeys(following, self._generation) | self._pending
        self._unsaved = False
        return await self._state()

    async def _state(self) -> dict[str, Any]:
        import asyncio

        from .state import Saved, encode

        return await asyncio.to_thread(encode, Saved(self._generation, self._manifest.files, dict(self._pending)))

    async def _pause(self) -> None:
        """Return when something was noticed, or is due, or the trigger was stopped."""
        import asyncio

        seconds = self._senses.wait()
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._wake.wait())]
        if seconds is not None:
            waits.append(asyncio.ensure_future(self._context.clock.sleep(seconds)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self._wake.clear()
