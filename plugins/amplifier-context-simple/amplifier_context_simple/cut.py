"""How long messages are, and where a history may be cut."""

from __future__ import annotations

import json
from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

Message = dict[str, Any]

CHARACTERS_PER_TOKEN = 4
KEPT_SHARE = 0.75
"""What a cut keeps of the room: the next requests then begin alike, and a provider's prompt cache serves them."""
IMAGE_CHARACTERS = 6_400
"""What an image counts for: providers charge by its area, at most about 1,600 tokens, and not by its bytes."""
PAGE = 64
"""Messages that are measured at once on the way back: a stored history reads them together."""


def tokens_of(message: Message) -> int:
    """Return about how many tokens `message` is; every message is at least one."""
    content = message.get("content")
    if isinstance(content, list):
        return sum(map(_characters, content)) // CHARACTERS_PER_TOKEN + 1  # its tool calls are among the blocks
    return (_characters(content) + _characters(message.get("tool_calls"))) // CHARACTERS_PER_TOKEN + 1


def _characters(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict) and value.get("type") == "image":
        return IMAGE_CHARACTERS
    return len(json.dumps(value, ensure_ascii=False, default=str)) if value else 0


class Ledger:
    """The tokens and the turns of a history that only grows: of its opening, and of as much of its end as is needed.

    What is measured is kept. Before that, a message is not even read.
    """

    def __init__(self, history: Sequence[Message]) -> None:
        self._history = history
        self.opening = 0
        """How many messages at the beginning instruct the model, and are always sent."""
        self.opening_tokens = 0
        self._start = 0
        """The first message measured after the opening; all that follow it are measured too."""
        self._sums = [0]
        """The tokens before each measured message and after the last, counted from an arbitrary zero."""
        self._turns: list[int] = []
        """Where turns begin among the measured messages."""

    @property
    def total(self) -> int:
        """The tokens of every message measured: all those of the history, or at least so many."""
        return self.opening_tokens + self.tokens_from(0)

    def tokens_from(self, position: int) -> int:
        """Return the tokens of the measured messages from `position` on, without the opening."""
        return self._sums[-1] - self._sums[max(0, position - self._start)]

    def exceeds(self, tokens: int) -> bool:
        """Return whether the history is more than `tokens`; measures as far back as it takes to know."""
        sums = self._sums
        if self._start + len(sums) - 1 < len(self._history):
            self._catch_up()
        room = tokens - self.opening_tokens
        while sums[-1] - sums[0] <= room and self._start > self.opening:
            self._go_back()
        return sums[-1] - sums[0] > room

    def first_kept(self, room: int) -> int:
        """Return where the turns begin that fit in three quarters of `room`; at the latest, where the last turn begins.

        The history must exceed `room` and the opening.
        """
        while not self._turns and self._start > self.opening:
            self._go_back()
        if not self._turns:
            return self.opening
        earliest = self._start + bisect_left(self._sums, self._sums[-1] - room * KEPT_SHARE)
        return self._turns[min(bisect_left(self._turns, earliest), len(self._turns) - 1)]

    def _catch_up(self) -> None:
        """Measure what was added since; at first, the opening and the last page."""
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
        """Measure one more page before what is measured."""
        stop = self._start
        length = max(PAGE, len(self._sums) // 4)  # longer and longer, since each moves what was measured before it
        self._start = max(self.opening, stop - length)
        page = self._history[self._start : stop + 1]  # with what follows it, which says whether a turn begins before
        tokens = [tokens_of(message) for message in page[: stop - self._start]]
        self._sums[:0] = [*accumulate(tokens, initial=self._sums[0] - sum(tokens))][:-1]
        turns: list[int] = []
        note_turns(turns, page, self._start)
        self._turns[:0] = turns[: bisect_left(turns, stop)]


def note_turns(turns: list[int], messages: Sequence[Message], position: int) -> None:
    """Add to `turns` where one begins in `messages`, which stand from `position` on: where a user speaks.

    What a hook says begins none, and neither does what stands before a tool's result: both are in the middle of one.
    """
    for at, message in enumerate(messages, position):
        role = message.get("role")
        if role == "user" and not _by_hook(message):
            turns.append(at)
        elif role == "tool" and turns and turns[-1] == at - 1:
            turns.pop()


def _by_hook(message: Message) -> bool:
    metadata = message.get("metadata")
    return isinstance(metadata, dict) and metadata.get("source") == "hook"
