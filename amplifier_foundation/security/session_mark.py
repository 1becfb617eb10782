"""Mark the processes that sessions start, so that commands of a person's consent refuse to run in them.

This keeps a model from `amplifier trust`. It does not stop code that runs as the person: such code can leave the
session's processes, and write the person's files.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from pathlib import Path

from amplifier_core.errors import AmplifierError

MARK = "AMPLIFIER_SESSION"
"""The environment variable with the process that runs sessions; what their tools start inherits it."""
_LONGEST_CHAIN = 64


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


def unmarked_environment() -> dict[str, str]:
    """Return the environment of this process for another one that is no process of a session."""
    own = str(os.getpid())
    return {name: value for name, value in os.environ.items() if (name, value) != (MARK, own)}


def is_within_session() -> bool:
    """Return whether a session has started this process, also by way of others.

    Where `/proc` shows the environment of the processes above, a removed variable makes no difference.
    """
    return os.environ.get(MARK, str(os.getpid())) != str(os.getpid()) or _has_marked_ancestor()


@cache
def _has_marked_ancestor() -> bool:
    process = os.getppid()
    for _ in range(_LONGEST_CHAIN):
        if process <= 1:
            break
        with suppress(OSError):
            if f"\0{MARK}=".encode() in b"\0" + Path(f"/proc/{process}/environ").read_bytes():
                return True
        try:
            process = int(Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            break
    return False


def refuse_in_session(command: str) -> None:
    """Raise `WithinSession` in a process that a session has started, also by way of others."""
    if is_within_session():
        raise WithinSession(command)
