"""Change files, and get the event that a watcher of files would yield for it: at once, and the same every time.

files = SimulatedFiles(tmp_path)
event = files.write("app.py", "x = (")
assert event.change_type == "created"
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from ..triggers import TriggerEvent, TriggerType
from .clock import VirtualClock

if TYPE_CHECKING:
    from pathlib import Path

    from ..clock import Clock

SOURCE = "trigger-file-watcher"


class SimulatedFiles:
    """A folder with real files; each change returns its event, with a `dedupe_key` of its own."""

    def __init__(self, folder: Path, clock: Clock | None = None) -> None:
        self.folder = folder
        self.clock = clock or VirtualClock()
        self.events: list[TriggerEvent] = []
        self._numbers = count(1)

    def write(self, path: str, text: str = "") -> TriggerEvent:
        """Write a file, and its folders; the event says `created` or `modified`."""
        file = self.folder / path
        change = "modified" if file.exists() else "created"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return self._event(path, change)

    def delete(self, path: str) -> TriggerEvent:
        """Delete a file. Raises `FileNotFoundError`."""
        (self.folder / path).unlink()
        return self._event(path, "deleted")

    def move(self, path: str, to: str) -> list[TriggerEvent]:
        """Move a file; return the events `deleted` and `created`. Raises `FileNotFoundError`."""
        target = self.folder / to
        target.parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).rename(target)
        return [self._event(path, "deleted"), self._event(to, "created")]

    def _event(self, path: str, change: str) -> TriggerEvent:
        absolute = str(self.folder.absolute() / path)
        event = TriggerEvent(
            TriggerType.FILE_CHANGE,
            SOURCE,
            timestamp=self.clock.now(),
            data={"path": path, "change": change, "absolute": absolute, "src_path": absolute},
            file_path=path,
            change_type=change,
            dedupe_key=f"{path}:{next(self._numbers)}",
        )
        self.events.append(event)
        return event
