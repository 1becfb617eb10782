"""Keep what a run has done: each finished task is a message of the run's session.

The session store makes it durable, shares it with forks of the run, and refuses a second writer: an entry is appended
at a position, and whoever is late gets a `SessionConflict`. Entries that wait are written in one transaction.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal

from amplifier_core.frozen import frozen

from ..documents.dicts import known_members
from .description import digest_of, find_description

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from amplifier_core.storage import SessionRecord, SessionStore
    from amplifier_core.transcript import Message

    from .run_events import RunEvents

Status = Literal["completed", "skipped", "failed", "absent", "chosen", "retried", "waiting"]
WAITING: Literal["waiting"] = "waiting"
KEY = "flow"
"""The member of a message's metadata with the entry."""


@frozen
class Entry:
    """One finished step of a run.

    `key` is the task's id with the iterations around it: `review#2`. `absent` is a task of a branch that was not taken,
    `chosen` a decision, `retried` a failed attempt before the next one; `waiting` for a person is never
    stored. `session` is that of its agent, `error` the `FlowError` of a failed task as plain data.
    """

    key: str
    task: str
    status: Status
    output: Any = None
    session: str | None = None
    attempts: int = 0
    error: dict[str, Any] | None = None

    def to_message(self) -> Message:
        """Return it as a message, readable for people."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        told = {name: value for name, value in fields.items() if value is not None}
        text = f"{self.key}: {self.status}"
        if self.error is not None:
            text += f": {self.error.get('message')}"
        elif isinstance(self.output, str) and self.output:
            text += f"\n\n{self.output}"
        return {"role": "assistant", "content": text, "metadata": {KEY: told}}

    @classmethod
    def of_message(cls, message: Message) -> Entry | None:
        """Return the entry in a message; None: it has none."""
        told = (message.get("metadata") or {}).get(KEY)
        if not isinstance(told, dict) or not {"key", "task", "status"} <= told.keys():
            return None
        return cls(**known_members(cls, told))


class Journal:
    """The entries of one run; `events` announces them."""

    def __init__(
        self, store: SessionStore, run_id: str, messages: Sequence[Message], events: RunEvents | None = None
    ) -> None:
        self._store = store
        self._run_id = run_id
        self._events = events
        self._position = len(messages)
        self._known: dict[str, Entry] = {}
        self._waiting: list[Message] = []
        self._lock = asyncio.Lock()
        for message in messages:
            if (entry := Entry.of_message(message)) is not None:
                self._known[entry.key] = entry

    @classmethod
    async def open(
        cls, store: SessionStore, record: SessionRecord, first: Callable[[], Message], events: RunEvents
    ) -> Journal:
        """Return the journal of a stored run, which begins with the message of `first`. Raises `SessionNotFound`.

        A run that goes on with another workflow has its description, too: the last one counts.
        """
        messages, begin = await store.read(record.session_id), first()
        before, now = find_description(messages), find_description([begin])
        if not messages or (before is not None and now is not None and digest_of(before) != digest_of(now)):
            added = begin if not messages else {**begin, "content": "Go on with the workflow as it is now"}
            await store.append(record.session_id, [added], at=len(messages))
            messages = [*messages, added]
        own = [Entry.of_message(message) for message in messages[record.fork_at or 0 :]]
        await events.catch_up(entry for entry in own if entry is not None)
        return cls(store, record.session_id, messages, events)

    def find(self, key: str) -> Entry | None:
        """Return the last entry of a step; None: it has not ended yet."""
        return self._known.get(key)

    async def write(self, entry: Entry) -> None:
        """Return when an entry is durable, and announced.

        Raises `SessionConflict` when another process has gone on with the run.
        """
        self._known[entry.key] = entry
        self._waiting.append(entry.to_message())
        async with self._lock:
            batch, self._waiting = self._waiting, []
            if batch:
                self._position = await self._store.append(self._run_id, batch, at=self._position)
        if self._events is not None:
            await self._events.announce(entry)
