"""Find the file of a bundle by a path, a URL or a name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from amplifier_core.errors import BundleLoadError, BundleNotFoundError

from ..documents.local_paths import SUFFIXES, is_path, is_remote, kind_of, leaves, local_path
from ..documents.positions import show_file
from ..documents.problems import did_you_mean
from ..paths import BUNDLE_FILES, fetched_root, find_bundle_file, is_personal

if TYPE_CHECKING:
    from collections.abc import Mapping


def find_bundle(source: str | Path, *, base: Path | None = None, names: Mapping[str, str | Path] | None = None) -> Path:
    """Return the file of the bundle `source`.

    `source` is a file, a folder with one of `BUNDLE_FILES`, a URL (`git+https://…@ref#subdirectory=path`, `zip+…`,
    `https://…`), a name of `names` (places by name), or `name:path`: a file in the folder of the named bundle, its
    suffix optional. Relative paths start at `base`, else at the current folder. Remote files come from the cache, and
    are fetched if needed. In a fetched `base`, sources keep to its folder, to names and to public addresses.

    Raises `BundleNotFoundError`, and `BundleLoadError` for an impossible place of a bundle.
    """
    root = fetched_root(base)
    if root is not None:
        _refuse_reach(str(source))
    found = _find(source, base, names or {}, root)
    own = fetched_root(found)
    return found if own is None else _keep_in(own, found, source)


def _refuse_reach(source: str) -> None:
    from ..sources.uris import redact_uris
    from .fetched import REMEDY, describe_reach

    if reason := describe_reach(source):
        raise BundleLoadError(f"{redact_uris(source)} {reason}: {REMEDY}")


def _keep_in(root: Path, found: Path, source: str | Path) -> Path:
    """Return a file of a fetched folder. Raises `BundleLoadError` for one outside, also by a symlink."""
    if leaves(root, found):
        from .fetched import REMEDY

        raise BundleLoadError(f"'{source}' leads out of the fetched folder {show_file(root)}: {REMEDY}")
    return found


def _find(source: str | Path, base: Path | None, names: Mapping[str, str | Path], root: Path | None) -> Path:
    """Return the file of a bundle; a path from a fetched folder `root` stays in it."""
    if isinstance(source, Path):
        return _file_at((base or Path()) / source)
    if is_remote(source):
        return _file_at(_fetch(source, public_only=root is not None))
    named = _find_by_name(source, base, names)
    if named is not None:
        return named
    try:
        path, _ = local_path(source, base)
    except ValueError as error:
        raise BundleLoadError(f"not a path of a bundle: {error}") from error
    try:
        found = _file_at(path)
    except BundleNotFoundError:
        hint = did_you_mean(source, names)
        if kind_of(path) or "/" in source or (not hint and path.suffix.lower() in SUFFIXES):
            raise
        message = f"{source}: no such file or folder in {path.parent}, and no bundle is registered as '{source}'"
        remedy = hint or f". Register one with: amplifier bundle add {source} BUNDLE"
        raise BundleNotFoundError(message + remedy) from None
    return found if root is None else _keep_in(root, found, source)


def _find_by_name(source: str, base: Path | None, names: Mapping[str, str | Path]) -> Path | None:
    """Return the file of a registered name; None for a path."""
    name, colon, inside = source.partition(":")
    if name in names and (colon or not kind_of((base or Path()) / source)):
        place = str(names[name])
        home = _fetch(place) if is_remote(place) else local_path(place)[0]
        folder = home if kind_of(home) == "folder" else home.parent
        if inside and leaves(folder, folder / inside):
            raise BundleLoadError(f"'{source}' leads out of the folder of '{name}': {show_file(folder)}")
        try:
            return _file_at(folder / inside if inside else home)
        except BundleNotFoundError:
            if not inside or kind_of(folder / inside):
                raise
        near = [each.with_suffix("") for each in (folder / inside).parent.glob("*") if each.suffix.lower() in SUFFIXES]
        hint = did_you_mean(inside, (str(each.relative_to(folder)) for each in near))
        raise BundleNotFoundError(f"the folder of the bundle '{name}' has no '{inside}'{hint}")
    if is_path(source):
        return None
    known = f" Known: {', '.join(sorted(names))}." if names else ""
    hint = did_you_mean(name, names) or "."
    raise BundleNotFoundError(f"no bundle is registered as '{name}'{hint}{known} Use its path instead")


def names_in(
    source: str, own: Mapping[str, str | Path], registered: Mapping[str, str | Path], base: Path | None
) -> Mapping[str, str | Path]:
    """Return the names valid for the include `source` of the bundle in the folder `base`.

    In `name:path`, the names of the bundle itself and of its including bundles (`own`) come before registered ones. A
    name alone is another bundle's: the registered one comes first. In a fetched bundle, the folders of the person's
    bundles that include it have no names.
    """
    if fetched_root(base) is not None:
        own = {name: root for name, root in own.items() if not is_personal(Path(root))}
    return {**registered, **own} if ":" in source else {**own, **registered}


def remote_place(source: str, base: Path | None, names: Mapping[str, str | Path]) -> str | None:
    """Return the URL of `source` (as for `find_bundle`); None for a place on this machine."""
    if is_remote(source):
        return source
    name, colon, _ = source.partition(":")
    place = str(names.get(name, ""))
    return place if is_remote(place) and (colon or not kind_of((base or Path()) / source)) else None


def _fetch(source: str, *, public_only: bool = False) -> Path:
    from ..sources import default_cache

    return default_cache().fetch(source, public_only=public_only)


def _file_at(path: Path) -> Path:
    """Return the bundle's file at `path`: the file itself, one in the folder, or one with a suffix added."""
    try:
        if path.is_dir():
            return file_in(path)
        if path.suffix.lower() in SUFFIXES:
            return _require(path)
        candidates = [path.with_name(path.name + suffix) for suffix in SUFFIXES]
        found = next((candidate for candidate in candidates if candidate.is_file()), None)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BundleLoadError(f"{show_file(path)}: cannot be read ({reason})") from error
    if found is None and path.exists():
        raise BundleLoadError(f"{show_file(path)}: the name of a bundle's file ends in {', '.join(SUFFIXES)}")
    return found or _require(path)


def file_in(folder: Path) -> Path:
    """Return the bundle's file in `folder`. Raises `BundleNotFoundError`."""
    file = find_bundle_file(folder)
    if file is None:
        raise BundleNotFoundError(f"{show_file(folder)}: this folder has no {', '.join(BUNDLE_FILES)}")
    return file_in(file) if file.is_dir() else _require(file)


def _require(path: Path) -> Path:
    if not path.exists():
        if path.is_symlink():
            raise BundleNotFoundError(f"{show_file(path)}: a broken link to {show_file(path.readlink())}")
        raise BundleNotFoundError(f"{show_file(path)}: no such file or folder; searched in {path.parent.absolute()}")
    return path
