"""Know which state of a file a session has seen: the one it read, or wrote itself.

The tools note it while they run. What a resumed session or a fork saw before is in its history: a result of
`read_file`, or of a tool that writes, with its time. A file that was changed later is not as the session saw it.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
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
    """A state of a file: `mark` differs between any two; `changed` is its time in nanoseconds, None without one."""

    mark: Any
    changed: int | None = None

    @classmethod
    def of(cls, status: os.stat_result) -> State:
        """Return the state of a file on disk."""
        return cls((status.st_ino, status.st_size, status.st_mtime_ns), status.st_mtime_ns)


class SeenFiles:
    """The files that a session has seen, by path.

    `strict` refuses to change a file that the session has not seen as it is now. Otherwise only a call that replaces
    all of a file is refused, and only if the session has read the file: what somebody else wrote since would be lost.
    """

    def __init__(self, coordinator: ModuleCoordinator, *, strict: bool) -> None:
        self._coordinator = coordinator
        self._strict = strict
        self._states: dict[str, State] = {}
        self._read: set[str] = set()
        self._earlier: dict[str, int] | None = None
        """The times of the last looks in the history, in nanoseconds since 1970."""

    def note(self, path: InnerPath, state: State, *, is_read: bool = False) -> None:
        """Note the state that the session has seen now: it has read the file, or written it."""
        self._states[str(path)] = state
        if is_read:
            self._read.add(str(path))

    def check(self, path: InnerPath, state: State, *, replaces_all: bool) -> None:
        """Raise `FileToolError` for a change that this session may not make before it reads the file again."""
        if not (self._strict or replaces_all):
            return
        name = str(path)
        known, earlier = self._states.get(name), self._read_history().get(name)
        if known is None and earlier is None:
            if self._strict:
                raise FileToolError("NotRead", f"{path} exists, and this session has not read it; read it first")
            return
        is_other = known != state if known is not None else (state.changed or 0) > (earlier or 0)
        if is_other and (self._strict or name in self._read):
            raise FileToolError(
                "ChangedSinceRead", f"{path} was changed by somebody else since this session saw it; read it again"
            )

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
        name = json.loads(found[1])
        self._earlier[name] = int(datetime.fromisoformat(moment).timestamp() * 1e9)
        if message["name"] == "read_file":
            self._read.add(name)
