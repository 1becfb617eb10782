"""Show the sessions at work in the live view of `amplifier up`: for how long, and what they do."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from amplifier_core.frozen import slotted
from amplifier_core.utils.secrets import redact_text

from ..background.keys import tag_of

if TYPE_CHECKING:
    from rich.text import Text

LONG, MOST = 5.0, 6
"""Seconds after which a session at work has a line, and such lines at most."""


@slotted
class Work:
    """One session at work: of which background session, since when, and its last tool call."""

    name: str
    began: float
    doing: str = ""


class WorkLines:
    """The sessions at work by their ids."""

    def __init__(self) -> None:
        self._work: dict[str, Work] = {}

    def __bool__(self) -> bool:
        return bool(self._work)

    def begin(self, session_id: str, name: str) -> None:
        """Note that a session of a background session works from now on."""
        self._work[session_id] = Work(name, time.monotonic())

    def note(self, session_id: str, doing: str) -> None:
        """Note what it does."""
        if session_id in self._work:
            self._work[session_id].doing = doing

    def end(self, session_id: str) -> None:
        """Forget it."""
        self._work.pop(session_id, None)

    def lines(self, width: int) -> list[Text]:
        """Return a line for each session that is at work for long, the longest first."""
        from rich.text import Text

        now, lines = time.monotonic(), []
        longest = sorted(self._work, key=lambda each: self._work[each].began)[:MOST]
        for session_id in longest:
            work = self._work[session_id]
            minutes, seconds = divmod(int(now - work.began), 60)
            line = Text.assemble(("▶ ", "cyan"), (work.name, "bold"), (f" {tag_of(session_id)} ", "dim"))
            line.append(f"{minutes}:{seconds:02} ", "cyan")
            line.append(redact_text(work.doing), "dim")
            line.truncate(width, overflow="ellipsis")
            lines += [line] if now - work.began >= LONG else []
        return lines
