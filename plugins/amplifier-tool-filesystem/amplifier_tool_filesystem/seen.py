"""Know which state of a file a session has seen: the one it read, or wrote itself.

The tools note it while they run. What a resumed session or a fork saw before is in its history: a result of
`read_file`, or of a tool that writes, with its time. A file that was changed later is not as the session saw it: by
the time that the system sets at each change of a file or its name (ctime), as a copy may bring an older mtime.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from .failures import FileToolError

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from amplifier_core import ModuleCoordinator

    from .folder import InnerPath

TRANSCRIPT = "session.transcript"
MOST_MESSAGES = 2_000
"""The newest messages of a history that are looked at."""
_TOOLS = ("read_file", "write_file", "edit_file", "edit_notebook")
_PATH = re.compile(r'\s*\{"file_path": ("(?:[^"\\]|\\.)*")')


class State(NamedTuple):
    """A state of a file; each part is None where it is not known.

    `content` is a digest. `mark` is the inode, the size and the mtime of a file on disk; the same mark means the same
    content. `changed` is the time of the last change in nanoseconds; a rename or another mode changes it, too.
    """

    content: str | None = None
    mark: tuple[int, int, int] | None = None
    changed: int | None = None

    @classmethod
    def of(cls, status: os.stat_result, content: str | None = None) -> State:
        """Return the state of a file on disk."""
        return cls(content, (status.st_ino, status.st_size, status.st_mtime_ns), status.st_ctime_ns)

    def has_content_of(self, other: State) -> bool:
        """Return whether both are known to have one content."""
        is_marked = self.mark is not None and self.mark == other.mark
        return is_marked or (self.content is not None and self.content == other.content)


class SeenFiles:
    """The files that a session has seen, by path.

    A call that replaces all of a file is refused if the file is not as the session saw it: what somebody else wrote
    would be lost. `strict` refuses any change of such a file, and of one that the session has not seen.
    """

    def __init__(self, coordinator: ModuleCoordinator, *, strict: bool) -> None:
        self._coordinator = coordinator
        self._strict = strict
        self._states: dict[str, State] = {}
        self._earlier: dict[str, int] | None = None
        """The times of the last looks in the history, in nanoseconds since 1970."""

    def note(self, path: InnerPath, state: State) -> None:
        """Note the state that the session has seen now: it has read the file, or written it."""
        self._states[str(path)] = state

    def check(self, path: InnerPath, state: State, *, replaces_all: bool) -> None:
        """Raise `FileToolError` for a change that this session may not make before it reads the file again."""
        if not (self._strict or replaces_all):
            return
        if self._strict and str(path) not in self._states and str(path) not in self._read_history():
            raise FileToolError("NotRead", f"{path} exists, and this session has not read it; read it first")
        if self.is_unseen(path, state):
            raise FileToolError(
                "ChangedSinceRead",
                f"{path} has changed since this session saw it, by somebody else or by a command; read it again",
            )

    def is_unseen(self, path: InnerPath, state: State) -> bool:
        """Return whether a file, of which the session has seen a state, has another one."""
        if (known := self._states.get(str(path))) is not None:
            return not known.has_content_of(state)
        earlier = self._read_history().get(str(path))
        return earlier is not None and (state.changed or 0) > earlier

    def _read_history(self) -> dict[str, int]:
        if self._earlier is None:
            self._earlier = {}
            get = getattr(self._coordinator, "get_capability", None)
            history: Sequence[dict[str, Any]] = (get(TRANSCRIPT) if get is not None else None) or []
            for message in history[max(0, len(history) - MOST_MESSAGES) :]:
                if message.get("role") == "tool" and message.get("name") in _TOOLS:
                    self._take_in(message)
        return self._earlier

    def _take_in(self, message: dict[str, Any]) -> None:
        """Note the file of a result in the history, if the call has not failed."""
        content = message.get("content")
        if isinstance(content, list):
            content = next((each.get("text") for each in content if each.get("type") == "text"), "")
        found = _PATH.match(content) if isinstance(content, str) else None
        moment = (message.get("metadata") or {}).get("timestamp")
        if self._earlier is None or not found or not isinstance(moment, str):
            return
        self._earlier[json.loads(found[1])] = int(datetime.fromisoformat(moment).timestamp() * 1e9)


def digest(data: bytes) -> str:
    """Return the SHA-256 in hex."""
    return sha256(data).hexdigest()
