"""Start processes of tools in the sandbox of this machine, and look at what is new in their working folder."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

from .choosing import NoSandbox, require_sandbox
from .contracts import Run, holds_home
from .protection import find_guarded, hold_new_repositories, why_unguarded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .contracts import Launch
    from .protection import Guarded


class ToolSandbox:
    """The sandbox of one process. Its methods block; `close` deletes the temporary files of the process.

    `is_released("read" or "write", path)` says what the person has released of the guarded files, `is_read_only()`
    whether the mode of the session forbids writes.
    """

    def __init__(
        self, folder: str, is_released: Callable[[str, str], bool], is_read_only: Callable[[], bool] = lambda: False
    ) -> None:
        self._folder = os.path.realpath(folder)
        self._is_released = is_released
        self._is_read_only = is_read_only
        self._reads_alone = False
        self._guarded: Guarded | None = None
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    def launch(self, argv: Sequence[str], readable: Sequence[str]) -> Launch:
        """Return the process that runs a program, without a network; it reads `readable` besides the working folder.

        Raises `NoSandbox`, with the remedy, and `OSError`.
        """
        if holds_home(self._folder):
            raise NoSandbox(f"the working folder {self._folder} holds your home; work in a folder of its own")
        sandbox = require_sandbox()
        self._guarded, self._reads_alone = find_guarded(self._folder, self._is_released), self._is_read_only()
        if problem := why_unguarded(self._folder, self._guarded):
            raise NoSandbox(problem)
        run = Run(
            argv,
            self._folder,
            self._folder,
            readable=readable,
            guarded=self._guarded,
            scratch=self._find_scratch(sandbox.kind),
            is_read_only=self._reads_alone,
            supervised=True,
        )
        return sandbox.launch(run)

    def is_current(self) -> bool:
        """Return whether neither a guarded file nor the mode has changed since the launch: it is confined as then."""
        is_same = self._is_read_only() == self._reads_alone
        return is_same and find_guarded(self._folder, self._is_released) == self._guarded

    def look_again(self) -> list[str]:
        """Move aside new repositories that would run programs; return a sentence about each new guarded file."""
        if self._guarded is None:
            return []
        after = find_guarded(self._folder, self._is_released, self._guarded)
        return hold_new_repositories(self._folder, self._guarded, after)

    def close(self) -> None:
        """Delete the temporary files."""
        if self._scratch is not None:
            self._scratch.cleanup()

    def _find_scratch(self, kind: str) -> str:
        """Return the folder for temporary files; bubblewrap has one of its own."""
        if kind == "bubblewrap":
            return "/tmp"
        self._scratch = self._scratch or tempfile.TemporaryDirectory(prefix="amplifier-tool-")
        return os.path.realpath(self._scratch.name)
