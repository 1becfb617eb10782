"""Know the scripts that commands name, as they were when the session began: a tool of it may change them later."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class Scripts:
    """The scripts in the folders of a session, with their digests."""

    def __init__(self, folder: str, variables: Mapping[str, str]) -> None:
        self._folder = folder
        self._variables = variables
        self._digests: dict[str, dict[Path, str]] = {}

    def remember(self, command: str) -> None:
        """Take the digests of the scripts that a command names now."""
        self._digests[command] = {path: _digest(path) for path in self._find(command)}

    def find_changed(self, command: str) -> Path | None:
        """Return a script of a command that is not as it was, or was not there."""
        before = self._digests[command]
        paths = dict.fromkeys([*before, *self._find(command)])
        return next((path for path in paths if before.get(path) != _digest(path)), None)

    def _find(self, command: str) -> list[Path]:
        try:
            from amplifier_core.utils.scripts import find_scripts
        except ImportError:  # another kernel has no such function
            return []
        return list(find_scripts(command, self._folder, self._variables))


def _digest(path: Path) -> str:
    try:
        return sha256(path.read_bytes()).hexdigest()
    except OSError:
        return "missing"
