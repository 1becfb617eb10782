"""Walk and remove the files of a worktree, whatever a session has made of them."""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from .git import make_plain

if TYPE_CHECKING:
    from collections.abc import Iterator


def remove_folder(path: str) -> None:
    """Remove a folder with all below it; one that is not there is no error. Raises `OSError`."""
    for _ in _walk(path):  # it opens closed folders
        pass
    with suppress(FileNotFoundError):
        shutil.rmtree(path)


def has_files(folder: str) -> bool:
    """Return whether there is anything in a folder."""
    return next(_walk(folder), None) is not None


def remove_nested(top: str) -> list[str]:
    """Remove the repositories below a worktree, so that their files are plain ones; return their folders."""
    found = []
    for folder, entry in _walk(top):
        if entry.name.lower() == ".git" and folder != top:
            found.append(make_plain(os.path.relpath(folder, top)))
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                Path(entry.path).unlink()
    return found


def _walk(top: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield the folder and the entry of everything below, from the top down; follow no links, open what is closed."""
    waiting = [top]
    while waiting:
        folder = waiting.pop()
        try:
            entries = list(os.scandir(folder))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError:
            Path(folder).chmod(0o700)
            entries = list(os.scandir(folder))
        for entry in entries:
            yield folder, entry
            needed = 0o700 if entry.is_dir(follow_symlinks=False) else 0o400
            with suppress(FileNotFoundError):  # removed meanwhile
                mode = entry.stat(follow_symlinks=False).st_mode
                if not entry.is_symlink() and mode & needed != needed:
                    Path(entry.path).chmod(stat.S_IMODE(mode) | needed)
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
