"""Load a bundle and the bundles that it includes."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING

from amplifier_core.errors import BundleError

from ..sources.errors import SourceNotFound
from .agents import load_or_raise
from .documents import read_document
from .positions import Place, show_file
from .problems import BrokenInclude, BundleProblems, error_at
from .references import FILE_NAMES, find_bundle, names_in
from .sources import check_pending_context

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from .model import Bundle

logger = logging.getLogger(__name__)

FOLDERS_ABOVE = 3
"""Folders above its own in which a part of a bundle finds that bundle; a git checkout ends the search."""
MAX_INCLUDE_DEPTH = 32
"""Bundles that include each other in a row."""


async def load_bundle(
    source: str | Path,
    *,
    auto_include: bool = True,
    registry: Mapping[str, str | Path] | None = None,
    strict: bool = False,
) -> Bundle:
    """Load a bundle from a file, its folder, a URL, or a name of `registry` (names and where they are).

    `git+…`, `zip+…` and `https://…` are fetched once, into the cache below the data folder; see `find_bundle`. Bundles
    that it includes are loaded and composed under it, unless `auto_include` is False. Warnings are logged, and are
    errors when `strict`. Nothing of the bundle is executed.

    Raises `BundleNotFoundError`, `BundleLoadError`, `BundleValidationError` and `BundleDependencyError`; the last three
    list every problem with its line when the file was found.
    """
    import asyncio

    return await asyncio.to_thread(
        load_bundle_sync, source, auto_include=auto_include, registry=registry, strict=strict
    )


def load_bundle_sync(
    source: str | Path,
    *,
    auto_include: bool = True,
    registry: Mapping[str, str | Path] | None = None,
    strict: bool = False,
) -> Bundle:
    """Do what `load_bundle` does, for a program without an event loop."""
    bundle = read_bundle(source, auto_include=auto_include, registry=registry, strict=strict)
    for problem in bundle.problems:
        logger.warning("%s", problem)
    return bundle


def read_bundle(
    source: str | Path,
    *,
    auto_include: bool = True,
    registry: Mapping[str, str | Path] | None = None,
    strict: bool = False,
) -> Bundle:
    """Do what `load_bundle_sync` does and log nothing: the warnings are the bundle's `problems`."""
    loading = _Loading(registry or {}, auto_include, strict)
    bundle = loading.load(find_bundle(source, names=registry))
    if auto_include:
        load_or_raise(bundle, strict=strict, found=check_pending_context(bundle))
        bundle.resolve_pending_context()
    if len(bundle.origins) > 1:
        bundle.digest = sha256("".join(sorted(bundle.origins.values())).encode()).hexdigest()
    return bundle


class _Loading:
    """One load: what was loaded already, the row of bundles that include each other, and what names those bring."""

    def __init__(self, names: Mapping[str, str | Path], auto_include: bool, strict: bool) -> None:
        self._names = names
        self._auto_include = auto_include
        self._strict = strict
        self._loaded: dict[Path, Bundle] = {}
        self._broken: dict[Path, BundleProblems] = {}
        self._row: list[Path] = []
        self._wholes: dict[Path, dict[str, Path]] = {}
        self._own: list[Mapping[str, Path]] = []

    def load(self, path: Path) -> Bundle:
        key = path.resolve()
        if key in self._broken:
            raise self._broken[key]
        if key not in self._loaded:
            self._row.append(key)
            try:
                self._loaded[key] = self._load(path.absolute())
            except BundleProblems as error:
                self._broken[key] = error
                raise
            finally:
                self._row.pop()
        return self._loaded[key]

    def _load(self, path: Path) -> Bundle:
        from .build import build_bundle

        bundle = build_bundle(read_document(path), path.parent, strict=self._strict)
        bundle.source_base_paths.update(self._around(path, bundle.name))
        if not bundle.includes or not self._auto_include:
            return bundle
        included = self._all_included(bundle)
        return included[0].compose(*included[1:], bundle)

    def _around(self, path: Path, name: str) -> dict[str, Path]:
        """Return the name and folder of the bundle that one is a part of: its files are written `name:path`."""
        root = _source_root(path, self._fetched)
        if root is None and path.name in FILE_NAMES:
            return {}
        folder = root or path.parent
        if folder not in self._wholes:
            self._wholes[folder] = _whole([folder] if root else path.parents[: FOLDERS_ABOVE + 1])
        return {outer: inside for outer, inside in self._wholes[folder].items() if outer != name}

    @cached_property
    def _fetched(self) -> Path:
        from ..sources import default_cache

        return default_cache().folder

    def _all_included(self, bundle: Bundle) -> list[Bundle]:
        """Return what a bundle includes. Raises the first error there is, with the problems of all."""
        included: list[Bundle] = []
        errors: list[BundleProblems] = []
        self._own.append(bundle.source_base_paths)
        for number, source in enumerate(bundle.includes):
            try:
                included.append(self._include(bundle, number, source))
            except BundleProblems as error:
                errors.append(error)
                if isinstance(error.__cause__, SourceNotFound):  # what is not reached may have taken minutes
                    break
        self._own.pop()
        if errors:
            raise type(errors[0])(list(dict.fromkeys(problem for error in errors for problem in error.problems)))
        return included

    def _include(self, bundle: Bundle, number: int, source: str) -> Bundle:
        place = bundle.places[("includes", str(number))]
        names = names_in(source, {name: path for own in self._own for name, path in own.items()}, self._names)
        try:
            path = find_bundle(source, base=bundle.base_path, names=names)
            self._refuse_circle(path, place)
            return self.load(path)
        except BundleProblems:
            raise
        except BundleError as error:
            raise BrokenInclude([*bundle.problems, error_at(place, "AMP111", str(error))]) from error

    def _refuse_circle(self, path: Path, place: Place) -> None:
        key = path.resolve()
        if key in self._row:
            circle = " -> ".join(show_file(step) for step in [*self._row[self._row.index(key) :], key])
            raise BrokenInclude([error_at(place, "AMP111", f"bundles include each other: {circle}")])
        if len(self._row) >= MAX_INCLUDE_DEPTH:
            message = f"more than {MAX_INCLUDE_DEPTH} bundles include each other in a row"
            raise BrokenInclude([error_at(place, "AMP111", message)])


def _whole(folders: Sequence[Path]) -> dict[str, Path]:
    """Return the name of the bundle in the first of `folders` that has one, with what it is relative to."""
    from .build import names_of

    for folder in folders:
        file = next((folder / name for name in FILE_NAMES if (folder / name).is_file()), None)
        if file is not None:
            with suppress(BundleError):
                name, inside = names_of(read_document(file).data or {}, folder)
                return {name: inside} if name and inside else {}
        if file is not None or (folder / ".git").exists():
            break
    return {}


def _source_root(path: Path, folder: Path) -> Path | None:
    """Return the folder of the fetched source that `path` is in; None: it was not fetched into `folder`."""
    if not str(path).startswith(f"{folder}{os.sep}"):  # which is far cheaper than what paths say of each other
        return None
    return folder / path.relative_to(folder).parts[0]
