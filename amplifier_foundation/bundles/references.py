"""From what a user or a bundle writes to the file of a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from amplifier_core.errors import BundleLoadError, BundleNotFoundError

from .paths import is_path, is_remote, kind_of, leaves, local_path
from .positions import show_file
from .problems import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE_NAMES = ("bundle.md", "bundle.yaml", "bundle.yml")
"""What a bundle's file is called in its folder; the first that is there counts."""

SUFFIXES = (".md", ".yaml", ".yml")
"""How the name of a bundle's file ends."""


def find_bundle(source: str | Path, *, base: Path | None = None, names: Mapping[str, str | Path] | None = None) -> Path:
    """Return the file that `source` stands for.

    It is a file, a folder that holds one of `FILE_NAMES`, a URL (`git+https://…@ref#subdirectory=path`, `zip+…`,
    `https://…`), a name of `names` (which says where bundles are), or `name:path`: a file in that bundle's folder, its
    suffix optional. Relative paths are relative to `base`, else to the current folder. What is elsewhere is taken from
    the cache, and fetched when it is not there.

    Raises `BundleNotFoundError`, and `BundleLoadError` for what a bundle cannot be loaded from.
    """
    if isinstance(source, Path):
        return _file_at((base or Path()) / source)
    if is_remote(source):
        return _file_at(_fetched(source))
    named = _named(source, base, names or {})
    if named is not None:
        return named
    try:
        path, _ = local_path(source, base)
    except ValueError as error:
        raise BundleLoadError(f"not a path of a bundle: {error}") from error
    hint = did_you_mean(source, names or {})
    if hint and not kind_of(path) and "/" not in source:
        raise BundleNotFoundError(f"{source}: no such file or folder, and no bundle is registered as '{source}'{hint}")
    return _file_at(path)


def _named(source: str, base: Path | None, names: Mapping[str, str | Path]) -> Path | None:
    """Return the file of a registered name; None when `source` is a path."""
    name, colon, inside = source.partition(":")
    if name in names and (colon or not kind_of((base or Path()) / source)):
        home = _home(str(names[name]))
        if inside and leaves(_folder(home), _folder(home) / inside):
            raise BundleLoadError(f"'{source}' leads out of the folder of '{name}': {show_file(_folder(home))}")
        return _file_at(_folder(home) / inside if inside else home)
    if is_path(source):
        return None
    known = f" Known: {', '.join(sorted(names))}." if names else ""
    hint = did_you_mean(name, names) or "."
    raise BundleNotFoundError(f"no bundle is registered as '{name}'{hint}{known} Use its path instead")


def names_in(
    source: str, own: Mapping[str, str | Path], registered: Mapping[str, str | Path]
) -> Mapping[str, str | Path]:
    """Return the names that count for what a bundle includes as `source`.

    In `name:path`, those of the bundle itself and of those that include it (`own`) come before registered ones. Alone,
    a name is that of another bundle: the registered one.
    """
    return {**registered, **own} if ":" in source else {**own, **registered}


def remote_place(source: str, base: Path | None, names: Mapping[str, str | Path]) -> str | None:
    """Return the URL that `source`, as `find_bundle` takes it, is fetched from; None: it is on this machine."""
    if is_remote(source):
        return source
    name, colon, _ = source.partition(":")
    place = str(names.get(name, ""))
    return place if is_remote(place) and (colon or not kind_of((base or Path()) / source)) else None


def _home(place: str) -> Path:
    return _fetched(place) if is_remote(place) else local_path(place)[0]


def _fetched(source: str) -> Path:
    from ..sources import default_cache

    return default_cache().fetch(source)


def _folder(home: Path) -> Path:
    return home if kind_of(home) == "folder" else home.parent


def _file_at(path: Path) -> Path:
    """Return the bundle file at `path`: itself, in it, or it with a suffix."""
    try:
        if path.is_dir():
            return file_in(path)
        if path.suffix.lower() in SUFFIXES:
            return _existing(path)
        candidates = [path.with_name(path.name + suffix) for suffix in SUFFIXES]
        found = next((candidate for candidate in candidates if candidate.is_file()), None)
    except (OSError, ValueError) as error:
        if isinstance(error, BundleLoadError):
            raise
        raise BundleLoadError(f"{show_file(path)}: cannot be read ({_reason(error)})") from error
    if found is None and path.exists():
        raise BundleLoadError(f"{show_file(path)}: the name of a bundle's file ends in {', '.join(SUFFIXES)}")
    return _existing(found or path)


def file_in(folder: Path) -> Path:
    """Return the bundle file in `folder`. Raises `BundleNotFoundError`."""
    for name in FILE_NAMES:
        if (folder / name).is_file():
            return folder / name
    raise BundleNotFoundError(f"{show_file(folder)}: this folder has no {', '.join(FILE_NAMES)}")


def _existing(path: Path) -> Path:
    if not path.exists():
        raise BundleNotFoundError(f"{show_file(path)}: no such file or folder")
    return path


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)
