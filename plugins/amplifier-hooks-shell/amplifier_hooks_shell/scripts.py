"""Know the scripts that commands name, as they were when the session began: a tool of it may change them later."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class Scripts:
    """The scripts that the commands of a session name, with their digests."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._digests: dict[str, dict[Path, str]] = {}

    def remember(self, command: str, variables: Mapping[str, str]) -> None:
        """Take the digests of the scripts that a command names now; `variables` are its folders."""
        self._digests.setdefault(command, {}).update((path, _digest(path)) for path in self._find(command, variables))

    def find_changed(self, command: str, variables: Mapping[str, str]) -> Path | None:
        """Return a script of a command that is not as it was, or was not there."""
        before = self._digests[command]
        found = dict.fromkeys([*before, *self._find(command, variables)])
        return next((path for path in found if before.get(path) != _digest(path)), None)

    def _find(self, command: str, variables: Mapping[str, str]) -> list[Path]:
        try:
            from amplifier_core.utils.scripts import find_scripts
        except ModuleNotFoundError:  # another kernel has none
            return []
        return list(find_scripts(command, self._folder, variables))


def _digest(path: Path) -> str:
    try:
        return sha256(path.read_bytes()).hexdigest()
    except OSError:
        return "missing"
