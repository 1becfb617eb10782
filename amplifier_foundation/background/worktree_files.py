"""Walk and remove the files of a worktree, whatever a session has made of them."""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from .git import GitError, make_plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .git import Git


class WorktreeRemoved(GitError):
    """Somebody has removed the worktree of a session, with its work."""

    def __init__(self, path: str) -> None:
        super().__init__(f"the worktree {path} was removed, with the work of its session", is_final=True)


def is_whole(path: str, above: Git, commit: str) -> bool:
    """Return whether a folder has anything yet of a worktree that was made of `commit`; a session may remove much."""
    if os.path.lexists(f"{path}/.git"):
        return True
    names = above.run("ls-tree", "-r", "-z", "--name-only", commit).split("\0")[:-1]
    return any(os.path.lexists(f"{path}/{each}") for each in names) if names else Path(path).is_dir()


def require_whole(path: str, above: Git, commit: str) -> None:
    """Raise `WorktreeRemoved` where somebody has removed a worktree: all its files would count as deleted."""
    if not is_whole(path, above, commit):
        raise WorktreeRemoved(path)


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
