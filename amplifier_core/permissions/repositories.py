"""Find what git obeys besides `.git`: the hooks (`core.hooksPath`) and the files that its settings name.

The settings are those of each repository around a path, those of the person, and whatever they include.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from functools import lru_cache
from typing import TYPE_CHECKING

from .protected import fold

if TYPE_CHECKING:
    from collections.abc import Iterator

REMEMBERED = 2.0
"""Seconds for which what a repository names is not read again."""
_DEEPEST = 5
"""Settings that include settings."""
_LARGEST = 1024 * 1024
# A pattern is a text: most sessions work in no repository whose settings name anything.
_SECTION = r"\s*\[\s*([\w.-]+)(?:\s+\"(?:\\.|[^\"\\])*\")?\s*\]"


def is_obeyed_by_git(path: str) -> bool:
    """Return whether the settings of a repository around an absolute path name it, or a folder above it.

    A change of the settings counts after `REMEMBERED` seconds: sessions do not make one.
    """
    above, moment = path, int(time.monotonic() / REMEMBERED)
    while above:
        above = above.rpartition("/")[0]
        if named := _find_named(above, moment):
            spellings = {f"{fold(each)}/" for each in (path, os.path.realpath(path))}
            if any(spelling.startswith(f"{each}/") for each in named for spelling in spellings):
                return True
    return False


@lru_cache(maxsize=1024)
def _find_named(top: str, moment: int) -> tuple[str, ...]:
    return tuple(fold(each) for each in find_named_by_git(top))


def find_named_by_git(top: str) -> Iterator[str]:
    """Yield the paths of the hooks and the files that git obeys in the repository whose folder is `top`.

    A path comes as it is written, and with its links followed. It need not exist. A folder around `top` is left out.
    """
    own = f"{top}/.git"
    try:
        is_file = stat.S_ISREG(os.stat(own).st_mode)  # noqa: PTH116
    except OSError:
        return
    if is_file:  # that of a worktree, or of a submodule
        own = _read_line(own, top, "gitdir:") or own
    common = _read_line(f"{own}/commondir", own)
    home = os.path.expanduser("~")  # noqa: PTH111
    settings = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    if os.path.islink(f"{own}/hooks"):  # noqa: PTH114
        yield os.path.realpath(f"{own}/hooks")
    files = (f"{own}/config", f"{own}/config.worktree", f"{common}/config" if common else "")
    for file in (*files, f"{home}/.gitconfig", f"{settings}/git/config"):
        for named in _follow(file, top, _DEEPEST) if file else ():
            for each in dict.fromkeys((named, os.path.realpath(named))):
                if not f"{top}/".startswith(f"{each}/") and not f"{os.path.realpath(top)}/".startswith(f"{each}/"):
                    yield each


def read_regular(file: str | os.PathLike[str], most: int) -> bytes:
    """Return the first `most` bytes of a regular file. Raises `OSError`, at once for a FIFO or a device."""
    with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC), "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError(errno.EINVAL, "no regular file", os.fspath(file))
        return stream.read(most)


def _read_line(file: str, folder: str, prefix: str = "") -> str:
    try:
        text = read_regular(file, 4096).decode(errors="surrogateescape")
    except OSError:
        return ""
    line = text.partition("\n")[0].removeprefix(prefix).strip()
    return os.path.realpath(f"{folder}/{line}" if not line.startswith("/") else line)


def _follow(file: str, top: str, depth: int) -> Iterator[str]:
    try:
        status = os.stat(file)  # noqa: PTH116
    except OSError:
        return
    hooks, included = _read(file, status.st_mtime_ns, status.st_size, status.st_ino)
    yield from (_resolve(each, top) for each in hooks)
    for each in included if depth else ():
        path = _resolve(each, os.path.dirname(file))  # noqa: PTH120
        yield path
        yield from _follow(path, top, depth - 1)


def _resolve(path: str, folder: str) -> str:
    path = os.path.expanduser(path)  # noqa: PTH111
    return os.path.normpath(path if path.startswith("/") else f"{folder}/{path}")


@lru_cache(maxsize=256)
def _read(file: str, *version: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the folders of hooks and the included files that settings name; `version` changes with the content."""
    try:
        text = read_regular(file, _LARGEST).decode(errors="surrogateescape")
    except OSError:
        return (), ()
    found: dict[str, list[str]] = {"hooks": [], "include": []}
    section = ""
    for line in text.replace("\\\n", "").split("\n"):  # git knows no other ends of lines
        if (heading := re.match(_SECTION, line)) is not None:
            section, line = heading[1].lower(), line[heading.end() :]
        key, _, value = line.partition("=")
        kind = {("core", "hookspath"): "hooks", ("include", "path"): "include", ("includeif", "path"): "include"}.get(
            (section, key.strip().lower())
        )
        if kind is not None:
            parts = re.findall(r'"((?:\\.|[^"\\])*)"|([^"#;]+)|[#;].*', value)
            value = "".join(re.sub(r"\\(.)", r"\1", quoted or bare) for quoted, bare in parts).strip()
            found[kind] += [value] if value else []
    return tuple(found["hooks"]), tuple(found["include"])
