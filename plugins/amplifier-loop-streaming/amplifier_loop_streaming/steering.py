"""Keep the messages of a user to a running turn until a step takes them in."""

from __future__ import annotations

from collections import deque

LIMIT = 100
"""Messages that may wait; more come from a program that repeats itself."""


class SteeringFull(RuntimeError):
    """Too many messages wait to be taken in; this one was refused."""


class Steering:
    """The messages that wait, in their order. Call it in the event loop of the session.

    A turn opens it, takes messages at each step, and closes it when it will ask the model no more.
    """

    def __init__(self) -> None:
        self._waiting: deque[str] = deque()
        self._is_open = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, text: str) -> bool:
        """Keep a message; return whether a running turn takes it in. Otherwise the next turn does, after its prompt.

        Raises `ValueError` for a message without text, and `SteeringFull`.
        """
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"session.steer: the message must be a text, not {text!r}")
        if len(self._waiting) >= LIMIT:
            raise SteeringFull(
                f"session.steer: {LIMIT} messages wait already; the session takes them in at its next step"
            )
        self._waiting.append(text)
        return self._is_open

    def open(self) -> None:
        """Begin a turn."""
        self._is_open = True

    def close(self) -> None:
        """End the turn: messages from now on are for the next one."""
        self._is_open = False

    def take(self) -> str:
        """Return the message that has waited longest. Raises `IndexError` without one."""
        return self._waiting.popleft()
