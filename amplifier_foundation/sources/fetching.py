"""What can be fetched, how each kind of it is, and where in it a source is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from .entries import last_name
from .errors import SourceNotFound, SourceRefused
from .limits import MAX_ARCHIVE, MAX_FILE
from .uris import ParsedURI, parse_uri, shown

if TYPE_CHECKING:
    from .limits import Deadline

_GIT = ("git+https", "git+ssh", "git+http", "git+file")
_ZIP = ("zip+https", "zip+http", "zip+file")
_KNOWN = "git+https://, git+ssh://, git+file://, zip+https://, zip+file:// and https://"

_NO_REF = re.compile(r"^[-+/.]|[ :^~?*\[\\]|\.\.|@\{|//|/$")
"""What no branch or tag has in its name (git-check-ref-format), or git would take for more than a name."""

_LONGEST_NAME = 255


def fetchable(uri: str | ParsedURI) -> ParsedURI:
    """Return a source that can be asked for. Raises `SourceRefused`."""
    source = parse_uri(uri) if isinstance(uri, str) else uri
    if not (source.host + source.path + source.ref).isprintable():
        raise SourceRefused(source, "holds characters that no address has", "Write them percent-encoded, as in %20")
    if source.is_git:
        _check_git(source)
    elif source.is_zip:
        _check_zip(source)
    elif source.is_http:
        _check_file(source)
    else:
        raise SourceRefused(source, "is no place to fetch from", f"Use {_KNOWN}")
    return source


def _check_git(source: ParsedURI) -> None:
    if source.scheme not in _GIT:
        raise SourceRefused(source, "is no place git fetches from", "Write git+https://host/org/repo@branch")
    if not _has_host(source) or not source.path.strip("/"):
        raise SourceRefused(source, "names no repository", f"Write {_example(source)}/org/repo")
    if _NO_REF.search(source.ref):
        raise SourceRefused(source, f"'{shown(source.ref)}' is no branch, tag or commit", "Name one after the @")


def _check_zip(source: ParsedURI) -> None:
    if source.scheme not in _ZIP:
        raise SourceRefused(source, "is no place of an archive", "Write zip+https://host/archive.zip")
    if not _has_host(source) or not last_name(source):
        raise SourceRefused(source, "names no archive", f"Write {_example(source)}/archive.zip")


def _check_file(source: ParsedURI) -> None:
    name = last_name(source)
    if not _has_host(source) or name in ("", "..") or "\0" in name or len(name.encode()) > _LONGEST_NAME:
        raise SourceRefused(source, "names no file", f"Write {_example(source)}/bundle.md")
    if source.subpath:
        raise SourceRefused(source, "is one file, which has no subdirectory", "Use git+https:// or zip+https://")


def _has_host(source: ParsedURI) -> bool:
    if source.transport == "file":
        return source.host in ("", "localhost")
    return bool(source.host.rpartition("@")[2])


def _example(source: ParsedURI) -> str:
    return f"{source.scheme}://" + ("/folder" if source.transport == "file" else "host")


def fetch_content(source: ParsedURI, work: Path, content: Path, deadline: Deadline) -> str | None:
    """Fill the empty folder `content` with a source; return the commit of a git repository.

    `work` is a folder for what is needed on the way. Raises `SourceNotFound`, `SourceRefused`; `OSError` is about the
    disk.
    """
    if source.is_git:
        from .git import fetch_git

        return fetch_git(source, content, deadline)
    if source.is_zip:
        from .archives import unpack

        unpack(source, _archive(source, work, deadline), content)
        return None
    from .http import download

    download(source, content / last_name(source), MAX_FILE, deadline)
    return None


def _archive(source: ParsedURI, work: Path, deadline: Deadline) -> Path:
    if source.transport == "file":
        path = Path(unquote(source.path))
        if path.is_file():
            return path
        raise SourceNotFound(source, "there is no such file", "Check its path")
    from .http import download

    download(source, work / "archive.zip", MAX_ARCHIVE, deadline)
    return work / "archive.zip"


def size_of(folder: Path) -> int:
    """Return the bytes of all files in `folder`; what symlinks lead to does not count."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_symlink() or path.is_file())


def inside(source: ParsedURI, root: Path) -> Path:
    """Return what a source names in the folder of its files. Raises `SourceRefused` and `SourceNotFound`."""
    from ..bundles.paths import leaves  # bundles are read from sources: each may be imported first

    path = root / (last_name(source) if source.is_http else source.subpath)
    if "\0" in source.subpath or leaves(root, path):
        raise SourceRefused(source, "its subdirectory leads out of the source", "Name one that is in it")
    if not path.exists():
        remedy = "Check what it has, or fetch it anew with: amplifier bundle update ADDRESS"
        raise SourceNotFound(source, "it has no such file or folder", remedy)
    return path
