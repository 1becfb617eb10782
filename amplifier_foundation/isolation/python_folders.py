"""Find the folders that this Python needs for its own modules and for the installed ones."""

from __future__ import annotations

import os
import site
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from amplifier_core.permissions.own_python import follow_links

from ..paths import find_home

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def find_python_folders() -> list[str]:
    """Return the files and folders of Python and of the installed packages; none that holds the home folder."""
    places = [place for place in (*site.getsitepackages(), site.getusersitepackages()) if Path(place).is_dir()]
    home = [os.path.realpath(path) for path in (find_home(),) if path is not None]
    found: list[str] = []
    for path in (
        sys.prefix,
        sys.base_prefix,
        *map(os.path.normpath, follow_links(sys.executable)),
        *places,
        *_find_editable(places),
    ):
        if not choose_below([path], found) and not choose_below(home, [path]):
            found.append(path)
    return found


def choose_below(paths: Iterable[str], folders: Iterable[str]) -> list[str]:
    """Return the paths that are one of the folders, or below one."""
    known = tuple(f"{folder.rstrip('/')}/" for folder in folders)
    return [path for path in paths if f"{path}/".startswith(known)]


def _find_editable(places: Iterable[str]) -> Iterator[str]:
    """Yield the folders that files `*.pth` name: packages that run from their sources."""
    for place in places:
        for file in sorted(Path(place).glob("*.pth")):
            with suppress(OSError):
                lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
                named = (line.strip() for line in lines if line.strip() and not line.startswith(("#", "import")))
                yield from (str(Path(place, each)) for each in named if Path(place, each).is_dir())
