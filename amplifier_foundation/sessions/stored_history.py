"""Read the history of a stored session page by page, as parts of it are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

from amplifier_core.transcript import Message, Transcript

from .history import interrupted_results, turn_starts

if TYPE_CHECKING:
    from amplifier_core.storage import SessionRecord, SessionStore

PAGE = 64
"""Messages in one read; it takes a quarter of a millisecond of the event loop with the embedded store."""


class StoredHistory(Sequence[Message]):
    """The first `length` messages of a session; each is read once and kept."""

    def __init__(self, store: SessionStore, session_id: str, length: int) -> None:
        self._store = store
        self._session_id = session_id
        self._length = length
        self._pages: dict[int, list[Message]] = {}

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            return self._between(start, stop)[::step] if step > 0 else [self[at] for at in range(start, stop, step)]
        position = index + self._length if index < 0 else index
        if not 0 <= position < self._length:
            raise IndexError(f"message {index} of {self._length}")
        return self._between(position, position + 1)[0]

    def _between(self, start: int, stop: int) -> list[Message]:
        if start >= stop:
            return []
        first, last = start // PAGE, (stop - 1) // PAGE
        self._read(first, last)
        messages = [message for page in range(first, last + 1) for message in self._pages[page]]
        return messages[start - first * PAGE : stop - first * PAGE]

    def _read(self, first: int, last: int) -> None:
        """Read the missing pages from `first` to `last` in one read."""
        missing = [page for page in range(first, last + 1) if page not in self._pages]
        if not missing:
            return
        start, stop = missing[0] * PAGE, min((missing[-1] + 1) * PAGE, self._length)
        messages = self._store.read_sync(self._session_id, start, stop)
        for page in range(missing[0], missing[-1] + 1):
            offset = page * PAGE - start
            self._pages.setdefault(page, messages[offset : offset + PAGE])


def stored_transcript(store: SessionStore, record: SessionRecord, *, settle: bool = True) -> Transcript:
    """Return the transcript of a stored session; with `settle`, open calls are recorded as interrupted.

    This reads the end of the history; the rest is read when a context asks for it. A fork leaves out a provider's ids
    of its source's conversation. Raises the errors of `read_sync`.
    """
    history = StoredHistory(store, record.session_id, record.message_count)
    transcript = Transcript.over(history, forked_at=record.fork_at or 0)
    if settle:
        transcript.extend(interrupted_results(transcript.since(transcript.settled_length())))
    return transcript


def turns_so_far(record: SessionRecord, transcript: Transcript) -> int:
    """Return the number of turns of a stored session: its record's, or counted after a kill."""
    return len(turn_starts(transcript)) if record.status == "running" else record.turn_count
