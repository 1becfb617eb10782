"""Check sources, fetch each kind of them, and find the named part in the result."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from .entries import last_name
from .errors import SourceNotFound, SourceRefused
from .limits import MAX_ARCHIVE, MAX_FILE
from .uris import ParsedURI, parse_uri, redact_uris

if TYPE_CHECKING:
    from .limits import Deadline

_GIT = ("git+https", "git+ssh", "git+http", "git+file")
_ZIP = ("zip+https", "zip+http", "zip+file")
_KNOWN = "git+https://, git+ssh://, git+file://, zip+https://, zip+file:// and https://"

_NO_REF = re.compile(r"^[-+/.]|[ :^~?*\[\\]|\.\.|@\{|//|/$")
"""Forbidden in names of branches and tags (git-check-ref-format), or read by git as an expression or option."""

_LONGEST_NAME = 255


def fetchable(uri: str | ParsedURI) -> ParsedURI:
    """Return a valid remote source. Raises `SourceRefused`."""
    source = parse_uri(uri) if isinstance(uri, str) else uri
    if not (source.host + source.path + source.ref).isprintable():
        raise SourceRefused(source, "has characters not allowed in an address", "Percent-encode them, as in %20")
    if source.is_git:
        if source.scheme not in _GIT:
            raise SourceRefused(source, "cannot be fetched by git", "Write git+https://host/org/repo@branch")
        if not _has_host(source) or not source.path.strip("/"):
            raise SourceRefused(source, "names no repository", f"Write {_example(source)}/org/repo")
        if _NO_REF.search(source.ref):
            ref = redact_uris(source.ref)
            raise SourceRefused(source, f"'{ref}' is not a branch, tag or commit", "Name one after the @")
    elif source.is_zip:
        if source.scheme not in _ZIP:
            raise SourceRefused(source, "is not an address of an archive", "Write zip+https://host/archive.zip")
        if not _has_host(source) or not last_name(source):
            raise SourceRefused(source, "names no archive", f"Write {_example(source)}/archive.zip")
    elif source.is_http:
        name = last_name(source)
        if not _has_host(source) or name in ("", "..") or "\0" in name or len(name.encode()) > _LONGEST_NAME:
            raise SourceRefused(source, "names no file", f"Write {_example(source)}/bundle.md")
        if source.subpath:
            raise SourceRefused(source, "is one file and has no subdirectory", "Use git+https:// or zip+https://")
    else:
        raise SourceRefused(source, "cannot be fetched", f"Use {_KNOWN}")
    return source


def _has_host(source: ParsedURI) -> bool:
    if source.transport == "file":
        return source.host in ("", "localhost")
    return bool(source.host.rpartition("@")[2])


def _example(source: ParsedURI) -> str:
    return f"{source.scheme}://" + ("/folder" if source.transport == "file" else "host")


def fetch_content(
    source: ParsedURI, work: Path, content: Path, deadline: Deadline, *, public_only: bool = False
) -> str | None:
    """Fill the empty folder `content` with a source; return the commit of a git repository.

    `work` is a folder for temporary files; `public_only` is that of `SourceCache.fetch`. Raises `SourceNotFound`,
    `SourceRefused`, and `OSError` for disk errors.
    """
    if public_only and source.transport == "file":
        raise SourceRefused(source, "is on this machine", "Only a bundle of your own may name files of this machine")
    if source.is_git:
        from .git import fetch_git

        return fetch_git(source, content, deadline, public_only=public_only)
    if source.is_zip and source.transport == "file":
        from .archives import unpack

        archive = Path(unquote(source.path))
        if not archive.is_file():
            raise SourceNotFound(source, "there is no such file", "Check its path")
        unpack(source, archive, content)
        return None
    from .connecting import Reach
    from .http import download

    reach = Reach(source, public_only=public_only)
    if source.is_zip:
        from .archives import unpack

        download(source, work / "archive.zip", MAX_ARCHIVE, deadline, reach)
        unpack(source, work / "archive.zip", content)
    else:
        download(source, content / last_name(source), MAX_FILE, deadline, reach)
    return None


def size_of(folder: Path) -> int:
    """Return the bytes of all files in `folder`, without the targets of symlinks."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_symlink() or path.is_file())


def inside(source: ParsedURI, root: Path) -> Path:
    """Return the named file or folder in the source's folder. Raises `SourceRefused`, `SourceNotFound`."""
    from ..documents.local_paths import leaves  # bundles are read from sources: each may be imported first

    path = root / (last_name(source) if source.is_http else source.subpath)
    if "\0" in source.subpath or leaves(root, path):
        raise SourceRefused(source, "its subdirectory leads out of the source", "Name one inside")
    if not path.exists():
        remedy = "Check the name, or fetch the source again with: amplifier bundle update ADDRESS"
        raise SourceNotFound(source, "it has no such file or folder", remedy)
    return path
