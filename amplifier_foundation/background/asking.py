"""Ask the process that runs background sessions; this needs no event loop."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from amplifier_core.errors import AmplifierError, SessionConflict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PATIENCE = 30.0
"""Seconds until a request is answered, ended or not; a background session may end its work before it stops."""
AT_ONCE = 5.0
"""Seconds for an immediate answer; only a suspended process takes longer."""
READING = ("status", "servers", "follow", "declaration")
"""The operations that change nothing."""


class NothingRuns(AmplifierError, LookupError):
    """No process runs background sessions with this data folder."""

    def __init__(self) -> None:
        super().__init__("nothing runs. Start something with: amplifier up BUNDLE")


class NoSuchBackgroundSession(AmplifierError, LookupError):
    """No background session has this name or id; the message lists the existing ones."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        from ..documents.problems import did_you_mean

        self.name = name
        listed = sorted(set(known))
        hint = did_you_mean(name, listed) or "."
        rest = f"There are: {', '.join(listed)}" if listed else "There is none. See: amplifier ps"
        super().__init__(f"no background session '{name}'{hint} {rest}")


def ask(owner: Mapping[str, Any], operation: str, *, patience: float = AT_ONCE, **arguments: Any) -> Any:
    """Return the answer of the process that owns the data folder; `owner` comes from `running_owner`.

    Raises `SessionConflict` with the process's words for a refusal, or after `patience` seconds without an answer.
    """
    import socket

    path = str(owner.get("socket") or "")
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(patience)
            connection.connect(path)
            connection.sendall(json.dumps({"operation": operation, **arguments}).encode() + b"\n")
            with connection.makefile("rb") as lines:
                answer = json.loads(lines.readline())
    except (OSError, ValueError) as error:
        why = str(error)
        if isinstance(error, TimeoutError):
            from ..sessions.lock import is_missing

            stopped = "stopped (kill -CONT), or hang (kill -9)"
            stopped = "stopped, or hang, and is not in this container" if is_missing(owner) else stopped
            late = "" if operation in READING else f". It may still carry out this {operation} when it goes on"
            why = f"nothing came within {patience:g} s; it may be {stopped}{late}"
        raise SessionConflict(path, f"process {owner.get('pid', '?')} does not answer at {path}: {why}") from error
    if not answer.get("ok"):
        raise SessionConflict(path, str(answer.get("error")))
    return answer.get("answer")
