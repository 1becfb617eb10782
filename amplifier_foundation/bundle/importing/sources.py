"""Read the files of a folder that somebody else has made: within it, without links, and of a limited size."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from amplifier_core.errors import BundleError

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_TEXT = 2**20
"""Bytes of a file that is read as text."""
MOST_FILES, MOST_BYTES = 5_000, 200 * 2**20
"""The limits of what is copied from one folder."""


class LeftOut(NamedTuple):
    """Something that a bundle cannot have: the file, the key in it ('' for all of it), and the reason."""

    file: str
    key: str
    reason: str


class ImportFailed(BundleError):
    """A folder or file cannot become a bundle."""


class Source:
    """A folder, and what of it had to be left out. `root` is its real path."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.left_out: list[LeftOut] = []

    def leave_out(self, file: Path | str, key: str, reason: str) -> None:
        """Note that something is not carried over."""
        self.left_out.append(LeftOut(self.show(file), key, reason))

    def show(self, file: Path | str) -> str:
        """Return a path within the folder as people read it."""
        path = Path(file)
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)

    def find(self, relative: str, named_in: Path | str = "") -> Path | None:
        """Return a file or folder in the folder; None if there is none, it leads out, or a link is on the way."""
        path = Path(os.path.normpath(self.root / relative))
        try:
            if path.is_relative_to(self.root) and path.resolve() == path:
                return path if path.exists() else None
            why = "it leads out of the folder, or is a link"
        except (OSError, ValueError):
            why = "it is no path"
        self.leave_out(named_in or relative, relative[:200] if named_in else "", why)
        return None

    def read_text(self, path: Path) -> str | None:
        """Return the text of a file; None, noted, if it cannot be read as text."""
        try:
            if not stat.S_ISREG(path.lstat().st_mode):
                raise ValueError("it is no regular file")
            if path.stat().st_size > LONGEST_TEXT:
                raise ValueError(f"it has more than {LONGEST_TEXT // 2**20} MiB")
            return path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError:
            self.leave_out(path, "", "it is no text in UTF-8")
        except OSError as error:
            self.leave_out(path, "", f"it cannot be read: {error.strerror}")
        except ValueError as error:
            self.leave_out(path, "", str(error))
        return None

    def read_json(self, path: Path) -> dict[str, Any]:
        """Return the object in a file of JSON; {}, noted, if there is none."""
        text = self.read_text(path)
        if text is None:
            return {}
        try:
            data = json.loads(text)
            json.dumps(data, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            self.leave_out(path, "", "it has half a surrogate pair, which is no text")
            return {}
        except (ValueError, RecursionError) as error:
            self.leave_out(path, "", f"it is no JSON: {error}")
            return {}
        if not isinstance(data, dict):
            self.leave_out(path, "", "it is no JSON object")
            return {}
        return data

    def list_files(self, folder: Path) -> Iterator[Path]:
        """Yield the regular files below a folder, without hidden ones; links and hidden ones are noted."""
        for place, folders, files in os.walk(folder):
            for name in sorted([*folders, *files]):
                path = Path(place, name)
                if path.is_symlink():
                    self.leave_out(path, "", "it is a link")
                elif name.startswith("."):
                    self.leave_out(path, "", "it is hidden")
                elif name in files and path.is_file():
                    yield path
            folders[:] = sorted(
                each for each in folders if not each.startswith(".") and not Path(place, each).is_symlink()
            )
