"""Bundles named in place of an agent: which of them may run, and the very file that is meant."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from .failures import Failure, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FILE_NAMES = ("bundle.md", "bundle.yaml", "bundle.yml")
"""What a bundle's file is called in its folder."""
SUFFIXES = (".md", ".yaml", ".yml")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+._-]+(?=:)")


def is_bundle(wanted: str) -> bool:
    """Say whether this names a bundle, not an agent: it has a `/`, `:` or `\\`, or the suffix of a bundle's file."""
    return any(mark in wanted for mark in "/:\\") or wanted == "." or wanted.endswith(SUFFIXES)


def allowed_bundle(wanted: str, folders: Sequence[Path], *, uris: bool) -> str:
    """Return what to have run: a path's file with links followed, anything else as it is written.

    A path must lie in one of the `folders`, in whose order it is looked for there; `name:path` must stay in that
    bundle's folder; a place elsewhere needs `uris`. Raises `Failure`.
    """
    found = _SCHEME.match(wanted)
    scheme = found[0].lower() if found else ""
    if scheme == "file":
        return str(_file(_path_of_url(wanted), folders))
    if "://" in wanted or scheme.startswith(("git+", "zip+")):
        if not uris:
            raise _refused(wanted, "bundles from elsewhere are off (uris); name a path inside the working folder")
        return wanted
    if scheme:
        return _registered(wanted)
    return str(_file(wanted, folders))


def _path_of_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise _refused(url, "a file:// URL names a path of this machine: file:///folder/bundle.md")
    return unquote(parts.path)


def _registered(wanted: str) -> str:
    _, _, inside = wanted.partition(":")
    if "\0" in inside or inside.startswith(("/", "\\")) or ".." in re.split(r"[/\\]", inside):
        raise _refused(wanted, "the path behind the name must stay inside that bundle's folder")
    return wanted


def _file(given: str, folders: Sequence[Path]) -> Path:
    """Return the bundle's file, in a folder or with a suffix left out as programs find it."""
    outside = False
    try:
        path = Path(given).expanduser()
        for folder in folders:
            for candidate in _candidates(folder / path):
                real = candidate.resolve()
                inside = any(real.is_relative_to(each.resolve()) for each in folders)
                if inside and real.is_file():
                    return real
                outside = outside or not inside
    except (OSError, RuntimeError, ValueError) as error:
        cause = getattr(error, "strerror", None) or error  # the rest of an OSError's text is the path once more
        raise _refused(given, f"this cannot be a path here: {cause}") from error
    if outside:
        raise _refused(given, "it is outside the working folder and the bundle's; name a path inside")
    raise Failure("UnknownAgent", f"there is no bundle at '{shown(given)}' in the working folder or the bundle's")


def _candidates(path: Path) -> Iterator[Path]:
    yield path
    yield from (path / name for name in FILE_NAMES)
    if path.name:
        yield from (path.with_name(path.name + suffix) for suffix in SUFFIXES)


def _refused(wanted: str, why: str) -> Failure:
    return Failure("BundleRefused", f"bundle '{shown(wanted)}' may not run here: {why}")
