"""Load a bundle and the bundles that it includes."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING

from amplifier_core.errors import BundleError

from ..documents.document import read_document
from ..documents.positions import Place, show_file
from ..documents.problems import BrokenInclude, BundleProblemsError, error_at, warning_at
from ..paths import BUNDLE_FILES, find_bundle_file, sources_home
from ..sources.errors import SourceNotFound
from .agents import load_agents, load_or_raise, unknown_agents
from .fetched import find_borrowed
from .references import find_bundle, names_in
from .sources import check_pending_context
from .stand_ins import drop_stand_ins

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ..documents.problems import Problem
    from .model import Bundle

LeaveOut = Callable[[str], str]
"""Called with each include as written; its answer is the reason to leave it out, with a warning, `` for none."""

logger = logging.getLogger(__name__)

FOLDERS_ABOVE = 3
"""Folders searched upward for the bundle of a part; a git checkout ends the search."""
MAX_INCLUDE_DEPTH = 32
"""Longest chain of includes."""


async def load_bundle(
    source: str | Path,
    *,
    auto_include: bool = True,
    registry: Mapping[str, str | Path] | None = None,
    strict: bool = False,
) -> Bundle:
    """Load a bundle from a file, its folder, a URL, or a name of `registry` (places by name).

    `git+…`, `zip+…` and `https://…` are fetched once, into the cache below the data folder; see `find_bundle`. Its
    included bundles are loaded and composed under it, unless `auto_include` is False. Warnings are logged, and are
    errors with `strict`. Nothing of the bundle is executed.

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
    replace_include: Callable[[str], str | None] | None = None,
    leave_out: LeaveOut | None = None,
) -> Bundle:
    """Load as `load_bundle`, for a program without an event loop.

    `replace_include` is called with each include as written; its answer is used instead, unless None.
    """
    bundle = read_bundle(
        source,
        auto_include=auto_include,
        registry=registry,
        strict=strict,
        replace_include=replace_include,
        leave_out=leave_out,
    )
    for problem in bundle.problems:
        logger.warning("%s", problem)
    return bundle


def read_bundle(
    source: str | Path,
    *,
    auto_include: bool = True,
    registry: Mapping[str, str | Path] | None = None,
    strict: bool = False,
    replace_include: Callable[[str], str | None] | None = None,
    leave_out: LeaveOut | None = None,
) -> Bundle:
    """Load as `load_bundle_sync` and log nothing: the warnings are the bundle's `problems`."""
    loading = _Loading(registry or {}, auto_include, strict, replace_include, leave_out)
    bundle = loading.load(find_bundle(source, names=registry))
    if auto_include:
        load_or_raise(bundle, strict=strict, found=[*find_borrowed(bundle), *check_pending_context(bundle)])
        bundle.resolve_pending_context()
    drop_stand_ins(bundle)
    if len(bundle.origins) > 1:
        bundle.digest = sha256("".join(sorted(bundle.origins.values())).encode()).hexdigest()
    return bundle


def bundle_reader() -> Callable[[Path], Bundle]:
    """Return a function that reads a bundle without its includes; what is around several bundles, it reads once.

    It raises as `load_bundle` does.
    """
    return _Loading({}, auto_include=False, strict=False, replace_include=None).load


def read_leniently(
    source: str | Path, *, registry: Mapping[str, str | Path] | None = None, leave_out: LeaveOut | None = None
) -> tuple[Bundle | None, list[Problem]]:
    """Return a bundle with its includes and agents, without their mistakes, and all their problems.

    The bundle is None if nothing of its own file is usable. Raises `BundleNotFoundError` and `BundleLoadError` for a
    missing file.
    """
    mistakes: list[Problem] = []
    path = find_bundle(source, names=registry)
    try:
        bundle = _Loading(registry or {}, True, False, None, leave_out, mistakes).load(path)
    except BundleProblemsError as error:
        return None, list(dict.fromkeys([*mistakes, *error.problems]))
    found = [*find_borrowed(bundle), *check_pending_context(bundle), *load_agents(bundle), *unknown_agents(bundle)]
    bundle.resolve_pending_context()
    return bundle, list(dict.fromkeys([*mistakes, *bundle.problems, *found]))


