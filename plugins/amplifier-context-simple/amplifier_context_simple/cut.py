"""How long messages are, and where a history may be cut."""

from __future__ import annotations

import json
from bisect import bisect_left
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amplifier_core.transcript import Transcript

Message = dict[str, Any]

CHARACTERS_PER_TOKEN = 4
KEPT_SHARE = 0.75
"""What a cut keeps of the room: the next requests then begin alike, and a provider's prompt cache serves them."""
IMAGE_CHARACTERS = 6_400
"""What an image counts for: providers charge by its area, at most about 1,600 tokens, and not by its bytes."""


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
    """The tokens of a history that only grows; each message is measured once."""

    def __init__(self) -> None:
        self._sums = [0]

    @property
    def total(self) -> int:
        """The tokens of every message measured."""
        return self._sums[-1]

    def catch_up(self, history: Transcript | list[Message]) -> None:
        """Measure what was added since."""
        for message in history[len(self._sums) - 1 :]:
            self._sums.append(self._sums[-1] + tokens_of(message))

    def between(self, start: int, stop: int) -> int:
        """Return the tokens of the messages from `start` to before `stop`."""
        return self._sums[stop] - self._sums[start]

    def first_within(self, tokens: float) -> int:
        """Return the earliest position from which all that follows is at most `tokens`."""
        return bisect_left(self._sums, self._sums[-1] - tokens)


def opening_length(history: Sequence[Message]) -> int:
    """Return how many messages at the beginning instruct the model, and are always sent."""
    length = 0
    while length < len(history) and history[length].get("role") in ("system", "developer"):
        length += 1
    return length


def first_kept(history: Sequence[Message], ledger: Ledger, opening: int, room: int) -> int:
    """Return where the turns begin that fit in three quarters of `room`; at the latest, where the last turn begins."""
    earliest = ledger.first_within(room * KEPT_SHARE)
    for position in range(earliest, len(history)):
        if begins_turn(history, position):
            return position
    for position in range(min(earliest, len(history)) - 1, opening, -1):
        if begins_turn(history, position):
            return position
    return opening


def begins_turn(history: Sequence[Message], position: int) -> bool:
    """Return whether a user speaks here, and not a hook in the middle of a turn."""
    message = history[position]
    metadata = message.get("metadata")
    by_hook = isinstance(metadata, dict) and metadata.get("source") == "hook"
    if message.get("role") != "user" or by_hook:
        return False
    return position + 1 == len(history) or history[position + 1].get("role") != "tool"
