"""Keep the commands of a session that run in the background, and end them with it."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .failures import BashError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from .output import Output


class _Entry:
    """A command in the background: its output, and the task that waits for its end and returns the facts about it."""

    def __init__(self, task: asyncio.Task[dict[str, Any]], output: Output) -> None:
        self.task = task
        self.output = output


class Background:
    """The commands by their ids, each with one task; an ended one stays until somebody has read its end."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: dict[str, _Entry] = {}

    def require_place(self) -> None:
        """Raise `BashError` when no more commands may run."""
        if sum(not entry.task.done() for entry in self._entries.values()) >= self._most:
            raise BashError("TooMany", f"{self._most} commands run in the background; end one with bash_kill")

    def start(self, waiting: Coroutine[Any, Any, dict[str, Any]], output: Output) -> str:
        """Let a command run on; return its id."""
        id = secrets.token_hex(4)
        self._entries[id] = _Entry(asyncio.create_task(waiting, name=f"bash {id}"), output)
        return id

    def read(self, id: str) -> dict[str, Any]:
        """Return the output since the last time, and the facts of the end. Raises `BashError` for an unknown id."""
        entry = self._find(id)
        if not entry.task.done():
            return {"id": id, "status": "running", "output": entry.output.take()}
        del self._entries[id]
        return {"id": id, **entry.task.result(), "output": entry.output.take()}

    async def kill(self, id: str) -> dict[str, Any]:
        """End a command with all its processes; return its last output. Raises `BashError` for an unknown id."""
        entry = self._find(id)
        if entry.task.done():
            return self.read(id)
        await self._end(entry)
        del self._entries[id]
        return {"id": id, "status": "killed", "output": entry.output.take()}

    async def close(self) -> None:
        """End all commands."""
        await self._end(*self._entries.values())
        self._entries.clear()

    def _find(self, id: str) -> _Entry:
        if id not in self._entries:
            known = ", ".join(self._entries) or "none"
            raise BashError("UnknownId", f"no command in the background has the id {id!r}; known are: {known}")
        return self._entries[id]

    async def _end(self, *entries: _Entry) -> None:
        await asyncio.sleep(0)  # each task has begun by then: one that is cancelled before would leave its command
        for entry in entries:
            entry.task.cancel()
        for entry in entries:
            await asyncio.wait([entry.task])
            with suppress(asyncio.CancelledError, Exception):
                entry.task.result()
