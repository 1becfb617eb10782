"""Measure messages, and find the turns at which a history may be cut."""

from __future__ import annotations

import json
from bisect import bisect_left
from contextlib import suppress
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Message = dict[str, Any]

CHARACTERS_PER_TOKEN = 4
IMAGE_CHARACTERS = 6_400
"""The count for an image: providers charge by its area, at most about 1,600 tokens, and not by its bytes."""
PAGE = 64
"""Messages to measure at once on the way back: a stored history reads them together."""


def tokens_of(message: Message) -> int:
    """Return the approximate tokens of `message`, at least one."""
    content = message.get("content")
    if isinstance(content, list):
        return sum(map(_characters, content)) // CHARACTERS_PER_TOKEN + 1  # its tool calls are among the blocks
    return (_characters(content) + _characters(message.get("tool_calls"))) // CHARACTERS_PER_TOKEN + 1


def tokens_of_tools(tools: Mapping[str, Any]) -> int:
    """Return the approximate tokens of the definitions of tools; one without a definition is shown to no model."""
    parts, characters = ("name", "description", "input_schema"), 0
    for tool in tools.values():
        with suppress(Exception):  # code of the tool
            characters += sum(_characters(getattr(tool, part, None)) for part in parts)
    return characters // CHARACTERS_PER_TOKEN


def _characters(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict) and value.get("type") == "image":
        return IMAGE_CHARACTERS
    return len(json.dumps(value, ensure_ascii=False, default=str)) if value else 0


class Cut(NamedTuple):
    """A place to cut a history: the opening, `head` and everything from `first` on are sent."""

    first: int
    head: tuple[Message, ...] = ()
    """The messages of the user to the last turn before `first`, when the cut is inside of that turn."""
    head_tokens: int = 0
    places: tuple[int, ...] = ()
    """The positions of the messages in `head`."""


class Ledger:
    """The tokens and the turns of a growing history: of its opening, and of its end as far as needed.

    Each message is read and measured once, and only if a limit requires it. The measured ones are the opening
    (`0` to `opening`) and everything from `_start` on; `_sums` has one more item than there are measured messages.
    """

    def __init__(self, history: Sequence[Message]) -> None:
        self._history = history
        self.opening = 0
        """The number of instructing messages at the beginning; they are always sent."""
        self.opening_tokens = 0
        self._start = 0
        """The first measured message after the opening."""
        self._sums = [0]
        """The tokens before each measured message and after the last, counted from an arbitrary zero."""
        self._turns: list[int] = []
        """The beginnings of turns among the measured messages."""

    @property
    def start(self) -> int:
        """The first measured message after the opening."""
        return self._start

    @property
    def total(self) -> int:
        """The tokens of all measured messages."""
        return self.opening_tokens + self.tokens_from(0)

    def tokens_from(self, position: int) -> int:
        """Return the tokens of the measured messages from `position` on, without the opening."""
        return self._sums[-1] - self._sums[max(0, position - self._start)]

    def exceeds(self, tokens: float) -> bool:
        """Return whether the history exceeds `tokens`; measure only as far back as necessary."""
        sums = self._sums
        if self._start + len(sums) - 1 < len(self._history):
            self._catch_up()
        room = tokens - self.opening_tokens
        while sums[-1] - sums[0] <= room and self._start > self.opening:
            self._go_back()
        return sums[-1] - sums[0] > room

    def recut(self, first: int, places: tuple[int, ...]) -> Cut:
        """Return the cut at `first`, with the messages at `places` before it; measure back to it."""
        while self._start > max(first, self.opening):
            self._go_back()
        head = tuple(self._history[place] for place in places)
        return Cut(first, head, sum(map(tokens_of, head)), places)

    def cut(self, room: float, kept: float) -> Cut:
        """Return the cut that keeps the most turns within `kept` tokens; at least the last turn, if `room` has room.

        The history must exceed `room` and the opening.
        """
        while not self._turns and self._start > self.opening:
            self._go_back()
        first = self.opening
        if self._turns:
            earliest = self._start + bisect_left(self._sums, self._sums[-1] - kept)
            first = self._turns[min(bisect_left(self._turns, earliest), len(self._turns) - 1)]
        return Cut(first) if self.tokens_from(first) <= room else self._cut_turn(first, kept)

    def _cut_turn(self, start: int, kept: float) -> Cut:
        """Return the cut that keeps the most steps of the turn from `start` on; at least the last step.

        A step is a message of the model with the results of its calls: they are never parted. The messages of the user
        are all kept: they are the task.
        """
        found, head, places, tokens = Cut(start), list[Message](), list[int](), 0
        for at, message in enumerate(self._history[start:], start):
            if message.get("role") == "assistant":
                # without a message between the head and the step, nothing is left out
                found = Cut(at, tuple(head), tokens, tuple(places)) if len(head) < at - start else Cut(start)
                if tokens + self.tokens_from(at) <= kept:
                    break
            elif message.get("role") == "user" and source_of(message) != "hook":
                head.append(message)
                places.append(at)
                tokens += tokens_of(message)
        return found

    def _catch_up(self) -> None:
        """Measure new messages; at first, the opening and the last page."""
        sums = self._sums
        if len(sums) == 1:
            self._begin()
        end = self._start + len(sums) - 1
        added = self._history[end:]
        for message in added:
            sums.append(sums[-1] + tokens_of(message))
        note_turns(self._turns, added, end)

    def _begin(self) -> None:
        history, length = self._history, len(self._history)
        while self.opening < length and history[self.opening].get("role") in ("system", "developer"):
            self.opening_tokens += tokens_of(history[self.opening])
            self.opening += 1
        self._start = max(self.opening, length - PAGE)

    def _go_back(self) -> None:
        """Measure one more page, before the measured messages."""
        stop = self._start
        length = max(PAGE, len(self._sums) // 4)  # longer and longer, since each step moves all sums
        self._start = max(self.opening, stop - length)
        page = self._history[
            self._start : stop + 1
        ]  # with the next message: it decides whether a turn begins before it
        tokens = [tokens_of(message) for message in page[: stop - self._start]]
        self._sums[:0] = [*accumulate(tokens, initial=self._sums[0] - sum(tokens))][:-1]
        turns: list[int] = []
        note_turns(turns, page, self._start)
        self._turns[:0] = turns[: bisect_left(turns, stop)]


def note_turns(turns: list[int], messages: Sequence[Message], position: int) -> None:
    """Add to `turns` the positions in `messages` (from `position` on) where a user begins one.

    A hook's message begins none, and neither does a message to a running turn or before a tool's result: these are
    inside a turn.
    """
    for at, message in enumerate(messages, position):
        role = message.get("role")
        if role == "user" and source_of(message) not in ("hook", "steering"):
            turns.append(at)
        elif role == "tool" and turns and turns[-1] == at - 1:
            turns.pop()


def source_of(message: Message) -> Any:
    """Return the `source` in the metadata of a message: `hook`, `steering`, or None."""
    metadata = message.get("metadata")
    return metadata.get("source") if isinstance(metadata, dict) else None
