"""Resolve paths written in bundles, and keep them inside the bundle's folder."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

SUFFIXES = (".md", ".yaml", ".yml")
"""Endings of bundle files."""
LONGEST = 4096
"""Characters of a path; PATH_MAX of Linux."""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+._-]+:")


def scheme_of(text: str) -> str:
    """Return the part of `text` before its first colon, or `` for a path: `git+https`, `my-bundle`, `file`."""
    match = _SCHEME.match(text)
    return match[0][:-1] if match else ""


def is_path(text: str) -> bool:
    """Whether `text` is a path on this machine."""
    return scheme_of(text) in ("", "file")


def is_remote(text: str) -> bool:
    """Whether `text` is a place elsewhere: `https://…`, `git+https://…`, `zip+file://…`."""
    return text.startswith(("git+", "zip+")) or ("://" in text and not is_path(text))


def local_path(text: str, base: Path | None = None) -> tuple[Path, bool]:
    """Return the path in `text`, and whether it was relative (to `base`, or the current folder).

    Raises `ValueError` for an impossible path.
    """
    if "\0" in text:
        raise ValueError("a path cannot contain the character U+0000")
    if scheme_of(text) == "file":
        parts = urlsplit(text)
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            raise ValueError("a file:// URL names a path of this machine: file:///folder/bundle.md")
        text = unquote(parts.path)
    try:
        path = Path(text).expanduser()
    except RuntimeError as error:
        raise ValueError(f"'{text}' is in the home folder of an unknown user") from error
    return (path, False) if path.is_absolute() else ((base or Path.cwd()) / path, True)


def leaves(root: Path, path: Path) -> bool:
    """Whether `path`, with its `..` and symlinks resolved, lies outside `root`."""
    if len(str(path)) > LONGEST:
        return False  # nothing exists there, and resolving it would take long
    try:
        real = path.resolve()
        return not real.is_relative_to(root.resolve()) or real.is_symlink()  # still a link: a loop of links
    except (OSError, RuntimeError, ValueError):  # a loop of links, or an impossible path
        return True


def kind_of(path: Path) -> Literal["file", "folder", "other", ""]:
    """Return the kind of file at `path`; `` for none, and for unreachable ones: a name too long, a closed folder."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return ""
    return "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else "other"
