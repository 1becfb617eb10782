"""Paths as bundles write them, and the fence around a bundle's folder."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

LONGEST = 4096
"""Characters beyond which nothing can be at a path."""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+._-]+:")


def scheme_of(text: str) -> str:
    """Return what `text` begins with before its first colon, or `` for a path: `git+https`, `my-bundle`, `file`."""
    match = _SCHEME.match(text)
    return match[0][:-1] if match else ""


def is_path(text: str) -> bool:
    """Whether `text` is a path on this machine."""
    return scheme_of(text) in ("", "file")


def is_remote(text: str) -> bool:
    """Whether `text` is a place elsewhere: `https://…`, `git+https://…`, `zip+file://…`."""
    return text.startswith(("git+", "zip+")) or ("://" in text and not is_path(text))


def local_path(text: str, base: Path | None = None) -> tuple[Path, bool]:
    """Return the path that `text` writes, and whether it was written relative (to `base`, or the current folder).

    Raises `ValueError` for what cannot be a path here.
    """
    if "\0" in text:
        raise ValueError("a path cannot hold the character U+0000")
    if scheme_of(text) == "file":
        text = _path_of_url(text)
    try:
        path = Path(text).expanduser()
    except RuntimeError as error:
        raise ValueError(f"'{text}' is under the home of a user who is not known here") from error
    return (path, False) if path.is_absolute() else ((base or Path.cwd()) / path, True)


def _path_of_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise ValueError("a file:// URL names a path of this machine: file:///folder/bundle.md")
    return unquote(parts.path)


def leaves(root: Path, path: Path) -> bool:
    """Whether `path`, with its `..` and symlinks followed, lies outside of `root`."""
    if len(str(path)) > LONGEST:
        return False  # it leads nowhere, and following it would take long
    try:
        real = path.resolve()
        return not real.is_relative_to(root.resolve()) or real.is_symlink()  # which is a loop, where that is no error
    except (OSError, RuntimeError, ValueError):  # a loop of symlinks, or what no path is, leads nowhere
        return True


def kind_of(path: Path) -> Literal["file", "folder", "other", ""]:
    """Return what is at `path`; `` for nothing, and where the system does not say: a name too long, a closed folder."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return ""
    return "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else "other"
