"""Mark the processes that sessions start, so that commands of a person's consent refuse to run in them."""

from __future__ import annotations

import os

from amplifier_core.errors import AmplifierError

MARK = "AMPLIFIER_SESSION"
"""The environment variable with the process that runs sessions; what their tools start inherits it."""


class WithinSession(AmplifierError, PermissionError):
    """A command that only a person may give was given from within a session."""

    def __init__(self, command: str) -> None:
        super().__init__(
            f"'amplifier {command}' is for a person, and this is a process of a session ({MARK} is set). "
            "Give the command in a terminal of your own"
        )


def mark_process() -> None:
    """Mark every process that this one starts from now on."""
    os.environ.setdefault(MARK, str(os.getpid()))


def refuse_in_session(command: str) -> None:
    """Raise `WithinSession` in a process that a session has started, also by way of others."""
    if os.environ.get(MARK, str(os.getpid())) != str(os.getpid()):
        raise WithinSession(command)
