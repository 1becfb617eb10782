"""Know the files that a search leaves out: secrets, and those that the session's permissions keep from it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .globs import Found

try:
    from amplifier_core.permissions.protected import fold, is_secret
except ModuleNotFoundError:  # another kernel keeps no files from its tools

    def fold(name: str) -> str:
        return name

    def is_secret(path: str) -> bool:
        return False


class Closed:
    """Looks at the files of one search, and counts those that it leaves out.

    `patterns` are regular expressions of folded paths, as `PermissionGate.find_closed` returns them.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._fit = re.compile("|".join(f"(?:{each})" for each in patterns), re.DOTALL).fullmatch if patterns else None
        self.count = 0

    def leaves_out(self, found: Found, *, is_named: bool = False) -> bool:
        """Return whether the search leaves a file out; of one that the call names, the permissions decided before."""
        path = "/".join(found.parts if found.path is None else found.path.parts)
        leaves = (not is_named and is_secret(path)) or (self._fit is not None and self._fit(fold(path)) is not None)
        self.count += leaves
        return leaves

    def remark(self) -> dict[str, int]:
        """Return `skipped` for a result, when there is something to say."""
        return {"skipped": self.count} if self.count else {}
