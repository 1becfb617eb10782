"""Keep a session's history as an append-only sequence; forks share their common part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

from .continuations import detach

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Message = dict[str, Any]


def text_of(message: Mapping[str, Any]) -> str:
    """Return the text of a message, its blocks joined."""
    content = message.get("content")
    if isinstance(content, list):
        texts = [each.get("text") for each in content if isinstance(each, dict) and each.get("type") == "text"]
        return "".join([str(text or "") for text in texts])
    return str(content or "")


class _Segment:
    """A list that only grows. A transcript at its end appends to it; any other begins a segment of its own."""

    __slots__ = ("base", "base_length", "messages")

    def __init__(self, base: _Segment | None, base_length: int) -> None:
        self.base = base
        self.base_length = base_length
        """The number of messages before this segment, from the beginning of the history."""
        self.messages: Any = []
        """A list; in the first segment of a stored history any sequence, without appends."""


class Transcript(Sequence[Message]):
    """The messages of one session.

    `append` and `fork` take constant time whatever the length; reading walks one list per branching of the history. A
    fork and its source never see each other's later messages. Messages are shared, not copied: treat an appended
    message as read-only. A fork shows its shared messages without the provider's continuation ids: they belong to the
    source's own conversation. One thread at a time may append within a family of forks.
    """

    __slots__ = ("_detached", "_length", "_tail")

    def __init__(self, messages: Iterable[Mapping[str, Any]] = ()) -> None:
        self._tail = _Segment(None, 0)
        self._tail.messages.extend(map(dict, messages))
        self._length = len(self._tail.messages)
        self._detached = 0
        """The number of messages at the beginning from another session."""

    @classmethod
    def over(cls, history: Sequence[Message], *, forked_at: int = 0) -> Transcript:
        """Return a transcript that begins with `history` and reads its messages on demand.

        `history` must not change. `forked_at` is the number of leading messages that a fork shares with its source.
        """
        transcript = cls()
        stored = _Segment(None, 0)
        stored.messages = history
        transcript._length = len(history)
        transcript._tail = _Segment(stored, transcript._length)
        transcript._detached = forked_at
        return transcript

    def append(self, message: Message) -> None:
        """Add `message` at the end."""
        tail, length = self._tail, self._length
        messages = tail.messages
        if length - tail.base_length != len(messages):
            self._tail = _Segment(tail, length)
            messages = self._tail.messages
        messages.append(message)
        self._length = length + 1

    def extend(self, messages: Iterable[Message]) -> None:
        """Add each of `messages` at the end."""
        for message in messages:
            self.append(message)

    def replace(self, messages: Iterable[Mapping[str, Any]]) -> None:
        """Begin anew with copies of `messages`; forks keep their shared messages."""
        fresh = Transcript(messages)
        self._tail, self._length, self._detached = fresh._tail, fresh._length, 0

    def fork(self, at: int | None = None) -> Transcript:
        """Return a transcript with the first `at` messages (all, when None) in common.

        Raises `IndexError` when `at` is not within 0 and the length.
        """
        length = self._length if at is None else at
        if not 0 <= length <= self._length:
            raise IndexError(f"fork point {at} is not within 0 and {self._length}")
        child = Transcript.__new__(Transcript)
        child._tail = self._tail
        while length < child._tail.base_length and child._tail.base is not None:
            child._tail = child._tail.base
        child._length = child._detached = length
        return child

    def is_fork_of(self, source: Transcript) -> bool:
        """Return whether everything here is the beginning of `source`, shared and not copied."""
        segment: _Segment | None = source._tail
        while segment is not None and segment is not self._tail:
            segment = segment.base
        return segment is not None and self._length <= source._length and self._detached == self._length

    def settled_length(self) -> int:
        """Return the number of messages before the first open tool call; see the function `settled_length`."""
        return settled_length(self)

    def since(self, start: int) -> list[Message]:
        """Return the messages from position `start` on; the cost depends on their number alone."""
        if self._tail.base is None and not self._detached:
            whole: list[Message] = self._tail.messages[max(0, start) : self._length]
            return whole
        return list(self._walk(max(0, start), self._length))

    def _walk(self, start: int, stop: int) -> Iterator[Message]:
        pieces: list[tuple[_Segment, int]] = []
        segment: _Segment | None = self._tail
        while segment is not None and stop > start:
            if stop > segment.base_length:
                pieces.append((segment, stop))
                stop = segment.base_length
            segment = segment.base
        for segment, end in reversed(pieces):
            base = segment.base_length
            begin = max(base, start)
            shared = min(max(begin, self._detached), end)
            yield from map(detach, segment.messages[begin - base : shared - base])
            yield from segment.messages[shared - base : end - base]

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Message]:
        if self._tail.base is None and not self._detached:
            return iter(self._tail.messages[: self._length])
        return self._walk(0, self._length)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            return list(self._walk(start, stop)) if step == 1 else list(self)[index]
        position = index + self._length if index < 0 else index
        if not 0 <= position < self._length:
            raise IndexError(f"message {index} of {self._length}")
        segment = self._tail
        while position < segment.base_length and segment.base is not None:
            segment = segment.base
        message: Message = segment.messages[position - segment.base_length]
        return detach(message) if position < self._detached else message

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and not isinstance(other, str) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # equality goes by the messages, and they change

    def __repr__(self) -> str:
        return f"<Transcript of {self._length} messages>"


def settled_length(messages: Sequence[Message]) -> int:
    """Return the number of messages before the first tool call without a result; all, if every call has one.

    A turn goes on only when its calls have their results: only the last answer and its results are read.
    """
    answered = set()
    for position in range(len(messages) - 1, -1, -1):
        message = messages[position]
        if message.get("role") == "tool":
            answered.add(message.get("tool_call_id"))
        elif message.get("role") == "assistant":
            ids = {call["id"] for call in message.get("tool_calls") or () if call.get("id")}
            return len(messages) if ids <= answered else position
    return len(messages)
