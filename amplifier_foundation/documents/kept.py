"""Keep what the check of a file found, so that an unchanged file is not checked again.

Each file has one entry below `cache` in the data folder, valid for one content and one version of the checks. It says
that the file has no mistakes, and may hold its values; secrets are never kept. The entry points of an environment are
kept in the same way.
"""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress
from random import getrandbits
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32  # an import of hashlib takes ten times as long

from ..paths import data_home

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = "cache"
MAX_BYTES = 4 * 1024 * 1024
"""Size of the largest entry."""
MOST = 2_000
"""Entries of one check, and a few; the oldest are removed first."""
COUNT_AT = 32
"""Of so many files that are kept, one has the entries counted: a count takes as long as the rest."""


class Kept(NamedTuple):
    """A file without mistakes: its values, or None when they are not kept."""

    values: dict[str, Any] | None


class Check(NamedTuple):
    """One kind of check: the name of its folder, and the modules whose change makes its entries invalid.

    `about` stands for the content of a file, and for all else that its check depends on; no secret is part of it.
    """

    name: str
    modules: tuple[Path, ...]

    def find(self, path: Path | str, about: str) -> Kept | None:
        """Return what was kept of the file at `path` with the same `about`, or None."""
        place = self._entry_of(path)
        with suppress(OSError, ValueError, RecursionError):
            status = place.stat()
            if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES or status.st_uid != os.geteuid():
                return None
            entry = json.loads(place.read_bytes())
            if isinstance(entry, dict) and entry.get("key") == self._key(path, about):
                values = entry.get("values")
                return Kept(values) if values is None or isinstance(values, dict) else None
        return None

    def keep(self, path: Path | str, about: str, values: dict[str, Any] | None = None) -> None:
        """Keep that the file has no mistakes; nothing is kept where there is no private data folder yet."""
        with suppress(OSError):  # there is none, a folder above cannot be entered, or nothing be written
            home = data_home().stat()
            if home.st_uid == os.geteuid() or stat.S_IMODE(home.st_mode) == 0o700:  # else it is refused soon
                from .files import write_whole

                entry, text = self._entry_of(path), json.dumps({"key": self._key(path, about), "values": values})
                if len(text) > MAX_BYTES:
                    return
                for folder in (entry.parent.parent, entry.parent):
                    folder.mkdir(0o700, exist_ok=True)
                write_whole(entry, text, is_durable=False)  # a cut entry is none, and the file is checked again
                if not getrandbits(32) % COUNT_AT:
                    _remove_oldest(entry.parent)

    def _entry_of(self, path: Path | str) -> Path:
        # Two paths of one number replace each other's entries: the key has the whole path.
        return data_home() / FOLDER / self.name / f"{crc32(os.fsencode(path)):08x}.json"

    def _key(self, path: Path | str, about: str) -> str:
        return repr((str(path), about, [module.stat().st_mtime_ns for module in self.modules]))


def _remove_oldest(folder: Path) -> None:
    entries = list(folder.iterdir())
    if len(entries) > MOST:
        for old in sorted(entries, key=lambda each: each.stat().st_mtime_ns)[: len(entries) - MOST + MOST // 5]:
            old.unlink()
