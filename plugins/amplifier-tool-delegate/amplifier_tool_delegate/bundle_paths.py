"""Find the bundle that a call names in place of an agent, and refuse paths out of the allowed folders."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from .failures import DelegationError, shorten

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FILE_NAMES = ("bundle.md", "bundle.yaml", "bundle.yml")
"""Names of a bundle's file in its folder."""
SUFFIXES = (".md", ".yaml", ".yml")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+._-]+(?=:)")


class BundleRefused(DelegationError):
    """A bundle may not run here."""

    def __init__(self, wanted: str, why: str) -> None:
        super().__init__("BundleRefused", f"bundle '{shorten(wanted)}' may not run here: {why}")


def is_bundle(wanted: str) -> bool:
    """Return whether this names a bundle, not an agent: it has a `/`, `:` or `\\`, or the suffix of a bundle's file."""
    return any(mark in wanted for mark in "/:\\") or wanted == "." or wanted.endswith(SUFFIXES)


def find_bundle(wanted: str, folders: Sequence[Path], *, uris: bool) -> str:
    """Return the bundle to run: for a path its file, with links followed; anything else unchanged.

    A path must lie in one of `folders`, and is searched in their order; `name:path` must stay in that bundle's folder;
    a bundle from elsewhere needs `uris`. Raises `DelegationError`.
    """
    found = _SCHEME.match(wanted)
    scheme = found[0].lower() if found else ""
    if scheme == "file":
        parts = urlsplit(wanted)
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            raise BundleRefused(wanted, "a file:// URL names a path of this machine: file:///folder/bundle.md")
        return str(_find_file(unquote(parts.path), folders))
    if "://" in wanted or scheme.startswith(("git+", "zip+")):
        if not uris:
            raise BundleRefused(wanted, "bundles from elsewhere are off (uris); name a path inside the working folder")
        return wanted
    if scheme:
        inside = wanted.partition(":")[2]
        if "\0" in inside or inside.startswith(("/", "\\")) or ".." in re.split(r"[/\\]", inside):
            raise BundleRefused(wanted, "the path behind the name must stay inside that bundle's folder")
        return wanted
    return str(_find_file(wanted, folders))


def _find_file(given: str, folders: Sequence[Path]) -> Path:
    """Return the bundle's file; `given` may be its folder, or lack its suffix."""
    outside = False
    try:
        path = Path(given).expanduser()
        for candidate in (each for folder in folders for each in _list_candidates(folder / path)):
            real = candidate.resolve()
            inside = any(real.is_relative_to(each.resolve()) for each in folders)
            if inside and real.is_file():
                return real
            outside = outside or not inside
    except (OSError, RuntimeError, ValueError) as error:
        cause = getattr(error, "strerror", None) or error  # an OSError's text has the path once more
        raise BundleRefused(given, f"this cannot be a path here: {cause}") from error
    if outside:
        raise BundleRefused(given, "it is outside the working folder and the bundle's; name a path inside")
    raise DelegationError(
        "UnknownAgent", f"there is no bundle at '{shorten(given)}' in the working folder or the bundle's"
    )


def _list_candidates(path: Path) -> Iterator[Path]:
    yield path
    yield from (path / name for name in FILE_NAMES)
    if path.name:
        yield from (path.with_name(path.name + suffix) for suffix in SUFFIXES)