class _Loading:
    """One load: the bundles loaded so far, the chain of including bundles, and their names.

    With a list of `mistakes`, broken bundles are loaded without their mistakes and unusable ones are left out.
    """

    def __init__(
        self,
        names: Mapping[str, str | Path],
        auto_include: bool,
        strict: bool,
        replace_include: Callable[[str], str | None] | None,
        leave_out: LeaveOut | None = None,
        mistakes: list[Problem] | None = None,
    ) -> None:
        self._names = names
        self._auto_include = auto_include
        self._strict = strict
        self._replace_include = replace_include
        self._leave_out = leave_out
        self._mistakes = mistakes
        self._loaded: dict[Path, Bundle] = {}
        self._broken: dict[Path, BundleProblemsError] = {}
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
            except BundleProblemsError as error:
                self._broken[key] = error
                raise
            finally:
                self._row.pop()
        return self._loaded[key]

    def _load(self, path: Path) -> Bundle:
        from .build import build_bundle

        if self._mistakes is None:
            bundle = build_bundle(read_document(path), path.parent, strict=self._strict)
        else:
            from .repairing import build_leniently

            bundle, found = build_leniently(path)
            self._mistakes.extend(found)
        bundle.source_base_paths.update(self._find_whole(path, bundle.name))
        if not bundle.includes or not self._auto_include:
            return bundle
        first, *others = [*self._load_includes(bundle), bundle]
        return first.compose(*others) if others else first

    def _find_whole(self, path: Path, name: str) -> dict[str, Path]:
        """Return the name and folder of the bundle around a part: its files are written `name:path`."""
        cache, root = self._cache_folder, None
        if str(path).startswith(f"{cache}{os.sep}"):  # far cheaper than the methods of paths
            root = cache / path.relative_to(cache).parts[0]
        elif path.name in BUNDLE_FILES:
            return {}
        folder = root or path.parent
        if folder not in self._wholes:
            self._wholes[folder] = _name_whole([folder] if root else path.parents[: FOLDERS_ABOVE + 1])
        return {outer: inside for outer, inside in self._wholes[folder].items() if outer != name}

    @cached_property
    def _cache_folder(self) -> Path:
        return sources_home()

    def _load_includes(self, bundle: Bundle) -> list[Bundle]:
        """Return the included bundles. Raises the first error with the problems of all."""
        included: list[Bundle] = []
        errors: list[BundleProblemsError] = []
        self._own.append(bundle.source_base_paths)
        for number, source in enumerate(bundle.includes):
            if self._leave_out is not None and (reason := self._leave_out(source)):
                bundle.problems.append(warning_at(bundle.places["includes", str(number)], "AMP111", reason))
                continue
            try:
                included.append(self._include(bundle, number, source))
            except BundleProblemsError as error:
                errors.append(error)
                if isinstance(error.__cause__, SourceNotFound):  # the next unreachable one may take minutes too
                    break
        self._own.pop()
        if self._mistakes is not None:
            self._mistakes.extend(problem for error in errors for problem in error.problems)
        elif errors:
            raise type(errors[0])(list(dict.fromkeys(problem for error in errors for problem in error.problems)))
        return included

    def _include(self, bundle: Bundle, number: int, source: str) -> Bundle:
        place = bundle.places[("includes", str(number))]
        source = (self._replace_include and self._replace_include(source)) or source
        names = names_in(
            source, {name: path for own in self._own for name, path in own.items()}, self._names, bundle.base_path
        )
        try:
            path = find_bundle(source, base=bundle.base_path, names=names)
            self._refuse_circle(path, place)
            return self.load(path)
        except BundleProblemsError:
            raise
        except BundleError as error:
            raise BrokenInclude([*bundle.problems, error_at(place, "AMP111", str(error))]) from error

    def _refuse_circle(self, path: Path, place: Place) -> None:
        key = path.resolve()
        if key in self._row:
            circle = " -> ".join(show_file(step) for step in [*self._row[self._row.index(key) :], key])
            raise BrokenInclude(
                [error_at(place, "AMP111", f"bundles include each other: {circle}. Remove one of these includes")]
            )
        if len(self._row) >= MAX_INCLUDE_DEPTH:
            message = f"more than {MAX_INCLUDE_DEPTH} bundles include each other in a row"
            raise BrokenInclude([error_at(place, "AMP111", message)])


def _name_whole(folders: Sequence[Path]) -> dict[str, Path]:
    """Return the name and folder of the bundle in the first of `folders` with a bundle."""
    from .build import names_of

    for folder in folders:
        file = find_bundle_file(folder)
        if file is not None:
            with suppress(BundleError):
                name, inside = names_of(read_document(file).data or {}, folder)
                return {name: inside} if name and inside else {}
        if file is not None or (folder / ".git").exists():
            break
    return {}
